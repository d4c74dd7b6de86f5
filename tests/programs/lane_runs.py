"""The same training steps, dropout on, on any number of replicas and in any groups of lanes.

python lane_runs.py FILE [TRAIN]    four replicas on four logical CPUs

Writes losses and weights to FILE (.npz). TRAIN: other settings of a TrainConfig, as JSON.
"""

import dataclasses
import json
import sys

import keras
import numpy as np
import tensorflow as tf

B, T, STEPS = 8, 4, 3
DROPOUTS = {"dropout": 0.2, "dropatt": 0.2, "dropemb": 0.1}


def run(strategy, accumulate_steps=1, train=None, **model):
    """Losses, weights, state, moments and averages after a few steps in float64: {name: array}."""
    import reference
    from causal_runs import initial_mems, make_host_loop

    from txl_tf.devices import distribute
    from txl_tf.models.transformer_xl.model import TransformerXL
    from txl_tf.settings.run import TrainConfig
    from txl_tf.training.optimizer.adam import Adam
    from txl_tf.training.optimizer.average import WeightAverage
    from txl_tf.training.sharding import PartVariable
    from txl_tf.training.step import Sums

    config = TrainConfig(
        train_steps=20, learning_rate=1e-2, accumulate_steps=accumulate_steps, jit_compile=False, **train or {}
    )
    with strategy.scope():
        keras.utils.set_random_seed(5)
        transformer = TransformerXL(dataclasses.replace(reference.SMALL, mem_len=4, **DROPOUTS | model))
        optimizer = Adam(config, transformer.trainable_variables)
        average = WeightAverage(config, optimizer.sharding)
    draw = np.random.default_rng(1)
    lanes = B // strategy.num_replicas_in_sync
    tokens, targets = draw.integers(0, reference.SMALL.vocab_size, [2, STEPS * B // lanes, lanes, T]).astype(np.int32)
    targets[draw.random(targets.shape) < 0.3] = -1  # so lanes have different numbers of targets
    dataset = tf.data.Dataset.from_tensor_slices((tokens, targets))
    iterator = iter(distribute.distribute_batches(strategy, lambda **hosts: dataset))
    loop = make_host_loop(strategy, transformer, optimizer, config, average)
    mems, sums = loop(iterator, initial_mems(strategy, transformer, B), Sums().stacked(), tf.constant(STEPS))
    state = tf.nest.flatten(distribute.gather_state(strategy, mems))
    optimizer.sharding.fill()
    arrays = [sums, *transformer.get_weights(), *state]
    run = {str(i): np.asarray(array) for i, array in enumerate(arrays)}
    for kind, variables in (("optimizer", optimizer.by_path()), ("average", average.by_path())):
        for path, variable in variables.items():
            value = variable.whole() if isinstance(variable, PartVariable) else tf.convert_to_tensor(variable)
            run[f"{kind}/{path}"] = (tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value).numpy()
    return run


if __name__ == "__main__":
    cpus = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)

    from txl_tf.devices.distribute import make_strategy

    np.savez(sys.argv[1], **run(make_strategy("mirrored"), train=json.loads(sys.argv[2] if sys.argv[2:] else "{}")))

"""Not a test: one training step by TensorFlow, and by JAX from its StableHLO, and the differences as a JSON line.

A program of its own, since it needs JAX and libtpu in the process. The lines are of a TPU's step, a GPU's and that of
two replicas.
"""

import json
import pathlib
import sys

sys.path += [
    str(pathlib.Path(__file__).parents[2] / "evidence" / "compilers"),
    str(pathlib.Path(__file__).parents[1] / "programs"),
]

import jax
import numpy as np
import tensorflow as tf
from aot import compiler, steps
from causal_runs import make_objective
from jaxlib import _jax

from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.step import train_step

CONFIG = TransformerXLRunConfig(
    TransformerXLConfig(
        vocab_size=40,
        cutoffs=(10, 20),
        div_val=2,
        n_layer=1,
        d_model=16,
        d_embed=16,
        n_head=2,
        d_head=8,
        d_inner=32,
        mem_len=8,
        dropout=0.1,
        dropatt=0.1,
        init_std=0.3,
    ),
    DataConfig(batch_size=2, tgt_len=8),
    TrainConfig(clip=0.1),
)


def main():
    jax.config.update("jax_enable_x64", True)  # the step count has 64 bits
    for target in ("tpu", "gpu"):
        print(json.dumps(differences(target)))
    several = compiler.to_stablehlo(steps.train(CONFIG, CONFIG.data.batch_size, replicas=2).hlo)
    devices = compiler.devices_of("v5e:2x2")[:2]
    print(json.dumps({"hlo": compiler.compile_for(devices, several).hlo}))


def differences(target):
    """The loss of one step, and by how much JAX's results of the step for a "tpu" or "gpu" differ from TensorFlow's."""
    step = steps.train(CONFIG, CONFIG.data.batch_size, target=target)
    model = TransformerXL(CONFIG.model)
    optimizer = Adam(CONFIG.train, model.trainable_variables)
    variables = {variable.path: variable.value for variable in model.variables}
    variables |= {f"adam/{path}": value for path, value in optimizer.by_path().items()}
    batch_size, tgt_len = CONFIG.data.batch_size, CONFIG.data.tgt_len
    tokens = np.random.default_rng(0).integers(0, CONFIG.model.vocab_size, [batch_size, tgt_len + 1], np.int32)
    inputs, targets, mems = tokens[:, :-1], tokens[:, 1:], model.initial_mems(batch_size)

    arguments = {path: value.numpy() for path, value in variables.items()} | {"batch/0": inputs, "batch/1": targets}
    arguments |= {f"state/{i}": tensor.numpy() for i, tensor in enumerate(tf.nest.flatten(mems))}
    assert step.parameters == {
        name: (list(value.shape), value.dtype.name) for name in step.parameters for value in [arguments[name]]
    }
    cpu = jax.devices("cpu")[0]
    module = compiler.to_stablehlo(step.hlo, target)
    program = cpu.client.compile_and_load(module, _jax.DeviceList((cpu,)), _jax.CompileOptions())
    by_jax = program.execute([jax.device_put(arguments[name], cpu) for name in step.parameters])

    seed = tf.constant([CONFIG.train.seed, 0])
    batch = (tf.constant(inputs), tf.constant(targets))
    result = train_step(make_objective(model), optimizer, CONFIG.train, seed, batch, mems)
    changed = [variables[name] for name in step.parameters if name in variables]
    by_tensorflow = [*tf.nest.flatten(result), *changed]
    pairs = [(np.array(a, np.float64), b.numpy()) for a, b in zip(by_jax, by_tensorflow, strict=True)]
    return {"loss": float(result.loss), "differences": [float(np.max(abs(a - b))) for a, b in pairs]}


main()

"""How much memory a training run needs at least, known from its settings."""

from __future__ import annotations

import dataclasses
import functools
import math

import tensorflow as tf

from txl_tf import distribute, families, host_memory
from txl_tf.config import Config


def require_memory(config: Config, strategy: tf.distribute.Strategy) -> None:
    """Raises InputError if this machine has less memory than weights, what goes with them, and the state need.

    What steps need besides, such as activations, is not counted. Nothing is checked for other devices than CPUs: how
    much memory they have is not known here.
    """
    if not distribute.on_cpu(strategy):
        return
    # All layers are alike. So two small models tell what a large one needs, which would take a second to make.
    one_layer, two_layers = (_bytes(config, n_layer) for n_layer in (1, 2))
    more = config.model.n_layer - 1
    weights, mems = (one + more * (two - one) for one, two in zip(one_layer, two_layers, strict=True))
    # A weight has a gradient and two moments, and perhaps an average, on each replica or shared out over all. If it is
    # shared out itself, it is joined in every step.
    owners = strategy.num_replicas_in_sync if config.train.shard_optimizer else 1
    shared = (1 if config.train.bfloat16_moments else 2) + config.train.averages_weights + (owners > 1)
    copies = (2 + shared / owners) * len(strategy.extended.worker_devices)
    host_memory.require(
        {
            "weights, gradients and moments (n_layer, d_model, d_inner, vocab_size)": int(copies * weights),
            "mems (batch_size, mem_len, d_model, n_layer)": mems,
        }
    )


def _bytes(config: Config, n_layer: int) -> tuple[int, int]:
    """The bytes of the weights and of the state of a model with so many layers."""
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, n_layer=n_layer))
    with tf.Graph().as_default():  # nothing is allocated: only the shapes are wanted
        model = families.make_model(config)
        objective = families.training_of(config).objective(model, config)
        mems = host_memory.bytes_of(functools.partial(objective.initial_state, config.data.batch_size))
        weights = sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in model.variables)
    return weights, mems

"""The least memory that a training run needs, from its settings."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.devices import distribute, host_memory
from txl_tf.settings.run import Config


def require_memory(config: Config, strategy: tf.distribute.Strategy, objective: Any) -> None:
    """Raises InputError if there is too little memory for the weights, their gradients and moments, and the state.

    Does not count activations. Checks only CPUs: the memory of other devices is not known here. The weights of the
    objective's model need no values yet.
    """
    if not distribute.on_cpu(strategy):
        return
    model = objective.model
    mems = host_memory.bytes_of(functools.partial(objective.initial_state, config.data.batch_size))
    trained, whole = map(_bytes_of, (model.trainable_variables, model.variables))
    # A trained weight has a gradient and two moments, and perhaps an average, on each replica or sharded over all.
    # A sharded weight is also gathered in every step.
    owners = strategy.num_replicas_in_sync if config.train.shard_optimizer else 1
    shared = (1 if config.train.bfloat16_moments else 2) + config.train.averages_weights + (owners > 1)
    bytes_of_one = whole + (1 + shared / owners) * trained
    host_memory.require(
        {
            "weights, gradients and moments (n_layer, d_model, d_inner, vocab_size)": int(
                bytes_of_one * len(strategy.extended.worker_devices)
            ),
            "mems (batch_size, mem_len, d_model, n_layer)": mems,
        }
    )


def _bytes_of(variables: Sequence[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in variables)

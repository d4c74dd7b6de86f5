"""Norms of the weights and of the last update, and values of both for TensorBoard's histograms."""

from __future__ import annotations

import collections
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from txl_tf.devices.distribute import of_first_replica
from txl_tf.runs.parameters import kind_of
from txl_tf.training.optimizer.adam import Adam

SAMPLED = 1 << 14
"""A larger weight gives at most twice this number of values, evenly spread; a histogram needs no more."""


def make_histograms(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: Adam
) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that samples values. It reads all weights and moments: do not call it in every step.

    It returns {"weights/KIND" or "updates/KIND": values [n]}; weights of the same kind in several layers are one. For
    sharded weights they are values of the first replica's shard (`Sharding`).
    """
    variables = model.trainable_variables

    def replica() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        weights = [optimizer.sharding.weight(i) for i in range(len(variables))]
        return [_sample(weight) for weight in weights], [_sample(update) for update in optimizer.last_update()]

    samples = of_first_replica(strategy, replica)

    def by_kind() -> dict[str, np.ndarray]:
        found = collections.defaultdict(list)
        for group, tensors in zip(("weights", "updates"), samples(), strict=True):
            for variable, values in zip(variables, tensors, strict=True):
                found[f"{group}/{kind_of(variable.path)}"].append(values.numpy())
        return {name: np.concatenate(parts) for name, parts in found.items()}

    return by_kind


def make_norms(strategy: tf.distribute.Strategy, optimizer: Adam) -> Callable[[], tuple[float, float]]:
    """Returns a function that computes both norms. It reads all weights and moments: do not call it in every step.

    It returns floats: the norm of the weights, and the norm of the last update divided by it.
    """

    def replica() -> tuple[tf.Tensor, tf.Tensor]:
        context, sharding = tf.distribute.get_replica_context(), optimizer.sharding
        weights = [sharding.weight(i) for i in range(len(sharding.variables))]
        norm, update = (
            tf.sqrt(2 * tf.reduce_sum(sharding.sum_over_shards(context, tf.stack([tf.nn.l2_loss(x) for x in tensors]))))
            for tensors in (weights, optimizer.last_update())
        )
        return norm, update / norm

    norms = of_first_replica(strategy, replica)

    def both() -> tuple[float, float]:
        weights, update = norms()
        return float(weights), float(update)

    return both


def _sample(tensor: tf.Tensor) -> tf.Tensor:
    """Values [n] of a tensor: every s-th, s odd, so that they come from all columns of a matrix."""
    flat = tf.reshape(tensor, [-1])
    return flat[:: flat.shape[0] // SAMPLED | 1]

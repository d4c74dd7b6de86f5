"""Norms of the weights and of the last update."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from txl_tf.training.optimizer.adam import Adam


def make_norms(strategy: tf.distribute.Strategy, optimizer: Adam) -> Callable[[], tuple[float, float]]:
    """Returns a function that computes both norms. It reads all weights and moments: do not call it in every step.

    It returns floats: the norm of the weights, and the norm of the last update divided by it.
    """

    def replica() -> tuple[tf.Tensor, tf.Tensor]:
        context, sharding = tf.distribute.get_replica_context(), optimizer.sharding
        weights = [sharding.weight(i) for i in range(len(sharding.variables))]
        norm, update = (
            tf.sqrt(2 * tf.reduce_sum(sharding.halved_squares(context, tensors)))
            for tensors in (weights, optimizer.last_update())
        )
        return norm, update / norm

    @tf.function(autograph=False)
    def norms() -> list[tf.Tensor]:
        return [strategy.experimental_local_results(value)[0] for value in strategy.run(replica)]

    def both() -> tuple[float, float]:
        weights, update = norms()
        return float(weights), float(update)

    return both

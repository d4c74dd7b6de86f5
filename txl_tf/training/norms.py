"""Norms of the weights and of the last update."""

import tensorflow as tf


def make_norms(strategy, model, optimizer):
    """Makes a function that computes both norms. It reads all weights and moments: call it per log, not per step.

    Args:
        strategy, model, optimizer: of the training.

    Returns:
        norms() -> (norm of the weights, norm of the last update divided by it), floats.
    """

    def replica():
        weights = tf.linalg.global_norm([variable.value for variable in model.trainable_variables])
        return weights, tf.linalg.global_norm(optimizer.last_update()) / weights

    @tf.function
    def norms():
        return [strategy.experimental_local_results(value)[0] for value in strategy.run(replica)]

    return lambda: tuple(float(value) for value in norms())

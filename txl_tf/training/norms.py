"""How large the weights are and how far the last update moved them."""

import tensorflow as tf


def make_norms(strategy, model, optimizer):
    """A function to call now and then, not at every step: it reads all weights and moments once.

    Args:
        strategy, model, optimizer: of the run.

    Returns:
        norms() -> (norm of the weights, norm of the last update as a share of it), floats.
    """

    def replica():
        weights = tf.linalg.global_norm([variable.value for variable in model.trainable_variables])
        return weights, tf.linalg.global_norm(optimizer.last_update()) / weights

    @tf.function
    def norms():
        return [strategy.experimental_local_results(value)[0] for value in strategy.run(replica)]

    return lambda: tuple(float(value) for value in norms())

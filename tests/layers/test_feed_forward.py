"""The feed-forward block against the equation, and the gradient of relu and dropout that reads only their result."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.feed_forward import FeedForward

SEED = tf.constant([3, 4])


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_its_gradient_is_its_slope_with_dropout(rng, activation):
    """Both dropouts on; in float64, by a difference of 1e-6 on both sides."""
    layer = FeedForward(6, activation=activation, dropout=0.25, dtype="float64")
    x, direction, step = (tf.constant(rng.normal(size=[2, 3, 4])) for _ in range(3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = tf.reduce_sum(layer(x, SEED, training=True) * direction)
    outputs = [layer(x + sign * 1e-6 * step, SEED, training=True) for sign in (1, -1)]
    difference = tf.reduce_sum((outputs[0] - outputs[1]) * direction) / 2e-6
    np.testing.assert_allclose(tf.reduce_sum(tape.gradient(slope, x) * step), difference, rtol=1e-6, atol=1e-8)

"""The feed-forward block against the equation, and the gradient of relu and dropout that reads only their result."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.dropout import dropout
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.ops import relu_and_dropout

SEED = tf.constant([3, 4])


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("shared_axis", [None, -2])
@pytest.mark.parametrize("t_len", [128, 130])
def test_relu_and_dropout_have_tensorflows_result_and_gradient_on_a_tpu(on_device, rng, rate, shared_axis, t_len):
    """Also at 0, below it, and for what is not a number; long segments have a gradient of their own."""
    on_device("tpu")
    x = rng.normal(size=[3, t_len, 5]).astype(np.float32)
    x[0, :, 0], x[0, :, 1], x[0, :, 2], x[0, :, 3] = 0.0, -0.0, np.inf, np.nan
    x, direction = tf.constant(x), tf.constant(rng.normal(size=x.shape), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        got = relu_and_dropout(x, rate, SEED, shared_axis)
        want = dropout(tf.nn.relu(x), rate, SEED, shared_axis)
    np.testing.assert_array_equal(got, want)
    slopes = [tape.gradient(y, x, direction) for y in (got, want)]
    np.testing.assert_allclose(*slopes, rtol=1e-6)
    assert not rate or np.count_nonzero(slopes[0]) < np.count_nonzero(x > 0)


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

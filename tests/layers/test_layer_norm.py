"""A CPU's and a TPU's layer norm against Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.layer_norm import LayerNorm


@pytest.mark.parametrize("t_len", [5, 130])
def test_the_norm_and_all_gradients_are_those_of_keras(on_device, rng, t_len):
    weights = rng.normal(size=[2, 6])
    x = tf.constant(rng.normal(size=[2, t_len, 6]) + 3)
    direction = rng.normal(size=x.shape)
    results = []
    for kind, on_tpu in ((keras.layers.LayerNormalization, False), (LayerNorm, False), (LayerNorm, True)):
        on_device("tpu" if on_tpu else "cpu")
        layer = kind(epsilon=1e-12, dtype="float64")
        layer.build([None, None, 6])
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        results.append([y, *tape.gradient(y, [x, *layer.trainable_variables], direction)])
    for wanted, *others in zip(*results, strict=True):
        for got in others:
            np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


def test_a_constant_row_is_finite(on_device):
    on_device("tpu")
    layer = LayerNorm(epsilon=1e-12)
    x = tf.fill([1, 300], 1000.1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    assert np.isfinite(y).all() and np.isfinite(tape.gradient(y, x)).all()


@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
@pytest.mark.parametrize("on_tpu", [False, True])
def test_a_row_without_variance_becomes_beta_and_has_no_gradient(on_device, rng, on_tpu, epsilon):
    on_device("tpu" if on_tpu else "cpu")
    layer = LayerNorm(epsilon=epsilon, dtype="float64")
    layer.build([None, None, 6])
    layer.set_weights(rng.normal(size=[2, 6]))
    x = tf.constant(np.concatenate([np.zeros([1, 1, 6]), rng.normal(size=[1, 2, 6])], axis=1))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    gradient, of_beta = tape.gradient(y, [x, layer.beta.value], rng.normal(size=x.shape))
    np.testing.assert_array_equal(y[0, 0], layer.beta)
    assert not gradient[0, 0].numpy().any() and gradient[0, 1:].numpy().any() and np.isfinite(gradient).all()
    assert of_beta.numpy().all()

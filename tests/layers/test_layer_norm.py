"""A CPU's and a TPU's layer norm against Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.layer_norm import LayerNorm


@pytest.mark.parametrize("t_len", [5, 130])
def test_the_norm_and_all_gradients_are_those_of_keras(monkeypatch, rng, t_len):
    weights = rng.normal(size=[2, 6])
    x = tf.constant(rng.normal(size=[2, t_len, 6]) + 3)
    direction = rng.normal(size=x.shape)
    results = []
    for kind, on_tpu in ((keras.layers.LayerNormalization, False), (LayerNorm, False), (LayerNorm, True)):
        monkeypatch.setattr(platform, "on_tpu", lambda on_tpu=on_tpu: on_tpu)
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


def test_a_constant_row_is_finite(monkeypatch):
    monkeypatch.setattr(platform, "on_tpu", lambda: True)
    layer = LayerNorm(epsilon=1e-12)
    x = tf.fill([1, 300], 1000.1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    assert np.isfinite(y).all() and np.isfinite(tape.gradient(y, x)).all()

"""A TPU's layer norm against Keras's."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.layer_norm import LayerNorm


@pytest.mark.parametrize("t_len", [5, 130])
def test_one_pass_is_the_same_norm_with_all_gradients(monkeypatch, rng, t_len):
    layer = LayerNorm(epsilon=1e-12, dtype="float64")
    layer.build([None, None, 6])
    layer.gamma.assign(rng.normal(size=6))
    layer.beta.assign(rng.normal(size=6))
    x = tf.constant(rng.normal(size=[2, t_len, 6]) + 3)
    direction = rng.normal(size=x.shape)
    results = []
    for on_tpu in (False, True):
        monkeypatch.setattr(platform, "on_tpu", lambda on_tpu=on_tpu: on_tpu)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        results.append([y, *tape.gradient(y, [x, *layer.trainable_variables], direction)])
    for keras_norm, one_pass in zip(*results, strict=True):
        np.testing.assert_allclose(one_pass, keras_norm, rtol=1e-10, atol=1e-10)


def test_a_constant_row_is_finite(monkeypatch):
    monkeypatch.setattr(platform, "on_tpu", lambda: True)
    layer = LayerNorm(epsilon=1e-12)
    x = tf.fill([1, 300], 1000.1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    assert np.isfinite(y).all() and np.isfinite(tape.gradient(y, x)).all()

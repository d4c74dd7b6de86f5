"""Computations with fewer kernels on a GPU: gradients of weights together, small layer norms."""

import re

import numpy as np
import pytest
import tensorflow as tf
from causal_runs import loss_and_gradients

from txl_tf import families
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.ops import fewer, layer_norm, platform
from txl_tf.settings.run import TrainConfig

pytestmark = pytest.mark.xla
LAYERS, ROWS, WIDTH = 4, 6, 5
SIZES = {"vocab_size": 40, "n_layer": 2, "d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
SIZES |= {"mem_len": 4, "untie_r": False, "dropout": 0.2}


def gradients(x, *weights):
    """The gradients of the sum of squares of LAYERS layers, h = h W / 2 + b, for every W and b."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        for matrix, bias in zip(weights[::2], weights[1::2], strict=True):
            x = tf.matmul(x, matrix * 0.5) + bias
        loss = tf.reduce_sum(tf.square(x))
    return fewer.weight_gradients(tape.gradient(loss, weights))


@pytest.mark.parametrize("copied", [fewer.COPIED, 0])
def test_small_products_of_one_form_become_one(rng, monkeypatch, copied):
    """LAYERS forward, LAYERS - 1 for the gradients between the layers, and one for all matrices, or one for each."""
    monkeypatch.setattr(fewer, "COPIED", copied)
    x = rng.standard_normal([ROWS, WIDTH])
    weights = [rng.standard_normal(shape) for _ in range(LAYERS) for shape in ([WIDTH, WIDTH], [WIDTH])]
    with platform.traced_for("gpu"), platform.using("fewer"):
        compiled = tf.function(gradients, jit_compile=True, autograph=False)
        found = compiled(x, *weights)
        program = compiled.experimental_get_compiler_ir(x, *weights)(stage="optimized_hlo")
    inputs = [x]
    for matrix, bias in zip(weights[::2], weights[1::2], strict=True):
        inputs.append(inputs[-1] @ matrix / 2 + bias)
    back = 2 * inputs[-1]
    for i in reversed(range(LAYERS)):
        np.testing.assert_allclose(found[2 * i], inputs[i].T @ back / 2, rtol=1e-12)
        np.testing.assert_allclose(found[2 * i + 1], back.sum(0), rtol=1e-12)
        back = back @ weights[2 * i].T / 2
    assert len(re.findall(r" dot\(", program)) == 2 * LAYERS - 1 + (1 if copied else LAYERS)


def test_a_models_gradients_are_the_formulas(rng):
    config = TransformerXLRunConfig().replace(model=SIZES).model
    model = families.make_model(TransformerXLRunConfig(config))
    inputs, targets = tf.constant(rng.integers(0, 40, [2, 2, 8]), tf.int32)

    def step():
        given = TrainConfig(), tf.constant([3, 4]), inputs, targets, model.initial_mems(2)
        return loss_and_gradients(model, *given)[:2]

    with platform.using("plain"):
        loss, wanted = tf.function(step, autograph=False)()
    with platform.traced_for("gpu"), platform.using("fewer"):
        same, found = tf.function(step, jit_compile=True, autograph=False)()
    np.testing.assert_allclose(same, loss, rtol=1e-5)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())


def test_a_row_without_variance_has_no_gradient_in_a_small_layer_norm(rng):
    x = np.stack([np.full([WIDTH], 3.0), rng.standard_normal(WIDTH)])
    gamma, beta = rng.standard_normal([2, WIDTH])

    def normed(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer_norm(x, gamma, beta, 0.0)
        return y, tape.gradient(y, x, tf.constant(rng.standard_normal(x.shape)))

    with platform.traced_for("gpu"), platform.using("fewer"):
        y, gradient = tf.function(normed, jit_compile=True, autograph=False)(tf.constant(x))
    np.testing.assert_array_equal(y[0], beta)
    assert not gradient[0].numpy().any() and gradient[1].numpy().all()

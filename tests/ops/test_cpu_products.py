"""Products of bfloat16 matrices by XLA for CPU: what a matmul gives, added up in float32."""

import contextlib
import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model

from txl_tf.inference.generation.generator import Generator
from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.ops import Cluster, cluster_logits, platform
from txl_tf.ops.cpu import product

SHAPES = [
    ((5, 700), (700, 9), False),
    ((5, 700), (9, 700), True),
    ((2, 3, 5, 700), (2, 3, 700, 9), False),
    ((2, 3, 5, 700), (2, 3, 9, 700), True),
    ((2, 5, 700), (700, 9), False),
    ((2, 5, 700), (9, 700), True),
    ((1, 700), (700, 1), False),  # what XLA multiplies without the library
    ((2, 3, 1, 2), (2, 3, 2, 1), False),
]


def bfloat16_numbers(rng, shape):
    return tf.cast(rng.normal(size=shape), tf.bfloat16)


@pytest.mark.xla
@pytest.mark.parametrize(("x_shape", "y_shape", "transpose_b"), SHAPES)
def test_products_and_gradients_are_those_of_exact_numbers(x_shape, y_shape, transpose_b):
    rng = np.random.default_rng(0)
    x, y = bfloat16_numbers(rng, x_shape), bfloat16_numbers(rng, y_shape)
    exact_x, exact_y = (tf.cast(number, tf.float64) for number in (x, y))
    upstream = bfloat16_numbers(rng, tf.matmul(exact_x, exact_y, transpose_b=transpose_b).shape)

    def with_gradients(multiply, x, y, upstream):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            out = multiply(x, y, transpose_b=transpose_b)
        return out, *tape.gradient(out, [x, y], upstream)

    compiled = tf.function(lambda *inputs: with_gradients(product, *inputs), jit_compile=True, autograph=False)
    found = compiled(x, y, upstream)
    wanted = with_gradients(tf.matmul, exact_x, exact_y, tf.cast(upstream, tf.float64))
    for found_one, wanted_one in zip(found, wanted, strict=True):
        assert found_one.dtype == tf.bfloat16
        # One rounding to 8 bits, after sums in float32.
        np.testing.assert_allclose(tf.cast(found_one, tf.float64), wanted_one, rtol=2**-8, atol=1e-5)


@pytest.mark.xla
@pytest.mark.parametrize(
    ("dtype", "target", "compiled", "saved", "operation"),
    [
        ("bfloat16", "cpu", True, False, "XlaDotV2"),
        ("float32", "cpu", True, False, "BatchMatMulV2"),
        ("bfloat16", "cpu", False, False, "BatchMatMulV2"),
        ("bfloat16", "cpu", True, True, "BatchMatMulV2"),
        ("bfloat16", "gpu", True, False, "BatchMatMulV2"),
    ],
)
def test_xlas_own_operation_is_only_where_xla_for_cpu_will_run_it(dtype, target, compiled, saved, operation):
    x, y = tf.TensorSpec([2, 3, 4], dtype), tf.TensorSpec([2, 5, 4], dtype)
    multiply = tf.function(
        lambda x, y: cluster_logits(x, Cluster(y, tf.zeros([5]), None)), jit_compile=compiled, autograph=False
    )
    with platform.traced_for(target), platform.for_saved_model() if saved else contextlib.nullcontext():
        graph = multiply.get_concrete_function(x, y).graph
    assert {node.op for node in graph.as_graph_def().node} & {"XlaDotV2", "BatchMatMulV2"} == {operation}


@pytest.mark.xla
@pytest.mark.parametrize(("heads", "d_head", "batch"), [(4, 1, 1), (1, 1, 2), (1, 8, 1), (2, 8, 3)])
def test_a_text_has_the_same_scores_by_both_methods_whatever_the_shapes(heads, d_head, batch):
    """With one number per head, merging heads is a transpose, with which XLA could not use its library."""
    config = dataclasses.replace(CONFIG, dtype="mixed_bfloat16", n_layer=1, n_head=heads, d_head=d_head)
    decoder = Generator(random_model(config), Reach(16), jit_compile=False).decoder
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, [batch, 64], np.int32)

    def nll(tokens):
        hidden, _ = decoder(tokens, decoder.initial_cache(batch))
        return decoder.model.nll(hidden, tokens)

    tokens = tf.constant(tokens)
    compiled, plain = (tf.function(nll, jit_compile=jit, autograph=False)(tokens) for jit in (True, False))
    assert float(tf.reduce_mean(abs(compiled - plain))) < 0.01 * float(tf.reduce_mean(plain))


@pytest.mark.xla
def test_all_products_of_attention_are_of_bfloat16():
    """But for the sums of columns, which are products with ones. XLA shows what it converts to float32."""
    layer = RelMultiHeadAttention(2, 16, dtype="mixed_bfloat16")
    rng = np.random.default_rng(0)
    hidden, mems = (bfloat16_numbers(rng, [2, 8, 32]) for _ in range(2))
    layer(hidden, mems)

    def gradients(hidden, mems):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            loss = tf.reduce_sum(tf.square(layer(hidden, mems, training=True)))
        return tape.gradient(loss, [hidden, *(variable.value for variable in layer.trainable_variables)])

    compiled = tf.function(gradients, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(hidden, mems)(stage="optimized_hlo")
    types = dict(re.findall(r"%([\w.-]+) = (\w+)\[", program))
    products = re.findall(r" dot\(%([\w.-]+), %([\w.-]+)\)", program)
    multiplied = [names for names in products if not any("broadcast" in name for name in names)]
    assert len(multiplied) > 15
    assert {types[name] for names in multiplied for name in names} == {"bf16"}

"""The matmuls of attention, as each platform computes them best.

A TPU multiplies bfloat16 matrices, and its vector units compute in float32. Writing scores in bfloat16 costs about four
times as much as writing them in float32, while a matmul that reads float32 converts its inputs at almost no cost. So on
a TPU products are float32, and the compiler rounds the inputs of the next product to bfloat16.

Shapes: B batch, H heads, T queries, K keys, d = d_head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.layers import bfloat16_products, platform
from txl_tf.layers.bfloat16_products import product, transposed
from txl_tf.layers.gradients import custom_gradient

WIDEST = 1 << 23  # scores of a block: 32 MB of float32


def widened(x: tf.Tensor) -> tf.Tensor:
    """On a TPU a bfloat16 tensor in float32; x itself otherwise."""
    return tf.cast(x, tf.float32) if platform.on_tpu() and x.dtype == tf.bfloat16 else x


def wide_product(equation: str, x: tf.Tensor, y: tf.Tensor, wide: bool = True) -> tf.Tensor:
    """tf.einsum; on a TPU, if `wide`, the product of bfloat16 tensors is float32, as the matrix units compute it.

    Elsewhere it is a matmul where that is the same: TensorFlow translates it for XLA in 0.05 ms, an einsum in 4 ms.
    """
    if not platform.on_tpu() and equation in MATMULS:
        return MATMULS[equation](x, y)
    return tf.einsum(equation, widened(x), widened(y)) if wide else tf.einsum(equation, x, y)


def scores(query: tf.Tensor, key: tf.Tensor, wide: bool = True) -> tf.Tensor:
    """Products of all queries [B, H, T, d] and keys [B, H, K, d]: [B, H, T, K]; `wide`: as for `wide_product`.

    The gradient equals TensorFlow's.
    """
    if platform.on_tpu():
        return wide_product("bhtd,bhkd->bhtk", query, key, wide)

    @custom_gradient
    def run(query: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(d_score: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return product(d_score, key), _sums_over_queries(d_score, query)

        return product(query, key, transpose_b=True), gradient

    return run(query, key)


def _sums_over_queries(weight: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
    """For each key the sum of the queries [B, H, T, d], times its weights [B, H, T, K]: [B, H, K, d].

    XLA for CPU multiplies with a transposed [T, K] at half the speed of the other matmuls. So it computes the
    transposed sums, from a transposed [T, d]. They are transposed for all heads at once, into the order in which the
    next matmul reads them; XLA would replace a transpose of each head by the former product.
    """
    batch, heads, _, d_head = query.shape
    if not platform.xla_on_cpu() or None in (batch, heads, weight.shape[-1]):
        return tf.matmul(weight, query, transpose_a=True)
    narrow = bfloat16_products.is_used(query.dtype)
    sums = product(transposed(query), weight) if narrow else tf.matmul(query, weight, transpose_a=True)
    sums = tf.reshape(sums, [batch, heads * d_head, -1])
    return tf.transpose(tf.reshape(tf.transpose(sums, [0, 2, 1]), [batch, -1, heads, d_head]), [0, 2, 1, 3])


def _shared_scores(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Products of all queries [B, H, T, d] and keys that all texts share, [H, K, d]: [B, H, T, K]."""
    if not bfloat16_products.is_used(query.dtype):
        return tf.einsum("bhtd,hkd->bhtk", query, key)
    n_head, t_len, d_head = query.shape[1:]
    queries = tf.reshape(tf.transpose(query, [1, 0, 2, 3]), [n_head, -1, d_head])
    score = tf.reshape(product(queries, key, transpose_b=True), [n_head, -1, t_len, key.shape[1]])
    return tf.transpose(score, [1, 0, 2, 3])


MATMULS: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "bhtd,bhkd->bhtk": functools.partial(product, transpose_b=True),
    "bhtd,hkd->bhtk": _shared_scores,
    "bhtk,bhkd->bhtd": product,
    "bhtk,bhtd->bhkd": _sums_over_queries,
}
"""The equations of einsums that matmuls compute."""


def is_wide(query: tf.Tensor, rows: int, k_len: int) -> bool:
    """Whether the scores of so many of the queries [B, H, T, d] and K keys, in float32, stay in a TPU's fast memory."""
    batch, heads, t_len = query.shape[:3]
    return None not in (batch, heads, t_len) and batch * heads * min(t_len, rows) * k_len <= WIDEST


def computed_once(x: tf.Tensor) -> tf.Tensor:
    """x; a TPU's compiler then stores it instead of computing it again in each operation that uses it."""
    traced = platform.on_tpu() and tf.inside_function()
    return gen_xla_ops.xla_optimization_barrier([x])[0] if traced else x

"""The operations on a TPU.

A TPU multiplies bfloat16 matrices, and its vector units compute in float32. Writing scores in bfloat16 costs much more
than in float32, while a matmul that reads float32 converts its inputs at almost no cost. So products of attention are
float32, and the compiler rounds the inputs of the next product to bfloat16.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops import rings
from txl_tf.ops.plain import accurate_dtype, inverse_deviation
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import TILE
from txl_tf.ops.tpu_attention import TpuAttention

MATMUL_TOKENS = 512  # for at most this many tokens matmuls replace some gathers and scatters
NARROW = 2 * TILE  # the most columns of a table that the compiler stores by columns
ROWS = 16  # of a vector register that holds bfloat16 numbers


class Tpu(TpuAttention):
    """For a TPU, where XLA compiles everything."""

    row_multiple = ROWS  # lanes begin with whole registers, or every reshape of all rows would copy them

    def dot(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        axes = "abcd"[: x.shape.rank - 1]  # an ellipsis would cost a sum in the gradient
        return tf.einsum(f"{axes}m,mn->{axes}n", x, tf.cast(matrix, x.dtype))

    def dense(self, x: tf.Tensor, matrix: Any, bias: tf.Tensor) -> tf.Tensor:
        return keras.ops.add(keras.ops.matmul(x, tf.cast(matrix, x.dtype)), tf.cast(bias, x.dtype))

    def positions(self, rows: Any, query: tf.Tensor, training: bool, backward: tf.Tensor | None) -> tf.Tensor:
        """With a direction, [b, a]: q . r is q . b + q . a or q . b - q . a, so the direction is a sign in the queries.

        They are twice as wide, with d = 64 as wide as a TPU's registers.
        """
        return rows if backward is None else tf.concat(rows[::-1], axis=-1)

    def layer_norm(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
        """The variance is E[x^2] - E[x]^2, in float32 at least: the operation that makes x computes both sums.

        The relative error of the variance is about 1e-7 (1 + mean^2 / variance). Segments of at most 128 tokens are
        read as one list of rows; otherwise the compiler makes time the innermost axis, which slows sums over D.
        """
        rows = x
        if x.shape[-2] is not None and x.shape[-2] <= TILE:
            rows = tf.reshape(x, [-1, x.shape[-1]])
        rows = tf.cast(rows, accurate_dtype(x.dtype))
        mean = tf.reduce_mean(rows, axis=-1, keepdims=True)
        variance = tf.maximum(tf.reduce_mean(rows * rows, axis=-1, keepdims=True) - mean * mean, 0)
        scale = inverse_deviation(variance, epsilon) * gamma
        return tf.reshape(tf.cast(rows * scale + (beta - mean * scale), x.dtype), tf.shape(x))

    def lookup(self, table: tf.Tensor, rows: tf.Tensor, dtype: str, own: tf.Tensor | None) -> tf.Tensor:
        """For few tokens of a tail in bfloat16 by a matmul with one-hot rows, which is exact.

        A tail's table is narrow, so the compiler stores it by columns. A gather from it, and a scatter of its gradient,
        would copy the whole table to row order and back. For few tokens the matmul is cheaper.
        """
        few = rows.shape.num_elements() is not None and rows.shape.num_elements() <= MATMUL_TOKENS
        if not few or dtype != "bfloat16" or own is None or table.shape[1] > NARROW:
            return super().lookup(table, rows, dtype, own)
        one_hot = tf.one_hot(tf.where(own, rows, -1), table.shape[0], dtype=dtype)
        return tf.tensordot(one_hot, tf.cast(table, dtype), 1)

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        """Whole tiles of slots in place, and for a single token the tile that it is in.

        Rings of narrow heads are stored with slots as the innermost axis. A scatter would copy them to another layout
        and back.
        """
        if block == key.shape[2] and block % TILE == 0:
            start = ring.start // block * block
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=start))
        if key.shape[2] == 1 and ring.keys.shape[2] % TILE == 0:
            return rings.written(ring, key, value, functools.partial(_with_token, start=ring.start))
        return super().write(ring, key, value, block)


def _with_token(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """A ring's slots, of whole tiles, with a single new one: the tile that it is in is read and written.

    If only the slot were written, the compiler would store rings in a layout that is slower to read.
    """
    first = start // TILE * TILE
    batch, n_head, _, d_head = tf.unstack(tf.shape(slots))
    tile = gen_xla_ops.xla_dynamic_slice(slots, tf.stack([0, 0, first, 0]), tf.stack([batch, n_head, TILE, d_head]))
    return rings.with_rows(slots, tf.where(tf.range(TILE)[:, None] == start - first, new, tile), first)

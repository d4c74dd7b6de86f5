"""The operations on a CPU, by XLA or by TensorFlow's own kernels.

If a product's result is bfloat16, XLA for CPU first converts both matrices to float32. If the result is float32, a
library, YNNPACK, multiplies bfloat16 by AVX-512 or AMX instructions, if the CPU has them. For that the last axis of the
first matrix must be the axis that is summed. `product` meets both conditions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla import xla_data_pb2

from txl_tf.ops import rings, shift
from txl_tf.ops.attention import Attention, merge_heads
from txl_tf.ops.gradients import WithGradient, custom_gradient
from txl_tf.ops.plain import accurate_dtype
from txl_tf.ops.platform import Program
from txl_tf.ops.rings import KeyValueRing

SUMS_SIDE_BY_SIDE = 16
"""The number of float32 numbers in the widest vector register."""

SMALL = 2**14
"""With fewer numbers, `_halved_square` is one operation, which is traced and compiled sooner."""


class Cpu(Attention):
    """For a CPU; the program says whether XLA compiles it."""

    def __init__(self, program: Program):
        self.compiled = program.compiled
        self.only_compiled = program.only_compiled

    def _is_narrow(self, x: tf.Tensor) -> bool:
        """Whether products of this tensor use the CPU's own instructions for bfloat16, through XLA."""
        return self.only_compiled and x.dtype == tf.bfloat16

    def dot(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        matrix = tf.cast(matrix, x.dtype)
        # An einsum's gradient makes XLA for CPU copy the output's gradient, transposed; a list of rows does not.
        return product(x, matrix) if self._is_narrow(x) else tf.tensordot(x, matrix, 1)

    def dense(self, x: tf.Tensor, matrix: Any, bias: tf.Tensor) -> tf.Tensor:
        out = self.dot(x, matrix)
        return out + self.for_rows(tf.cast(bias, x.dtype), out)

    def dot_rows(self, x: tf.Tensor, rows: Any) -> tf.Tensor:
        rows = tf.cast(rows, x.dtype)
        return product(x, rows, transpose_b=True) if self._is_narrow(x) else tf.matmul(x, rows, transpose_b=True)

    def split_heads(self, merged: tf.Tensor, n_head: int) -> tf.Tensor:
        if not self._is_narrow(merged) or merged.shape[1] == 1:
            return super().split_heads(merged, n_head)
        _, length, width = merged.shape
        return _heads_first(tf.reshape(merged, [-1, length, n_head, width // n_head]))

    def rows_by_head(self, rows: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        if not self._is_narrow(rows):
            return super().rows_by_head(rows, weight)
        _, n_head, d_head = weight.shape
        merged = product(rows, tf.reshape(weight, [-1, n_head * d_head]))
        return tf.transpose(tf.reshape(merged, [-1, n_head, d_head]), [1, 0, 2])

    def matmul(self, x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False, wide: bool = True) -> tf.Tensor:
        if not self._is_narrow(x):
            return super().matmul(x, y, transpose_b)
        if y.shape.rank == 4:
            return product(x, y, transpose_b)
        n_head, t_len, d_head = x.shape[1:]
        rows = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [n_head, -1, d_head])
        score = tf.reshape(product(rows, y, transpose_b=True), [n_head, -1, t_len, y.shape[1]])
        return tf.transpose(score, [1, 0, 2, 3])

    def dot_columns(self, x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        return product(x, matrix, transpose_b=True) if self._is_narrow(x) else super().dot_columns(x, matrix)

    def sum_over_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        x, y = (tf.reshape(rows, [-1, rows.shape[-1]]) for rows in (x, y))
        return product(transposed(x), y) if self._is_narrow(x) else tf.matmul(x, y, transpose_a=True)

    def sum_over_context(self, context: Sequence[tf.Tensor], d_heads: tf.Tensor) -> tf.Tensor:
        """In two products: memory and segment are there for the gradient, joined they would be kept once more."""
        parts = tf.split(d_heads, [x.shape[1] for x in context], axis=2)
        return tf.add_n([self.sum_over_rows(x, merge_heads(part)) for x, part in zip(context, parts, strict=True)])

    def sums_over_queries(self, weight: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """By transposed sums, from a transposed [T, d], since XLA for CPU multiplies slowly with a transposed [T, K].

        The result is transposed for all heads at once, into the order in which the next matmul reads it; XLA would undo
        a transpose of each head.
        """
        batch, heads, _, d_head = x.shape
        if not self.compiled or None in (batch, heads, weight.shape[-1]):
            return tf.matmul(weight, x, transpose_a=True)
        sums = product(transposed(x), weight) if self._is_narrow(x) else tf.matmul(x, weight, transpose_a=True)
        sums = tf.reshape(sums, [batch, heads * d_head, -1])
        return tf.transpose(tf.reshape(tf.transpose(sums, [0, 2, 1]), [batch, -1, heads, d_head]), [0, 2, 1, 3])

    def shift(self, scores: tf.Tensor, k_len: int) -> tf.Tensor:
        return shift.relative_shift_moved_back(scores, k_len)

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
        """For TensorFlow's kernels already divided by their sum: its own kernel does it in one pass."""
        if self.compiled:
            return super().exponentials(score, hide, dtype)
        weight = tf.cast(tf.nn.softmax(tf.cast(score, hide.dtype) + hide), score.dtype)
        return weight, tf.ones([], hide.dtype), weight

    def for_rows(self, vector: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """With `column_sums` as its gradient. TensorFlow's kernels would write the broadcast vector to memory."""
        if not self.compiled:
            return vector

        @custom_gradient
        def run(vector: tf.Tensor) -> WithGradient:
            return tf.broadcast_to(vector, tf.shape(x)), column_sums

        return run(vector)

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        if self.only_compiled and block == key.shape[2] > 1:
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=ring.start))
        if ring.keys.dtype != tf.bfloat16:
            return super().write(ring, key, value, block)
        # As bits, or XLA for CPU would convert the whole ring to float32 and back.
        keys, values, key, value = (tf.bitcast(x, tf.uint16) for x in (ring.keys, ring.values, key, value))
        ring = super().write(KeyValueRing(keys, values, ring.start), key, value, block)
        return KeyValueRing(tf.bitcast(ring.keys, tf.bfloat16), tf.bitcast(ring.values, tf.bfloat16), ring.start)

    def halved_squares(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.stack([_halved_square(tensor) for tensor in tensors])


def product(x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """tf.matmul(x, y, transpose_b=transpose_b): sums in float32, rounded to bfloat16. The gradient is matmul's.

    Args:
        x: [.., M, K].
        y: [.., K, N], or [.., N, K] with `transpose_b`: with the axes of x before the last two, or none of them.
        transpose_b: whether the last axis of y is summed.
    """
    if y.shape.rank == 2 and x.shape.rank != 2:
        rows = tf.reshape(x, [-1, x.shape[-1]])
        width = y.shape[0 if transpose_b else 1]
        return tf.reshape(product(rows, y, transpose_b), tf.concat([tf.shape(x)[:-1], [width]], 0))

    @custom_gradient
    def run(x: tf.Tensor, y: tf.Tensor) -> WithGradient:
        def gradient(d_out: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            d_y = product(transposed(d_out), x) if transpose_b else product(transposed(x), d_out)
            return product(d_out, y, transpose_b=not transpose_b), d_y

        return tf.cast(_float32_product(x, y, transpose_b), x.dtype), gradient

    return run(x, y)


def transposed(x: tf.Tensor) -> tf.Tensor:
    """bfloat16 x [.., M, K] with the last two axes in the other order, for `product`."""
    rank = x.shape.rank
    return permuted(x, [*range(rank - 2), rank - 1, rank - 2], rank - 2)


def permuted(x: tf.Tensor, axes: list[int], axis: int) -> tf.Tensor:
    """tf.transpose(x, axes) of a bfloat16 tensor, as bits and in two parts of the axis `axis` of x.

    XLA would merge a whole transpose into the product, so that the library could not compute it. It would also convert
    the bfloat16 numbers that it moves to float32 and back.
    """
    length = x.shape[axis] or tf.shape(x)[axis]
    parts = tf.split(tf.bitcast(x, tf.uint16), tf.stack([length // 2, length - length // 2]), axis)
    return tf.bitcast(tf.concat([tf.transpose(part, axes) for part in parts], axes.index(axis)), x.dtype)


def _float32_product(x: tf.Tensor, y: tf.Tensor, transpose_b: bool) -> tf.Tensor:
    """The product of bfloat16 tensors of the same rank in float32; arguments as for `product`."""
    rank = x.shape.rank
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[rank - 1],
        rhs_contracting_dimensions=[rank - 1 if transpose_b else rank - 2],
        lhs_batch_dimensions=range(rank - 2),
        rhs_batch_dimensions=range(rank - 2),
    )
    return gen_xla_ops.xla_dot_v2(x, y, axes.SerializeToString(), "", preferred_element_type=tf.float32)


@custom_gradient
def _heads_first(x: tf.Tensor) -> WithGradient:
    """x [B, K, H, d] as [B, H, K, d], for `product`, with a gradient: TensorFlow has none for bits."""
    return permuted(x, [0, 2, 1, 3], 1), lambda d_heads: permuted(d_heads, [0, 2, 1, 3], 2)


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """The sums of x [.., D] over all axes but the last, in float32 at least: [D], as a product with ones.

    XLA for CPU adds up the numbers of a column one after the other, which is much slower than the product.
    """
    rows = tf.reshape(x, [-1, x.shape[-1]])
    rows = tf.cast(rows, accurate_dtype(rows.dtype))
    # Two rows of ones: XLA turns a product of one row into the sum again.
    ones = tf.ones([2, rows.shape[0] or tf.shape(rows)[0]], rows.dtype)
    return tf.cast(tf.unstack(tf.matmul(ones, rows), 2)[0], x.dtype)


def _halved_square(tensor: tf.Tensor) -> tf.Tensor:
    """XLA adds up squares one after the other, but uses vector registers for sums side by side.

    The maximum changes nothing; without it XLA would make one sum of the two.
    """
    size = tensor.shape.num_elements()
    if size < SMALL or size % SUMS_SIDE_BY_SIDE:
        return tf.nn.l2_loss(tensor)
    squares = tf.square(tf.reshape(tensor, [SUMS_SIDE_BY_SIDE, -1]))
    sums = tf.reduce_sum(squares, axis=0)
    return tf.reduce_sum(tf.maximum(sums, tf.zeros([], sums.dtype))) / 2

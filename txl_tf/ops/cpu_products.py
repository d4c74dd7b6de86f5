"""Products of bfloat16 matrices by XLA for CPU, with the CPU's own instructions for them.

If a product's result is bfloat16, XLA for CPU converts both matrices to float32 first. It does not if the result is
float32: then a library, YNNPACK, multiplies bfloat16 by AVX-512 or AMX instructions where the CPU has them. The library
takes only first matrices whose last axis is that of the sums.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla import xla_data_pb2

from txl_tf.ops.gradients import custom_gradient


def product(x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """tf.matmul(x, y, transpose_b=transpose_b): sums in float32, rounded to bfloat16. The gradient is matmul's.

    Args:
        x: [.., M, K].
        y: [.., K, N], or [.., N, K] with `transpose_b`: with the axes of x before the last two, or none of them.
        transpose_b: whether the last axis of y is that of the sums.
    """
    if y.shape.rank == 2 and x.shape.rank != 2:
        rows = tf.reshape(x, [-1, x.shape[-1]])
        width = y.shape[0 if transpose_b else 1]
        return tf.reshape(product(rows, y, transpose_b), tf.concat([tf.shape(x)[:-1], [width]], 0))

    @custom_gradient
    def run(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
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

    XLA would merge a whole transpose into the product, whose matrices the library then does not take, and convert the
    bfloat16 numbers that it moves to float32 and back.
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

"""Biases and scales, whose gradients are sums over all rows: on a CPU as products with ones.

XLA for CPU adds up the numbers of a column one after the other, each from another row. Of 596 rows of 512 numbers that
takes six times as long as the product.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.gradients import custom_gradient


def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x [.., D] + bias [D]."""
    if not platform.on_cpu():
        return x + bias

    @custom_gradient
    def run(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        return x + bias, lambda d_out: (d_out, column_sums(d_out))

    return run(x, bias)


def scale_and_shift(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """x [.., D] * gamma [D] + beta [D]."""
    if not platform.on_cpu():
        return x * gamma + beta

    @custom_gradient
    def run(
        x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        def gradient(d_out: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return d_out * gamma, column_sums(d_out * x), column_sums(d_out)

        return x * gamma + beta, gradient

    return run(x, gamma, beta)


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """The sums of x [.., D] over all axes but the last: [D], added up in float32 at least."""
    rows = tf.reshape(x, [-1, x.shape[-1]])
    if x.dtype != tf.float64:
        rows = tf.cast(rows, tf.float32)
    # Two rows of ones: XLA turns a product of one row into the sum again.
    ones = tf.ones([2, rows.shape[0] or tf.shape(rows)[0]], rows.dtype)
    return tf.cast(tf.unstack(tf.matmul(ones, rows), 2)[0], x.dtype)

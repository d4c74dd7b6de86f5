"""Products of attention on a TPU, in float32."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


def widened(x: tf.Tensor) -> tf.Tensor:
    """A bfloat16 tensor in float32; others as they are."""
    return tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x


def wide_product(equation: str, x: tf.Tensor, y: tf.Tensor, wide: bool = True) -> tf.Tensor:
    """tf.einsum; if `wide`, the product of bfloat16 tensors is float32, as the matrix units compute it."""
    return tf.einsum(equation, widened(x), widened(y)) if wide else tf.einsum(equation, x, y)


def computed_once(x: tf.Tensor) -> tf.Tensor:
    """x, which the compiler then stores instead of computing it again in each operation that uses it."""
    return gen_xla_ops.xla_optimization_barrier([x])[0] if tf.inside_function() else x

"""Matrices in int8, with a scale for each output channel: x W is nearly (x Q) s.

With s_f = max_d |W_df| / 127 and Q = round(W / s), rounding changes a weight by at most s_f / 2. Since s Q has the same
scale as W, rounding it again changes nothing.

Shapes: matrices [D, F], from D inputs to F channels.
"""

from __future__ import annotations

import math

import tensorflow as tf

LARGEST = 127
"""The largest number in Q. -128 is not used, so that Q is symmetric."""


def quantized(matrix: tf.Tensor, inputs_axis: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """Q, int8 [D, F], and s, [F] in the dtype of the matrix; with inputs_axis 1 the matrix and Q are [F, D]."""
    largest = tf.reduce_max(tf.abs(matrix), axis=inputs_axis, keepdims=True)
    # In float64, which rounds to the same float32: in a graph TensorFlow would multiply by 1 / LARGEST instead.
    scale = tf.cast(tf.cast(largest, tf.float64) / LARGEST, largest.dtype)
    scale = tf.where(largest > 0, scale, tf.ones_like(scale))
    return tf.cast(tf.round(matrix / scale), tf.int8), tf.squeeze(scale, inputs_axis)


def round_variable(variable: tf.Variable, inputs: int) -> None:
    """Replaces a variable's weights W with s Q; its first `inputs` axes are the inputs, the others the channels."""
    weights = tf.convert_to_tensor(variable)
    matrix, scale = quantized(tf.reshape(weights, [math.prod(weights.shape[:inputs]), -1]))
    variable.assign(tf.reshape(tf.cast(matrix, scale.dtype) * scale, weights.shape))


def round_table(variable: tf.Variable) -> None:
    """The same for a table [F, D], whose rows are the channels."""
    matrix, scale = quantized(tf.convert_to_tensor(variable), inputs_axis=1)
    variable.assign(tf.cast(matrix, scale.dtype) * scale[:, None])

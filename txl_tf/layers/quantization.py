"""Matrices in int8, each output channel with a scale of its own: x W is nearly (x Q) s.

With s_f = max_d |W_df| / 127 and Q = round(W / s), a rounded weight differs by at most s_f / 2. Since s Q has the same
scale as W, rounding it again changes nothing.

Shapes: matrices [D, F], from D inputs to F channels.
"""

from __future__ import annotations

import math

import tensorflow as tf

LARGEST = 127
"""Of the numbers in Q: -128 is not used, so that Q is symmetric."""


def quantized(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Q, int8 [D, F], and s, [F] in the dtype of the matrix."""
    largest = tf.reduce_max(tf.abs(matrix), axis=0)
    scale = tf.where(largest > 0, largest / LARGEST, tf.ones_like(largest))
    return tf.cast(tf.round(matrix / scale), tf.int8), scale


def round_variable(variable: tf.Variable, inputs: int) -> None:
    """Replaces a variable's weights W with s Q.

    Args:
        variable: a tf.Variable or keras.Variable.
        inputs: how many of its first axes are the inputs; the others are the channels.
    """
    weights = tf.convert_to_tensor(variable)
    matrix, scale = quantized(tf.reshape(weights, [math.prod(weights.shape[:inputs]), -1]))
    variable.assign(tf.reshape(tf.cast(matrix, scale.dtype) * scale, weights.shape))

"""Layer norm."""

from __future__ import annotations

import keras
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.column_sums import scale_and_shift


@keras.saving.register_keras_serializable(package="txl_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer norm of the last axis, with the same weights; on a TPU with one pass over the input fewer.

    A row without variance becomes beta, and has the gradient 0: dropout of whole tokens makes rows of zeros, which stay
    zeros from layer to layer. Each norm would multiply their gradient by 1 / sqrt(epsilon), a million.

    On a CPU the gradients of gamma and beta are computed faster (`scale_and_shift`).

    On a TPU the variance is E[x^2] - E[x]^2, in float32 at least. Both sums are computed by the operation that makes x,
    while E[(x - E[x])^2] needs x once more. The relative error of the variance is about 1e-7 (1 + mean^2 / variance).
    Segments of at most 128 tokens are read as one list of rows: otherwise the compiler puts time innermost in memory,
    and the sums over D take it longer.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The normalised input, [.., D]."""
        accurate = tf.float64 if inputs.dtype == tf.float64 else tf.float32
        gamma, beta = tf.cast(self.gamma, accurate), tf.cast(self.beta, accurate)
        if not platform.on_tpu():
            x = tf.cast(inputs, accurate)
            mean, variance = keras.ops.moments(x, [-1], keepdims=True)
            scale = self._scale(variance)
            return tf.cast(scale_and_shift(x * scale - mean * scale, gamma, beta), self.compute_dtype)
        rows = inputs
        if inputs.shape[-2] is not None and inputs.shape[-2] <= platform.TPU_LANES:
            rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
        x = tf.cast(rows, accurate)
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.maximum(tf.reduce_mean(x * x, axis=-1, keepdims=True) - mean * mean, 0)
        scale = self._scale(variance) * gamma
        out = tf.cast(x * scale + (beta - mean * scale), self.compute_dtype)
        return tf.reshape(out, tf.shape(inputs))

    def _scale(self, variance: tf.Tensor) -> tf.Tensor:
        """1 / sqrt(variance + epsilon); 0 where there is no variance."""
        varies = variance > 0
        # The inner `where` is for an epsilon of 0: the gradient would be 0 times infinity.
        return tf.where(varies, tf.math.rsqrt(tf.where(varies, variance, 1) + self.epsilon), 0)

"""Layer norm."""

from __future__ import annotations

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.ops.plain import accurate_dtype


@keras.saving.register_keras_serializable(package="txl_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer norm of the last axis, with the same weights.

    A row without variance becomes beta, and has the gradient 0. Dropout of whole tokens makes rows of zeros, which stay
    zeros from layer to layer, and each norm would multiply their gradient by 1 / sqrt(epsilon), up to a million.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The normalised input, [.., D]."""
        accurate = accurate_dtype(inputs.dtype)
        gamma, beta = tf.cast(self.gamma, accurate), tf.cast(self.beta, accurate)
        return ops.layer_norm(inputs, gamma, beta, self.epsilon)

"""One trace for all layers, in generation: the first layer computes, with each layer's weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.models.given_weights import given_weights
from txl_tf.ops import KeyValueRing
from txl_tf.ops.gradients import without_custom_gradients
from txl_tf.ops.plain import Plain


class AlikeLayers:
    """The first layer computes, each time with another layer's weights (`given_weights`).

    The layers are built, with the same arguments.
    """

    def __init__(self, layers: Sequence[DecoderLayer]):
        self.layers = layers
        # Each by ops.implementation(), with which a trace computes.
        self._extend: dict[Plain, Callable[..., Any]] = {}

    def extend(self, i: int, hidden: tf.Tensor, **inputs: Any) -> tuple[tf.Tensor, KeyValueRing]:
        """Layer i's output [B, T, D], and its ring; arguments as for `DecoderLayer.extend`."""
        weights = [tf.convert_to_tensor(variable) for variable in _small_weights(self.layers[i])]
        key = ops.implementation()
        if key not in self._extend:
            # No gradient flows through a ring.
            self._extend[key] = tf.function(without_custom_gradients()(self.extend_with), autograph=False)
        return self._extend[key](weights, hidden, **inputs)

    def extend_with(self, weights: Sequence[tf.Tensor], hidden: tf.Tensor, **inputs: Any) -> tuple[tf.Tensor, Any]:
        """As `extend`, with a layer's slice of the weights from `stacked`."""
        with given_weights(zip(_small_weights(self.layers[0]), weights, strict=True)):
            return self.layers[0].extend(hidden, **inputs)

    def stacked(self) -> list[tf.Tensor]:
        """All weights but kernels, each for all N layers at once, [N, ..]."""
        alike = zip(*map(_small_weights, self.layers), strict=True)
        return [tf.stack([tf.convert_to_tensor(variable) for variable in variables]) for variables in alike]


def _small_weights(layer: DecoderLayer) -> list[keras.Variable]:
    """The weights that are neither in `kernels()` nor in projected positions: biases, and the layer norms' weights."""
    return [variable for variable in layer.variables if not variable.name.endswith("kernel")]

"""Generates with all layers through the first of them, so that their computation is traced once."""

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
from txl_tf.ops.stored import LayerSlice


class AlikeLayers:
    """The first layer computes, each time with another layer's weights (`given_weights`).

    The layers are built, with the same arguments.
    """

    def __init__(self, layers: Sequence[DecoderLayer]):
        self.layers = layers
        # Each by ops.implementation(), with which a trace computes.
        self._extend: dict[Plain, Callable[..., Any]] = {}

    def extend(
        self, i: int, hidden: tf.Tensor, positions: tf.Tensor | LayerSlice, **inputs: Any
    ) -> tuple[tf.Tensor, KeyValueRing]:
        """Layer i's output [B, T, D], and its ring; arguments as for `DecoderLayer.extend`."""
        # A tf.function takes tensors, and tuples of them.
        given = (positions.stored, positions.layer) if isinstance(positions, LayerSlice) else positions
        weights = [tf.convert_to_tensor(variable) for variable in _small_weights(self.layers[i])]
        key = ops.implementation()
        if key not in self._extend:
            self._extend[key] = tf.function(self._traced_extend, autograph=False)
        return self._extend[key](weights, hidden, given, **inputs)

    @without_custom_gradients()  # no gradient flows through a ring
    def _traced_extend(self, weights: list[tf.Tensor], hidden: tf.Tensor, given: Any, **inputs: Any) -> Any:
        positions = LayerSlice(*given) if isinstance(given, tuple) else given
        return self.extend_with(weights, hidden, positions=positions, **inputs)

    def extend_with(self, weights: Sequence[tf.Tensor], hidden: tf.Tensor, **inputs: Any) -> tuple[tf.Tensor, Any]:
        """As `extend`, with a layer's slice of the weights from `stacked`, and any kind of ring."""
        with given_weights(zip(_small_weights(self.layers[0]), weights, strict=True)):
            return self.layers[0].extend(hidden, **inputs)

    def stacked(self) -> list[tf.Tensor]:
        """All weights but kernels, each for all N layers at once, [N, ..]."""
        alike = zip(*map(_small_weights, self.layers), strict=True)
        return [tf.stack([tf.convert_to_tensor(variable) for variable in variables]) for variables in alike]


def _small_weights(layer: DecoderLayer) -> list[keras.Variable]:
    """The weights that are neither in `kernels()` nor in projected positions: biases, and the layer norms' weights."""
    return [variable for variable in layer.variables if not variable.name.endswith("kernel")]

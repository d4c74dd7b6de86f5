"""Layers of the same form, of which one reads in the place of all, so that what they compute is traced once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.given_weights import given_weights
from txl_tf.layers.key_value_ring import KeyValueRing
from txl_tf.layers.row_products import LayerSlice


class AlikeLayers:
    """Layers for inference: the first layer reads with rings, each time with another layer's weights.

    A layer's `kernels` are passed to each call; its other weights are given to the first layer (`given_weights`).
    Training traces every layer, since XLA cannot compile the gradient of a function that is traced once: constants of
    the function become arguments of the gradient.

    Args:
        layers: DecoderLayers with the same arguments, built.
    """

    def __init__(self, layers: Sequence[DecoderLayer]):
        self._layers = layers
        # One for each platform: a trace for a CPU would otherwise be used again for a TPU.
        self._traced_once = {on_tpu: tf.function(self._read, autograph=False) for on_tpu in (False, True)}

    def read(
        self, i: int, hidden: tf.Tensor, positions: tf.Tensor | LayerSlice, **inputs: Any
    ) -> tuple[tf.Tensor, KeyValueRing]:
        """Layer i's output [B, T, D], and its ring; arguments as for `DecoderLayer.call`."""
        # A tf.function takes tensors, and tuples of them.
        given = (positions.stored, positions.layer) if isinstance(positions, LayerSlice) else positions
        weights = [tf.convert_to_tensor(variable) for variable in _small_weights(self._layers[i])]
        return self._traced_once[platform.on_tpu()](weights, hidden, given, **inputs)

    def _read(self, weights: list[tf.Tensor], hidden: tf.Tensor, given: Any, **inputs: Any) -> Any:
        positions = LayerSlice(*given) if isinstance(given, tuple) else given
        return self.read_with(weights, hidden, positions=positions, **inputs)

    def read_with(self, weights: Sequence[tf.Tensor], hidden: tf.Tensor, **inputs: Any) -> tuple[tf.Tensor, Any]:
        """As `read`, with a layer's part of what `stacked` returns, and any kind of ring."""
        with given_weights(zip(_small_weights(self._layers[0]), weights, strict=True)):
            return self._layers[0](hidden, **inputs)

    def stacked(self) -> list[tf.Tensor]:
        """For each weight that is no kernel, those of all N layers, [N, ..]."""
        alike = zip(*map(_small_weights, self._layers), strict=True)
        return [tf.stack([tf.convert_to_tensor(variable) for variable in variables]) for variables in alike]


def _small_weights(layer: DecoderLayer) -> list[keras.Variable]:
    """Those that are in neither `kernels()` nor projected positions: biases, and the layer norms' weights."""
    return [variable for variable in layer.variables if not variable.name.endswith("kernel")]

"""Layers of the same form, of which one reads in the place of all, so that what they compute is traced once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.hashing import numbered_seeds, split_seed
from txl_tf.layers import platform
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.given_weights import given_weights
from txl_tf.layers.key_value_ring import KeyValueRing
from txl_tf.layers.memory_attention import Biases
from txl_tf.layers.row_products import LayerSlice
from txl_tf.models.traced_gradient import Differentiable, traced_with_gradient


class AlikeLayers:
    """The first layer reads, each time with another layer's weights (`given_weights`).

    For inference, where it reads with rings, a layer's `kernels` are passed to each call.

    Args:
        layers: DecoderLayers with the same arguments, built.
    """

    def __init__(self, layers: Sequence[DecoderLayer]):
        self._layers = layers
        # One for each platform: a trace for a CPU would otherwise be used again for a TPU.
        self._traced_once = {on_tpu: tf.function(self._read, autograph=False) for on_tpu in (False, True)}
        self._trained: dict[str, Differentiable] = {}

    def train(
        self, i: int, hidden: tf.Tensor, mems: tf.Tensor, biases: Biases | None = None, **inputs: Any
    ) -> tf.Tensor:
        """Layer i's output [B, T, D] in training; arguments as for `DecoderLayer.call`.

        Only hidden, the weights and the biases have a gradient.
        """
        layer = self._layers[i]
        if not platform.on_cpu() or tf.executing_eagerly():
            return layer(hidden, mems, biases=biases, **inputs)
        wanted = tf.nest.map_structure(tf.convert_to_tensor, (hidden, layer.variables, biases or ()))
        given = [*_tensors(wanted), *_tensors((mems, inputs))]
        form = repr(tf.nest.map_structure(_form, (wanted, mems, inputs)))
        if form not in self._trained:
            sizes = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
            count = len(_tensors(wanted))
            read = functools.partial(self._read_first, (wanted, (mems, inputs)))
            self._trained[form] = traced_with_gradient(read, sizes[:count], sizes[count:])
        return self._trained[form](*given)

    def _read_first(self, nest: Any, *given: tf.Tensor) -> tf.Tensor:
        """The first layer's output, where the given tensors take the places of those in the nest of `train`'s arguments."""
        tensors = iter(given)
        filled = tf.nest.map_structure(lambda leaf: next(tensors) if tf.is_tensor(leaf) else leaf, nest)
        (hidden, weights, biases), (mems, inputs) = filled
        with given_weights(zip(self._layers[0].variables, weights, strict=True)):
            return self._layers[0](hidden, mems, biases=biases, **inputs)

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


def _tensors(nest: Any) -> list[tf.Tensor]:
    """The tensors among a nest's leaves."""
    return [leaf for leaf in tf.nest.flatten(nest) if tf.is_tensor(leaf)]


def _form(leaf: Any) -> Any:
    """What a trace depends on: a tensor's shape and dtype, or the value of what is no tensor."""
    return tf.TensorSpec(leaf.shape, leaf.dtype) if tf.is_tensor(leaf) else leaf


def alike_seeds(seed: tf.Tensor | None, count: int) -> list[tf.Tensor | None]:
    """As `split_seed`, for layers that compute alike.

    On a CPU the seeds' numbers are inputs of the program. As constants they would become part of the layers' operations,
    which XLA would then compile for each layer instead of once.
    """
    if seed is None or not platform.on_cpu():
        return split_seed(seed, count)
    with tf.init_scope():
        numbers = [tf.constant(i) for i in range(count)]
    return [numbered_seeds(seed, number) for number in numbers]


def _small_weights(layer: DecoderLayer) -> list[keras.Variable]:
    """Those that are in neither `kernels()` nor projected positions: biases, and the layer norms' weights."""
    return [variable for variable in layer.variables if not variable.name.endswith("kernel")]

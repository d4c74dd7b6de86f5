"""Runs all layers of the same form through one of them, so that their computation is traced once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.memory_attention import Biases
from txl_tf.models.given_weights import given_weights
from txl_tf.models.traced_gradient import as_call, traced_with_gradient
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
        self._by_form: dict[tuple, Callable[..., tf.Tensor]] = {}

    def run(
        self,
        i: int,
        hidden: tf.Tensor,
        mems: tf.Tensor,
        biases: Biases | None = None,
        training: bool = False,
        **inputs: Any,
    ) -> tf.Tensor:
        """Layer i's output [B, T, D]. Only hidden, the weights and the biases have a gradient."""
        wanted = tf.nest.map_structure(tf.convert_to_tensor, (hidden, self.layers[i].variables, biases or ()))
        sources, others = _tensors(wanted), _tensors((mems, inputs))
        form = tf.nest.map_structure(_form, (wanted, (mems, inputs)))
        key = (ops.implementation(), repr((training, form)))
        if key not in self._by_form:
            read = functools.partial(self._read_given, form, training)
            specs = [_form(tensor) for tensor in sources], [_form(tensor) for tensor in others]
            self._by_form[key] = traced_with_gradient(read, *specs) if training else as_call(read)
        return self._by_form[key](*sources, *others)

    def _read_given(self, form: Any, training: bool, *given: tf.Tensor) -> tf.Tensor:
        """The first layer's output for a nest of this form; given: its tensors, where the form has their specs."""
        tensors = iter(given)
        filled = tf.nest.map_structure(lambda leaf: next(tensors) if isinstance(leaf, tf.TensorSpec) else leaf, form)
        (hidden, weights, biases), (mems, inputs) = filled
        with given_weights(zip(self.layers[0].variables, weights, strict=True)):
            return self.layers[0](hidden, mems, biases=biases, training=training, **inputs)

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


def _tensors(nest: Any) -> list[tf.Tensor]:
    """The tensors among a nest's leaves."""
    return [leaf for leaf in tf.nest.flatten(nest) if tf.is_tensor(leaf)]


def _form(leaf: Any) -> Any:
    """The part of an input that a trace depends on: a tensor's shape and dtype, or any other value itself."""
    return tf.TensorSpec(leaf.shape, leaf.dtype) if tf.is_tensor(leaf) else leaf


def _small_weights(layer: DecoderLayer) -> list[keras.Variable]:
    """The weights that are neither in `kernels()` nor in projected positions: biases, and the layer norms' weights."""
    return [variable for variable in layer.variables if not variable.name.endswith("kernel")]

"""The one loop over a model's layers: for training, evaluation with mems, the cache of inference and attention maps.

The memory, and functions that inspect activations and attention, are passed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.given_weights import recomputed
from txl_tf.layers.key_value_ring import KeyValueRing
from txl_tf.layers.memory_attention import Kernels
from txl_tf.models.alike_layers import AlikeLayers
from txl_tf.models.memory import shift_in

Watch = Callable[[str, tf.Tensor], None]
"""A function that is called with the name and value of each activation: watch("layer_3", hidden)."""

Look = Callable[[int, tf.Tensor], None]
"""A function that is called with each layer's number and attention probabilities [B, H, T, K]."""


class Memory(Protocol):
    """The layers' memory of earlier segments, and how a layer reads a segment with it."""

    def remember(self, i: int, hidden: tf.Tensor) -> None:
        """Adds the input of layer i, [B, T, D], to the memory; called before the layer."""

    def read(self, i: int, layer: DecoderLayer, hidden: tf.Tensor, **inputs: Any) -> tf.Tensor:
        """Layer i's output for `hidden`."""


class HiddenMemory:
    """Memory as hidden states; `new` holds those after the segment.

    Args:
        old: the states of each layer before the segment, N tensors [B, M, D].
        remembered: how many positions of the segment, from the first on, are remembered; None: all.
    """

    def __init__(self, old: Sequence[tf.Tensor], remembered: int | None = None):
        self.old = old
        self.remembered = remembered
        self.new: list[tf.Tensor] = []

    def remember(self, i: int, hidden: tf.Tensor) -> None:
        """See Memory."""
        self.new.append(shift_in(self.old[i], hidden[:, : self.remembered]))

    def read(self, i: int, layer: DecoderLayer, hidden: tf.Tensor, **inputs: Any) -> tf.Tensor:
        """See Memory."""
        return layer(hidden, self.old[i], **inputs)


class RingMemory:
    """Memory as rings of projected keys and values, for inference; `new` holds those after the segment.

    Args:
        layers: the AlikeLayers of the stack.
        old: each layer's KeyValueRing before the segment.
        kernels: each layer's `kernels`.
        block: as for `MemoryAttention.extend`.
    """

    def __init__(
        self,
        layers: AlikeLayers,
        old: Sequence[KeyValueRing],
        kernels: Sequence[tuple[Kernels, ...]],
        block: int = 1,
    ):
        self.layers = layers
        self.old = old
        self.kernels = kernels
        self.block = block
        self.new: list[KeyValueRing] = []

    def remember(self, i: int, hidden: tf.Tensor) -> None:
        """Does nothing: the layer writes the ring."""

    def read(self, i: int, layer: DecoderLayer, hidden: tf.Tensor, **inputs: Any) -> tf.Tensor:
        """See Memory."""
        output, ring = self.layers.read(
            i, hidden, ring=self.old[i], kernels=self.kernels[i], block=self.block, **inputs
        )
        self.new.append(ring)
        return output


def run_stack(
    layers: Sequence[DecoderLayer],
    hidden: tf.Tensor,
    memory: Memory,
    *,
    positions: Sequence[tf.Tensor | None],
    seeds: Sequence[tf.Tensor | None] | None = None,
    remat: bool = False,
    watch: Watch | None = None,
    look: Look | None = None,
    **inputs: Any,
) -> tf.Tensor:
    """Reads a segment, layer after layer.

    Args:
        layers: N of them.
        hidden: the embedded segment [B, T, D].
        memory: the Memory of earlier segments; this segment is added to it.
        positions: for each layer, the `positions` of its attention.
        seeds: for each layer, as for `dropout`; None: no seeds.
        remat: keep only each layer's input for the backward pass and compute the rest again.
        watch: called with every layer's output.
        look: called with every layer's attention probabilities.
        inputs: further arguments for all layers.

    Returns:
        the last layer's output [B, T, D].
    """
    for i, layer in enumerate(layers):
        memory.remember(i, hidden)
        own = {"positions": positions[i]}
        if seeds is not None:
            own["seed"] = seeds[i]
        if look is not None:
            own["look"] = functools.partial(look, i)
        read: Callable[[tf.Tensor], tf.Tensor] = functools.partial(memory.read, i, layer, **own, **inputs)
        hidden = recomputed(read, layer, hidden) if remat else read(hidden)
        if watch is not None:
            watch(layer.name, hidden)
    return hidden

"""The loop over a model's layers: through a segment with memory, and through rings for inference.

For a few texts on a CPU, generation uses another loop, which XLA compiles (transformer_xl/token_readers.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.models.alike_layers import AlikeLayers
from txl_tf.models.given_weights import recomputed
from txl_tf.models.memory import shift_in
from txl_tf.ops import KeyValueRing

Watch = Callable[[str, tf.Tensor], None]
"""A function that is called with the name and value of each activation: watch("layer_3", hidden)."""

Look = Callable[[int, tf.Tensor], None]
"""A function that is called with each layer's number and attention probabilities [B, H, T, K]."""


Run = Callable[..., tf.Tensor]
"""How a layer is run: run(i, hidden, mems, **inputs) is layer i's output [B, T, D]; inputs: as for `DecoderLayer`."""


def way_to_run(layers: AlikeLayers, remat: bool = False, look: Look | None = None) -> Run:
    """The Run for the program that is being traced.

    Args:
        layers: the model's.
        remat: keep only each layer's input for the backward pass and compute the rest again.
        look: as for `read_segment`; it needs a trace of every layer.
    """

    def run_plainly(i: int, hidden: tf.Tensor, mems: tf.Tensor, **inputs: Any) -> tf.Tensor:
        return layers.layers[i](hidden, mems, **inputs)

    def run_recomputed(i: int, hidden: tf.Tensor, mems: tf.Tensor, **inputs: Any) -> tf.Tensor:
        return recomputed(lambda hidden: run_plainly(i, hidden, mems, **inputs), layers.layers[i], hidden)

    if remat:
        return run_recomputed
    traced_once = ops.on_host() and look is None and not tf.executing_eagerly()
    return layers.run if traced_once else run_plainly


def read_segment(
    layers: Sequence[DecoderLayer],
    hidden: tf.Tensor,
    mems: Sequence[tf.Tensor],
    run: Run,
    *,
    positions: Sequence[Any],
    seeds: Sequence[tf.Tensor | None],
    remembered: int | tf.Tensor | None = None,
    watch: Watch | None = None,
    look: Look | None = None,
    **inputs: Any,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """The last layer's output [B, T, D] for a segment with memory, and N new states.

    Args:
        layers: N of them.
        hidden: the embedded segment [B, T, D].
        mems: N states [B, M, D].
        run: how a layer is run, from `way_to_run`.
        positions, seeds: for each layer, the `positions` of its attention, and its seed as for `dropout`.
        remembered: as for `shift_in`.
        watch: called with every layer's output.
        look: called with every layer's attention probabilities.
        inputs: further arguments for all layers.
    """
    new_mems = []
    for i, layer in enumerate(layers):
        new_mems.append(shift_in(mems[i], hidden, remembered))
        own = {"positions": positions[i], "seed": seeds[i]}
        if look is not None:
            own["look"] = functools.partial(look, i)
        hidden = run(i, hidden, mems[i], **own, **inputs)
        if watch is not None:
            watch(layer.name, hidden)
    return hidden, tuple(new_mems)


def extend_rings(
    layers: AlikeLayers,
    hidden: tf.Tensor,
    rings: Sequence[KeyValueRing],
    *,
    positions: Sequence[Any],
    kernels: Sequence[tuple],
    **inputs: Any,
) -> tuple[tf.Tensor, list[KeyValueRing]]:
    """As `read_segment`, with each layer's ring, positions and kernels; inputs: as for `DecoderLayer.extend`."""
    new_rings = []
    for i, ring in enumerate(rings):
        hidden, ring = layers.extend(i, hidden, ring=ring, positions=positions[i], kernels=kernels[i], **inputs)
        new_rings.append(ring)
    return hidden, new_rings

"""The operations on a GPU, as an H100 has run them."""

from __future__ import annotations

import functools

import tensorflow as tf

from txl_tf.ops import rings
from txl_tf.ops.attention import Attention
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import TILE, Drop

ROWS = 4 * TILE
"""Queries of a block: small blocks are too little work for a GPU."""


class Gpu(Attention):
    """For a GPU; only_compiled: as in `platform.Program`."""

    def __init__(self, only_compiled: bool):
        self.only_compiled = only_compiled

    def block_rows(self, drop: Drop) -> int:
        """A tile if dropout draws masks, since each tile has its own; otherwise ROWS."""
        return TILE if drop.rate else ROWS

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        """Writes a single token in place, since a scatter is slower."""
        if self.only_compiled and key.shape[2] == 1:
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=ring.start))
        return super().write(ring, key, value, block)

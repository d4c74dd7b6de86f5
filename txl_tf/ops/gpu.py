"""The operations on a GPU."""

from __future__ import annotations

import functools

import tensorflow as tf

from txl_tf.ops import rings
from txl_tf.ops.blocks import Blocked
from txl_tf.ops.drop_masks import TILE
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import Drop, Scores

ROWS = 4 * TILE
"""Queries of a block: small blocks are too little work for a GPU."""


class Gpu(Blocked):
    """For a GPU; only_compiled: as in `platform.Program`."""

    def __init__(self, only_compiled: bool):
        self.only_compiled = only_compiled

    def block_rows(self, scores: Scores, drop: Drop) -> int:
        """A tile where dropout masks are drawn, since each tile has its own, and where `first_part` saves work."""
        return TILE if drop.rate or scores.first_part else ROWS

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        """A single token in place: with a scatter a token of one text takes a third more time."""
        if self.only_compiled and key.shape[2] == 1:
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=ring.start))
        return super().write(ring, key, value, block)

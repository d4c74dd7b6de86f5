"""The operations on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops import rings
from txl_tf.ops.blocks import Blocked
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import TILE, Drop, Scores

ROWS = 4 * TILE
"""Queries of a block: small blocks are too little work for a GPU."""


class Gpu(Blocked):
    """For a GPU; only_compiled: as in `platform.Program`."""

    def __init__(self, only_compiled: bool):
        self.only_compiled = only_compiled

    def block_rows(self, scores: Scores, drop: Drop) -> int:
        """A tile if dropout draws masks, since each tile has its own, or if `first_part` saves work; otherwise ROWS."""
        return TILE if drop.rate or scores.first_part else ROWS

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        """Writes a single token in place, since a scatter is slower."""
        if self.only_compiled and key.shape[2] == 1:
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=ring.start))
        return super().write(ring, key, value, block)

    def halved_squares(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """One sum for all tensors of a shape, since each sum is a kernel or two, and weights are many."""
        if not self.only_compiled:
            return super().halved_squares(tensors)
        places: dict[tuple[int, ...], list[int]] = {}
        for i, tensor in enumerate(tensors):
            places.setdefault(tuple(tensor.shape), []).append(i)
        rows = [tf.stack([tf.reshape(tensors[i], [-1]) for i in alike]) for alike in places.values()]
        numbers = tf.concat([tf.reduce_sum(tf.square(each), axis=1) / 2 for each in rows], axis=0)
        return tf.gather(numbers, np.argsort(np.concatenate(list(places.values()))))

    def shared(self, scalars: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """From a vector that XLA must compute first.

        XLA puts the updates of weights of one shape into one kernel if they read the same array, but not if they share
        only scalars.
        """
        if not self.only_compiled:
            return super().shared(scalars)
        (vector,) = gen_xla_ops.xla_optimization_barrier([tf.stack(scalars)])
        return tf.unstack(vector)

"""The operations as plain formulas: what every implementation computes, up to rounding.

Each method is an operation of `txl_tf.ops`, which documents arguments and shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.ops import rings
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import MASKED, NO_DROP, TILE, Cluster, Drop, Scores, tile_mask
from txl_tf.ops.shift import columns_from, relative_shift


class Plain:
    """The formulas.

    Attributes:
        row_multiple: the number of rows of a lane should be a multiple of it.
    """

    row_multiple = 1

    def dot(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        return tf.tensordot(x, tf.cast(matrix, x.dtype), 1)

    def dense(self, x: tf.Tensor, matrix: Any, bias: tf.Tensor) -> tf.Tensor:
        return self.dot(x, matrix) + tf.cast(bias, x.dtype)

    def cluster_logits(self, hidden: tf.Tensor, cluster: Cluster) -> tf.Tensor:
        embedded = hidden if cluster.projection is None else self.dot_rows(hidden, cluster.projection)
        return self.logits(embedded, cluster.table, cluster.bias)

    def cluster_nll(self, hidden: tf.Tensor, labels: tf.Tensor, cluster: Cluster) -> tuple[tf.Tensor, tf.Tensor]:
        logits = self.cluster_logits(hidden, cluster)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return hidden, tf.where(labels >= 0, nll, 0)

    def logits(self, x: tf.Tensor, table: Any, bias: tf.Tensor) -> tf.Tensor:
        """x [.., E] with a table [S, E] and bias [S]: [.., S], in float32 at least."""
        logits = self.dot_rows(x, table)
        accurate = accurate_dtype(logits.dtype)
        return tf.cast(logits, accurate) + tf.cast(bias, accurate)

    def dot_rows(self, x: tf.Tensor, rows: Any) -> tf.Tensor:
        """x [.., E] times the transposed rows [S, E]: [.., S]."""
        return tf.matmul(x, tf.cast(rows, x.dtype), transpose_b=True)

    def heads(self, x: tf.Tensor, matrix: Any, n_head: int, memory: tf.Tensor | None = None) -> tf.Tensor:
        return self.split_heads(self.dot(x if memory is None else tf.concat([memory, x], axis=1), matrix), n_head)

    def split_heads(self, merged: tf.Tensor, n_head: int) -> tf.Tensor:
        """[B, K, H d] -> [B, H, K, d]."""
        _, length, width = merged.shape
        return tf.transpose(tf.reshape(merged, [-1, length, n_head, width // n_head]), [0, 2, 1, 3])

    def rows_by_head(self, rows: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        return tf.einsum("kD,Dhd->hkd", rows, weight)

    def positions(
        self, rows: tf.Tensor | Sequence[tf.Tensor], query: tf.Tensor, training: bool, backward: tf.Tensor | None
    ) -> tf.Tensor:
        if backward is None:
            return rows
        sine, cosine = rows
        return tf.where(backward[:, None, None, None], cosine - sine, cosine + sine)

    def attend(self, scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop) -> tf.Tensor:
        score = tf.cast(self.scores(scores), accurate_dtype(value.dtype))
        kept = probability_mask(scores, drop) if drop.rate else None
        return self.weighted(score + added(mask, scores.absent, score.dtype), value, drop.rate, kept)

    def attend_ring(self, scores: Scores, value: Any, mask: tf.Tensor, oldest: tf.Tensor) -> tf.Tensor:
        key, value = (tf.roll(x, -oldest, axis=2) for x in (scores.key, value))
        return self.attend(dataclasses.replace(scores, key=key), value, mask, NO_DROP)

    def weighted(self, score: tf.Tensor, value: tf.Tensor, rate: float, kept: tf.Tensor | None) -> tf.Tensor:
        """softmax(score), zero where it is not kept, times value: [B, H, T, d]."""
        probabilities = tf.nn.softmax(score)
        if kept is not None:
            probabilities = tf.where(kept, probabilities / (1 - rate), tf.zeros([], score.dtype))
        return tf.matmul(tf.cast(probabilities, value.dtype), value)

    def scores(self, scores: Scores) -> tf.Tensor:
        """[B, H, T, K]: the sum of the terms."""
        k_len = scores.key.shape[2]
        score = tf.matmul(scores.query, scores.key, transpose_b=True)
        if scores.position is not None:
            by_distance = tf.matmul(scores.position_query, scores.position, transpose_b=True)
            if scores.places is None:
                score += self.shift(by_distance, k_len)
            else:
                score += columns_from(by_distance, scores.position.shape[-2] - k_len - scores.places, k_len)
        return score

    def shift(self, scores: tf.Tensor, k_len: int) -> tf.Tensor:
        """`relative_shift`."""
        return relative_shift(scores, k_len)

    def layer_norm(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
        wide = tf.cast(x, accurate_dtype(x.dtype))
        mean, variance = keras.ops.moments(wide, [-1], keepdims=True)
        return tf.cast((wide - mean) * inverse_deviation(variance, epsilon) * gamma + beta, x.dtype)

    def lookup(self, table: tf.Tensor, rows: tf.Tensor, dtype: str, own: tf.Tensor | None) -> tf.Tensor:
        out = tf.cast(tf.gather(table, rows if own is None else tf.where(own, rows, 0)), dtype)
        return out if own is None else tf.where(own[..., None], out, tf.zeros_like(out))

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        return rings.written(ring, key, value, rings.scatter(ring, key.shape[2], block))

    def halved_squares(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.stack([tf.nn.l2_loss(tensor) for tensor in tensors])


def added(mask: tf.Tensor, absent: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    """The tensor to add to scores [B, H, T, K] so that the softmax omits masked keys, and `absent` ones in any case.

    A masked score rounds to its mask alone, so a query that sees no key attends to all of them alike.
    """
    hide = tf.where(mask, tf.zeros([], dtype), tf.constant(MASKED, dtype))
    return hide if absent is None else tf.where(absent[:, None, None], tf.constant(2 * MASKED, dtype), hide)


def probability_mask(scores: Scores, drop: Drop) -> tf.Tensor:
    """The dropout mask of all attention probabilities: bool [B, H, T, K]; keys that cannot be seen are kept."""
    batch, heads, *_ = tf.unstack(tf.shape(scores.query))
    k_len = scores.key.shape[2]
    tiles = []
    for first, last, seen in scores.blocks(TILE):
        tile = tile_mask(scores, drop, first, tf.stack([batch, heads, last - first, seen]))
        tiles.append(tf.pad(tile, [[0, 0]] * 3 + [[0, k_len - seen]], constant_values=True))
    return tf.concat(tiles, axis=2)


def accurate_dtype(dtype: tf.DType | str) -> tf.DType:
    """float32 at least."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def inverse_deviation(variance: tf.Tensor, epsilon: float) -> tf.Tensor:
    """1 / sqrt(variance + epsilon); 0 where there is no variance."""
    varies = variance > 0
    # The inner `where` is for an epsilon of 0: the gradient would be 0 times infinity.
    return tf.where(varies, tf.math.rsqrt(tf.where(varies, variance, 1) + epsilon), 0)

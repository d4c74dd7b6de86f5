"""Attention over blocks of queries, whose scores are never all in memory, with gradients that read the exponentials.

CPUs and GPUs share it, and the softmax also a TPU. Shapes: B batch, H heads, T queries, K keys, d = d_head.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.ops import chunked_nll
from txl_tf.ops.gradients import ATTENTION, WithGradient, custom_gradient
from txl_tf.ops.plain import Plain, accurate_dtype, added, inverse_deviation
from txl_tf.ops.scores import NO_DROP, TILE, Block, Cluster, Drop, Scores, cut, tile_mask
from txl_tf.ops.shift import columns_from


class Attention(Plain):
    """What CPUs, GPUs and TPUs share. For attention a device may override five things:

    `block_rows`, `matmul`, `sums_over_queries`, `shift` and `exponentials`.
    """

    def attend(self, scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop) -> tf.Tensor:
        outputs = []
        for block in scores.blocks(self.block_rows(drop)):
            score = self.products(block.queries(scores.query), block.keys(scores.key))  # (a) + (c)
            if scores.position is not None:
                score += self.position_scores(scores, block)  # (b) + (d)
            absent = None if scores.absent is None else scores.absent[:, : block.seen]
            hide = added(block.mask(mask), absent, accurate_dtype(score.dtype))
            keep = functools.partial(tile_mask, scores, drop, block.first) if drop.rate else None
            outputs.append(self.weighted_values(score, block.keys(value), hide, drop.rate, keep))
        return tf.concat(outputs, axis=2)

    def attend_ring(self, scores: Scores, value: Any, mask: tf.Tensor, oldest: tf.Tensor) -> tf.Tensor:
        t_len, mask = scores.query.shape[2], tf.roll(mask, oldest, axis=-1)
        scores = dataclasses.replace(scores, causal=False)
        if t_len > 1:
            scores = dataclasses.replace(scores, position=in_ring(scores.position, oldest, t_len - 1))
            return Attention.attend(self, scores, value, mask, NO_DROP)
        (block,) = scores.blocks(1)
        score = self.products(scores.query, scores.key)
        score += tf.roll(self.position_scores(scores, block), oldest, axis=-1)  # shorter than the positions
        return self.weighted_values(score, value, added(mask, None, accurate_dtype(score.dtype)))

    def block_rows(self, drop: Drop) -> int:
        """How many queries a block has."""
        return TILE

    def matmul(self, x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False, wide: bool = True) -> tf.Tensor:
        """Products of matrices [B, H, ..] and [B, H, ..]; with transpose_b also [H, ..], which all texts share.

        wide: whether the result is in float32 at least; for a TPU.
        """
        if y.shape.rank == 3:
            return tf.einsum("bhtd,hkd->bhtk", x, y)
        return tf.matmul(x, y, transpose_b=transpose_b)

    def sums_over_queries(self, weight: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """For each key the sum of x [B, H, T, d], times its weights [B, H, T, K]: [B, H, K, d]."""
        return tf.matmul(weight, x, transpose_a=True)

    def products(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Products of all queries [B, H, T, d] and keys, [B, H, K, d] or [H, K, d]: [B, H, T, K]."""
        if key.shape.rank == 3:
            return self.matmul(query, key, transpose_b=True)

        @custom_gradient
        def run(query: tf.Tensor, key: tf.Tensor) -> WithGradient:
            def gradient(d_score: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return self.matmul(d_score, key), self.sums_over_queries(d_score, query)

            return self.matmul(query, key, transpose_b=True), gradient

        return run(query, key)

    def position_scores(self, scores: Scores, block: Block) -> tf.Tensor:
        """A block's products with positions, by key. Those that would need rows after the last are undefined."""
        position: Any = scores.position
        t_len = scores.query.shape[2]
        first = 0 if scores.places is not None else t_len - block.last
        position = cut(position, -2, first, position.shape[-2])
        by_distance = self.products(block.queries(scores.position_query), position)
        if scores.places is None:
            return self.shift(by_distance, block.seen)
        places = scores.places[:, block.first : block.last]
        return columns_from(by_distance, position.shape[-2] - block.seen - places, block.seen)

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
        """e^x of x = score + hide - the row's maximum, [B, H, T, K], their sums, and what the gradient reads of e^x.

        The sums, [B, H, T, 1] or a scalar, are in the dtype of `hide`. dtype: of the values.
        """
        masked = tf.cast(score, hide.dtype) + hide
        weight = tf.exp(masked - tf.reduce_max(masked, axis=-1, keepdims=True))
        narrow = tf.cast(weight, score.dtype)
        return narrow, tf.reduce_sum(weight, axis=-1, keepdims=True), narrow

    def weighted_values(
        self,
        score: tf.Tensor,
        value: tf.Tensor,
        hide: tf.Tensor,
        rate: float = 0.0,
        keep: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """softmax(score + hide), with dropout, times value: [B, H, T, d]; softmax in float32 at least.

        With e = exp(score - max) of a row, Z the sum of e and m the dropout mask, the result is
        (m e) . value / ((1 - rate) Z). The division comes last, where there are fewer numbers. The only tensor
        [B, H, T, K] that is kept for the gradient is e. m is computed again.

        score: [B, H, T, K]; value: [B, H, K, d]; hide: from `added`; keep: a function of the score's shape, which
        returns m.
        """
        accurate = accurate_dtype(score.dtype)
        if score.dtype == tf.float16:  # in which a sum of exponentials times values may overflow, before it is divided
            masked = tf.cast(score, accurate) + hide
            return self.weighted(masked, value, rate, keep(tf.shape(score)) if keep else None)

        @custom_gradient
        def run(score: tf.Tensor, value: tf.Tensor) -> WithGradient:
            weight, total, saved = self.exponentials(score, hide, value.dtype)
            scale = 1 / ((1 - rate) * total)
            kept = keep(tf.shape(weight)) if keep else None

            def dropped(x: tf.Tensor) -> tf.Tensor:
                return x if kept is None else tf.where(kept, x, tf.zeros([], x.dtype))

            wide = score.dtype != tf.bfloat16
            output = self.matmul(tf.cast(dropped(weight), value.dtype), value, wide=wide)
            output = tf.cast(tf.cast(output, accurate) * scale, value.dtype)

            def gradient(d_output: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                with tf.name_scope(ATTENTION):
                    d_scaled = tf.cast(d_output, accurate) * scale
                    d_sum = (1 - rate) * tf.reduce_sum(d_scaled * tf.cast(output, accurate), axis=-1, keepdims=True)
                    d_scaled = tf.cast(d_scaled, value.dtype)
                    d_weight = dropped(self.matmul(d_scaled, value, transpose_b=True, wide=wide))
                    d_score = tf.cast(saved, accurate) * (tf.cast(d_weight, accurate) - d_sum)
                    d_value = self.sums_over_queries(tf.cast(dropped(saved), value.dtype), d_scaled)
                    return tf.cast(d_score, score.dtype), d_value

            return output, gradient

        return run(score, value)

    def heads(self, x: tf.Tensor, matrix: Any, n_head: int, memory: tf.Tensor | None = None) -> tf.Tensor:
        """With a memory: the same gradient as TensorFlow's, with one matmul for the matrix instead of two.

        Memory and segment have a matmul each, so that compilers remove the memory's if it is not used.
        """
        if memory is None:
            return super().heads(x, matrix, n_head)

        @custom_gradient
        def run(memory: tf.Tensor, x: tf.Tensor, matrix: tf.Tensor) -> WithGradient:
            def gradient(d_heads: tf.Tensor) -> tuple[tf.Tensor, ...]:
                with tf.name_scope(ATTENTION):
                    lengths = [memory.shape[1], x.shape[1]]
                    return *self.context_gradients(d_heads, matrix, lengths), self.sum_over_context(
                        (memory, x), d_heads
                    )

            return self.split_heads(self.dot(tf.concat([memory, x], axis=1), matrix), n_head), gradient

        return run(memory, x, matrix)

    def context_gradients(self, d_heads: tf.Tensor, matrix: tf.Tensor, lengths: list[int]) -> list[tf.Tensor]:
        """The gradients of memory and segment, of these lengths."""
        return [self.dot_columns(merge_heads(part), matrix) for part in tf.split(d_heads, lengths, axis=2)]

    def dot_columns(self, x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        """x [B, K, F] times the transposed matrix [D, F]: [B, K, D]."""
        return tf.einsum("bkn,Dn->bkD", x, matrix)

    def sum_over_context(self, context: Sequence[tf.Tensor], d_heads: tf.Tensor) -> tf.Tensor:
        """The gradient [D, H d] of a matrix of keys or values, from memory and segment and that of the heads."""
        return self.sum_over_rows(tf.concat(context, axis=1), merge_heads(d_heads))

    def sum_over_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """The sum of the products of x [B, K, D] and y [B, K, F] over all rows: [D, F]."""
        return tf.einsum("bkD,bkn->Dn", x, y)

    def positions(self, rows: Any, query: tf.Tensor, training: bool, backward: tf.Tensor | None) -> tf.Tensor:
        """In training with a copy for each lane of the query: [B, H, C, d].

        With one product for all lanes XLA would copy the scores' gradient, transposed. Without a gradient such copies
        of the positions would only cost time.
        """
        position = super().positions(rows, query, training, backward)
        if position is None or position.shape.rank != 3 or not training:
            return position
        return tf.broadcast_to(position, tf.concat([tf.shape(query)[:1], tf.shape(position)], 0))

    def cluster_nll(self, hidden: tf.Tensor, labels: tf.Tensor, cluster: Cluster) -> tuple[tf.Tensor, tf.Tensor]:
        return chunked_nll.cluster_nll(self, hidden, labels, cluster)

    def layer_norm(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
        wide = tf.cast(x, accurate_dtype(x.dtype))
        mean, variance = keras.ops.moments(wide, [-1], keepdims=True)
        scale = inverse_deviation(variance, epsilon)
        normal = wide * scale - mean * scale
        return tf.cast(normal * self.for_rows(gamma, wide) + self.for_rows(beta, wide), x.dtype)

    def for_rows(self, vector: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """A vector [D] that is added to all rows of x [.., D], or multiplied with them."""
        return vector


def merge_heads(heads: tf.Tensor) -> tf.Tensor:
    """[B, H, K, d] -> [B, K, H d]."""
    _, n_head, length, d_head = heads.shape
    return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, length, n_head * d_head])


def in_ring(position: tf.Tensor, oldest: tf.Tensor, extra: int) -> tf.Tensor:
    """Positions [H, C, d] in the order of a ring's slots, the oldest key in slot `oldest`; then its first rows.

    Two copies are rolled together, which is one pass for XLA; to roll one and concatenate is three.
    """
    return tf.roll(tf.concat([position, position], axis=1), oldest, axis=1)[:, : position.shape[1] + extra]

"""Attention in blocks of queries, whose scores are never all in memory, with gradients that read the exponentials.

The implementations for CPUs, GPUs and TPUs share it. Shapes: B batch, H heads, T queries, K keys, d = d_head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.ops import chunked_nll
from txl_tf.ops.gradients import ATTENTION, WithGradient, custom_gradient
from txl_tf.ops.plain import Plain, accurate_dtype, added, inverse_deviation
from txl_tf.ops.scores import TILE, Cluster, Drop, Scores, tile_mask
from txl_tf.ops.shift import columns_from


class Blocked(Plain):
    """Blocks of queries; a block skips the keys that lie in the future of all its queries."""

    def attend(self, scores: Scores, value: Any, mask: tf.Tensor, drop: Drop, oldest: tf.Tensor | None) -> tf.Tensor:
        query, key, position, t_len = scores.query, scores.key, scores.position, scores.query.shape[2]
        if oldest is not None:
            mask = tf.roll(mask, oldest, axis=-1)
            if position is not None and t_len > 1:
                position = self.as_ring(position, oldest, t_len - 1)
        elif position is not None:  # a ring is only read, and needs no gradient
            position = self.widened(position)  # its gradient is a sum over blocks
        rows = self.block_rows(scores, drop)
        blocks = [(first, min(first + rows, t_len)) for first in range(0, t_len, rows)]
        joined = self.joins(query, key.shape[2])
        seen_keys = [key.shape[2] if oldest is not None else self.seen(scores, last) for _, last in blocks]
        queries = _blocks_of_rows(query, blocks, joined)
        position_queries = [] if position is None else _blocks_of_rows(scores.position_query, blocks, joined)
        keys, values = (_first_rows(x, seen_keys, joined) for x in (key, value))
        outputs = []
        for i, (first, last) in enumerate(blocks):
            seen = seen_keys[i]
            places = None if scores.places is None else scores.places[:, first:last]
            wide = self.is_wide(queries[i], seen)
            score = self.dot_keys(queries[i], keys[i], wide)
            if position is not None:
                part = cut(position, -2, 0 if places is not None else t_len - last, position.shape[-2])
                term = self.position_scores(position_queries[i], part, seen, places, wide)
                if oldest is not None and t_len == 1:  # one row of scores is shorter than the positions
                    term = tf.roll(term, oldest, axis=-1)
                score += tf.cast(term, score.dtype)
            if scores.segments is not None:
                term, of_queries, of_keys = scores.segments
                parts = term[:, :, first:last, None], of_queries[:, first:last], of_keys[:, :seen]
                score += tf.cast(self.segment_scores(*parts), score.dtype)
            block_mask = mask if mask.shape[-2] == 1 else cut(mask, -2, first, last)
            block_mask = block_mask if mask.shape[-1] == 1 else cut(block_mask, -1, 0, seen)
            keep = functools.partial(tile_mask, scores, drop, first) if drop.rate else None
            absent = None if scores.absent is None else scores.absent[:, :seen]
            only_read = oldest is not None
            outputs.append(self.weighted_values(score, values[i], block_mask, drop.rate, keep, only_read, absent))
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2)

    def block_rows(self, scores: Scores, drop: Drop) -> int:
        """How many queries a block has."""
        return TILE

    def joins(self, query: tf.Tensor, k_len: int) -> bool:
        """Whether the blocks' gradients are concatenated; otherwise they are padded and added."""
        return False

    def seen(self, scores: Scores, last: int) -> int:
        """How many keys, from the first on, are computed for a block that ends before query `last`."""
        return scores.seen(last)

    def is_wide(self, query: tf.Tensor, k_len: int) -> bool:
        """Whether a block's products are kept in float32 at least; for a TPU."""
        return True

    def widened(self, x: tf.Tensor) -> tf.Tensor:
        """x in the dtype in which its gradient is summed."""
        return x

    def matmul(self, x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False, wide: bool = True) -> tf.Tensor:
        """Products of matrices of the same batch, or of one that all texts share, [H, ..]."""
        return tf.matmul(x, y, transpose_b=transpose_b)

    def sums_over_queries(self, weight: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """For each key the sum of x [B, H, T, d], times its weights [B, H, T, K]: [B, H, K, d]."""
        return tf.matmul(weight, x, transpose_a=True)

    def dot_keys(self, query: tf.Tensor, key: tf.Tensor, wide: bool) -> tf.Tensor:
        """Products of all queries [B, H, T, d] and keys [B, H, K, d]: [B, H, T, K]. The gradient is TensorFlow's."""

        @custom_gradient
        def run(query: tf.Tensor, key: tf.Tensor) -> WithGradient:
            def gradient(d_score: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return self.matmul(d_score, key), self.sums_over_queries(d_score, query)

            return self.matmul(query, key, transpose_b=True), gradient

        return run(query, key)

    def dot_shared_keys(self, query: tf.Tensor, key: tf.Tensor, wide: bool) -> tf.Tensor:
        """Products of all queries [B, H, T, d] and keys that all texts share, [H, K, d]: [B, H, T, K]."""
        return tf.einsum("bhtd,hkd->bhtk", query, key)

    def position_scores(
        self, query: tf.Tensor, position: tf.Tensor, k_len: int, places: tf.Tensor | None = None, wide: bool = True
    ) -> tf.Tensor:
        """The position term of the scores, by key: score[i, j] = query[i] . position[j + T-1-i].

        Args:
            query: [B, H, T, d].
            position: [H, K or more, d] or [B, H, K or more, d], farthest distance first. Scores that would need rows
                after the last are undefined.
            k_len: K.
            places, wide: as in Scores, and whether products are float32 at least.
        """
        score = (self.dot_shared_keys if position.shape.rank == 3 else self.dot_keys)(query, position, wide)
        if places is not None:
            return columns_from(score, position.shape[-2] - k_len - places, k_len)
        return self.shift(score, k_len) if query.shape[2] > 1 else cut(score, -1, 0, k_len)

    def segment_scores(self, term: tf.Tensor, of_queries: tf.Tensor, of_keys: tf.Tensor) -> tf.Tensor:
        """The term [B, H, T, 1] where the segments of query [B, T] and key [B, K] differ, elsewhere 0: [B, H, T, K]."""
        return tf.where(of_queries[:, None, :, None] != of_keys[:, None, None], term, tf.zeros([], term.dtype))

    def as_ring(self, position: tf.Tensor, oldest: tf.Tensor, extra: int) -> tf.Tensor:
        """Positions [H, C, d] in the order of a ring's slots, the oldest key in slot `oldest`; then its first rows.

        Two copies are rolled together, which is one pass for XLA on a CPU or GPU; to roll one and concatenate is three.
        """
        return tf.roll(tf.concat([position, position], axis=1), oldest, axis=1)[:, : position.shape[1] + extra]

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, only_read: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """e^x of x = score + hide - the row's maximum, [B, H, T, K], and the sum of each row, [B, H, T, 1] or a scalar.

        The sums are in the dtype of `hide`. only_read: as for `weighted_values`.
        """
        masked = tf.cast(score, hide.dtype) + hide
        weight = tf.exp(masked - tf.reduce_max(masked, axis=-1, keepdims=True))
        return tf.cast(weight, score.dtype), tf.reduce_sum(weight, axis=-1, keepdims=True)

    def kept_for_gradient(self, weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The exponentials, as they are kept for the gradient. dtype: of the values."""
        return weight

    def weighted_values(
        self,
        score: tf.Tensor,
        value: tf.Tensor,
        mask: tf.Tensor,
        rate: float,
        keep: Callable[[tf.Tensor], tf.Tensor] | None,
        only_read: bool = False,
        absent: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """softmax(score + mask), with dropout, times value: [B, H, T, d]; softmax in float32 at least.

        With e = exp(score - max) of a row, Z the sum of e and m the dropout mask, the result is
        (m e) . value / ((1 - rate) Z). The division comes last, where there are fewer numbers. The only tensor
        [B, H, T, K] that is kept for the gradient is e. m is computed again.

        score: [B, H, T, K]; value: [B, H, K, d]; mask: broadcastable to `score`; keep: a function of the score's shape,
        which returns m; only_read: whether the gradient is not needed; absent: as in Scores.
        """
        accurate = accurate_dtype(score.dtype)
        if score.dtype == tf.float16:  # in which a sum of exponentials times values may overflow, before it is divided
            masked = tf.cast(score, accurate) + added(mask, absent, accurate)
            return self.weighted(masked, value, rate, keep(tf.shape(score)) if keep else None)

        @custom_gradient
        def run(score: tf.Tensor, value: tf.Tensor) -> WithGradient:
            weight, total = self.exponentials(score, added(mask, absent, accurate), only_read)
            saved = self.kept_for_gradient(weight, value.dtype)
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
        """With a memory the gradient equals TensorFlow's, but comes from other products.

        One matmul gives the matrix's gradient, where TensorFlow would add two. Memory and segment have one each, so
        that compilers remove the memory's if it is not used.
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
        return tf.cast(self.scale_and_shift(wide * scale - mean * scale, gamma, beta), x.dtype)

    def scale_and_shift(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        """x [.., D] * gamma [D] + beta [D]."""
        return x * gamma + beta


def merge_heads(heads: tf.Tensor) -> tf.Tensor:
    """[B, H, K, d] -> [B, K, H d]."""
    _, n_head, length, d_head = heads.shape
    return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, length, n_head * d_head])


def cut(x: tf.Tensor, axis: int, first: int, last: int) -> tf.Tensor:
    """x[first:last] along axis -1 or -2; x itself if that is the whole axis, since TensorFlow's kernels would copy."""
    if first == 0 and last == x.shape[axis]:
        return x
    return x[..., first:last] if axis == -1 else x[..., first:last, :]


def _blocks_of_rows(x: tf.Tensor, blocks: list[tuple[int, int]], joined: bool) -> list[tf.Tensor]:
    """The rows of each block of x [.., T, d]; blocks: for each the first row and the one after the last."""
    if joined:
        return tf.split(x, [last - first for first, last in blocks], axis=-2)
    return [cut(x, -2, first, last) for first, last in blocks]


def _first_rows(x: tf.Tensor, counts: list[int], joined: bool) -> list[tf.Tensor]:
    """The first rows of x [.., K, d], once for each count; none of the counts is smaller than the one before.

    With `joined` each part is cut from the next larger one. The matmul that computes the gradient of the larger part
    then also adds that of the smaller one. Otherwise one operation adds up the padded gradients of all parts.
    """
    parts: list[tf.Tensor] = []
    for count in reversed(counts):
        parts.insert(0, cut(parts[0] if joined and parts else x, -2, 0, count))
    return parts

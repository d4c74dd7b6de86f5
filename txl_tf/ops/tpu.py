"""The operations on a TPU.

A TPU multiplies bfloat16 matrices, and its vector units compute in float32. Writing scores in bfloat16 costs much more
than in float32, while a matmul that reads float32 converts its inputs at almost no cost. So products of attention are
float32, and the compiler rounds the inputs of the next product to bfloat16.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops import rings
from txl_tf.ops.blocks import Blocked
from txl_tf.ops.gradients import WithGradient, custom_gradient
from txl_tf.ops.plain import accurate_dtype, dropout, inverse_deviation
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import TILE, Drop, Scores
from txl_tf.ops.tpu_scores import computed_once, is_rotated, rotated_scores, wide_product, widened

FEWEST_TILES = 5  # with fewer tiles of keys the rotated scores get another layout, which costs a copy
MATMUL_TOKENS = 512  # for at most this many tokens matmuls replace some gathers and scatters
MOST_WIDE_KEYS = 4 * TILE  # longer rows are kept for the gradient in a narrow dtype, to save memory
ROWS = 16  # of a vector register that holds bfloat16 numbers
WIDEST = 1 << 23  # scores of a block that stay in fast memory: 32 MB of float32


class Tpu(Blocked):
    """For a TPU, where XLA compiles everything."""

    row_multiple = ROWS  # lanes begin with whole registers, or every reshape of all rows would copy them

    def dot(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        axes = "abcd"[: x.shape.rank - 1]  # an ellipsis would cost a sum in the gradient
        return tf.einsum(f"{axes}m,mn->{axes}n", x, tf.cast(matrix, x.dtype))

    def dense(self, x: tf.Tensor, matrix: Any, bias: tf.Tensor, kept: bool) -> tf.Tensor:
        """For a variable by Keras's own product, which the rows of tpu/cycles.md are for."""
        if kept:
            return super().dense(x, matrix, bias, kept)
        return keras.ops.add(keras.ops.matmul(x, tf.cast(matrix, x.dtype)), tf.cast(bias, x.dtype))

    def positions(self, rows: Any, query: tf.Tensor, training: bool, backward: tf.Tensor | None) -> tf.Tensor:
        """With a direction, [b, a]: q . r is q . b + q . a or q . b - q . a, so the direction is a sign in the queries.

        They are twice as wide, with d = 64 as wide as a TPU's registers.
        """
        return rows if backward is None else tf.concat(rows[::-1], axis=-1)

    def attend(self, scores: Scores, value: Any, mask: tf.Tensor, drop: Drop, oldest: tf.Tensor | None) -> tf.Tensor:
        if scores.backward is not None:
            query: tf.Tensor = scores.position_query
            sign = tf.where(scores.backward, tf.constant(-1, query.dtype), tf.constant(1, query.dtype))
            query = tf.concat([query, query * sign[:, None, None, None]], axis=-1)
            scores = dataclasses.replace(scores, position_query=query, backward=None)
        return super().attend(scores, value, mask, drop, oldest)

    def joins(self, query: tf.Tensor, k_len: int) -> bool:
        """With bfloat16 scores the compiler would copy the rotated gradients."""
        return query.shape[2] > TILE and self.is_wide(query, k_len)

    def seen(self, scores: Scores, last: int) -> int:
        k_len = scores.key.shape[2]
        seen, fewest = super().seen(scores, last), min(k_len, FEWEST_TILES * TILE)
        rows = min(scores.query.shape[2], TILE)
        rotated = scores.position is not None and is_rotated(scores.query.dtype, rows, fewest)
        return max(seen, fewest) if rotated else seen

    def is_wide(self, query: tf.Tensor, k_len: int) -> bool:
        """Whether a block's scores of the queries [B, H, T, d] and K keys, in float32, stay in fast memory."""
        batch, heads, t_len = query.shape[:3]
        return None not in (batch, heads, t_len) and batch * heads * min(t_len, TILE) * k_len <= WIDEST

    def widened(self, x: tf.Tensor) -> tf.Tensor:
        return widened(x)

    def matmul(self, x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False, wide: bool = True) -> tf.Tensor:
        return wide_product("bhtd,bhkd->bhtk" if transpose_b else "bhtk,bhkd->bhtd", x, y, wide)

    def sums_over_queries(self, weight: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return wide_product("bhtk,bhtd->bhkd", weight, x, wide=False)

    def dot_keys(self, query: tf.Tensor, key: tf.Tensor, wide: bool) -> tf.Tensor:
        return wide_product("bhtd,bhkd->bhtk", query, key, wide)

    def dot_shared_keys(self, query: tf.Tensor, key: tf.Tensor, wide: bool) -> tf.Tensor:
        return wide_product("bhtd,hkd->bhtk", query, key)

    def position_scores(
        self, query: tf.Tensor, position: tf.Tensor, k_len: int, places: tf.Tensor | None = None, wide: bool = True
    ) -> tf.Tensor:
        """As in `Blocked`; in bfloat16 by another method.

        On a TPU it is expensive to shift each row by a different number of columns, while a product with a permutation
        matrix rotates a row at almost no cost, and exactly.
        """
        if is_rotated(query.dtype, query.shape[2], k_len):
            return rotated_scores(query, position, k_len, places, position.shape[-2] - k_len + 1, wide)
        return super().position_scores(query, position, k_len, places, wide)

    def segment_scores(self, term: tf.Tensor, of_queries: tf.Tensor, of_keys: tf.Tensor) -> tf.Tensor:
        return super().segment_scores(tf.cast(term, accurate_dtype(term.dtype)), of_queries, of_keys)

    def as_ring(self, position: tf.Tensor, oldest: tf.Tensor, extra: int) -> tf.Tensor:
        position = tf.roll(position, oldest, axis=1)
        return tf.concat([position, position[:, :extra]], axis=1)

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, only_read: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """As in `Blocked`.

        If the gradient is not needed, e is summed by a product with ones, and computed within the two products that use
        it, which is faster than writing it.
        """
        if not only_read:
            weight, total = super().exponentials(score, hide, only_read)
            return weight if weight.dtype == tf.bfloat16 else computed_once(weight), total
        masked = tf.cast(score, hide.dtype) + hide
        weight = tf.cast(tf.exp(masked - tf.reduce_max(masked, axis=-1, keepdims=True)), score.dtype)
        return weight, wide_product("bhtk,kn->bhtn", weight, tf.ones([weight.shape[-1], TILE], weight.dtype))[..., :1]

    def kept_for_gradient(self, weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        narrow = weight.dtype != dtype and weight.shape[-1] > MOST_WIDE_KEYS
        return computed_once(tf.cast(weight, dtype)) if narrow else weight

    def layer_norm(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
        """The variance is E[x^2] - E[x]^2, in float32 at least: the operation that makes x computes both sums.

        The relative error of the variance is about 1e-7 (1 + mean^2 / variance). Segments of at most 128 tokens are
        read as one list of rows; otherwise the compiler makes time the innermost axis, which slows sums over D.
        """
        rows = x
        if x.shape[-2] is not None and x.shape[-2] <= TILE:
            rows = tf.reshape(x, [-1, x.shape[-1]])
        rows = tf.cast(rows, accurate_dtype(x.dtype))
        mean = tf.reduce_mean(rows, axis=-1, keepdims=True)
        variance = tf.maximum(tf.reduce_mean(rows * rows, axis=-1, keepdims=True) - mean * mean, 0)
        scale = inverse_deviation(variance, epsilon) * gamma
        return tf.reshape(tf.cast(rows * scale + (beta - mean * scale), x.dtype), tf.shape(x))

    def relu_and_dropout(self, x: tf.Tensor, rate: float, seed: tf.Tensor | None, shared_axis: int | None) -> tf.Tensor:
        """The result is positive where x was and was kept.

        So the gradient of long segments reads the result instead of a mask, which would take memory until then. Short
        segments need little memory, and the compiler does without the mask.
        """
        length = x.shape[-2]
        if not rate or length is None or length <= TILE:
            return super().relu_and_dropout(x, rate, seed, shared_axis)

        @custom_gradient
        def run(x: tf.Tensor) -> WithGradient:
            y = dropout(tf.nn.relu(x), rate, seed, shared_axis)
            return y, lambda d_y: tf.where(computed_once(y) > 0, d_y / (1 - rate), tf.zeros([], d_y.dtype))

        return run(x)

    def lookup(
        self, table: tf.Tensor, rows: tf.Tensor, dtype: str, own: tf.Tensor | None, tail: bool, tied: bool
    ) -> tf.Tensor:
        """For few tokens in bfloat16 by matmuls with one-hot rows, which are exact.

        A tail's table is narrow, so the compiler stores it by columns. A gather from it, and a scatter of its gradient,
        would copy the whole table to row order and back. For few tokens the matmuls are cheaper.
        """
        few = rows.shape.num_elements() is not None and rows.shape.num_elements() <= MATMUL_TOKENS
        if not few or dtype != "bfloat16" or (tied and not tail):
            return super().lookup(table, rows, dtype, own, tail, tied)
        if tail:
            one_hot = tf.one_hot(tf.where(own, rows, -1), table.shape[0], dtype=dtype)
            return tf.tensordot(one_hot, tf.cast(table, dtype), 1)
        out = _rows(table, rows if own is None else tf.where(own, rows, 0))
        return out if own is None else tf.where(own[..., None], out, tf.zeros_like(out))

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        """Whole tiles of slots in place, and for a single token the tile that it is in.

        Rings of narrow heads are stored with slots as the innermost axis. A scatter would copy them to another layout
        and back.
        """
        if block == key.shape[2] and block % TILE == 0:
            start = ring.start // block * block
            return rings.written(ring, key, value, functools.partial(rings.with_rows, start=start))
        if key.shape[2] == 1 and ring.keys.shape[2] % TILE == 0:
            return rings.written(ring, key, value, functools.partial(_with_token, start=ring.start))
        return super().write(ring, key, value, block)


def _with_token(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """A ring's slots, of whole tiles, with a single new one: the tile that it is in is read and written.

    If only the slot were written, the compiler would store rings in a layout that is slower to read.
    """
    first = start // TILE * TILE
    batch, n_head, _, d_head = tf.unstack(tf.shape(slots))
    tile = gen_xla_ops.xla_dynamic_slice(slots, tf.stack([0, 0, first, 0]), tf.stack([batch, n_head, TILE, d_head]))
    return rings.with_rows(slots, tf.where(tf.range(TILE)[:, None] == start - first, new, tile), first)


@custom_gradient
def _rows(table: tf.Tensor, rows: tf.Tensor) -> WithGradient:
    """Rows of a table [V, D], in bfloat16; the table's gradient is a matmul with one-hot rows.

    The compiler sums the squares of a matmul's result while it writes it. A scatter would first fill the gradient with
    zeros, and the norm would read it all again.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        upstream = tf.reshape(upstream, [-1, table.shape[1]])
        one_hot = tf.one_hot(tf.reshape(rows, [-1]), table.shape[0], dtype=upstream.dtype)
        return tf.cast(tf.matmul(one_hot, upstream, transpose_a=True), table.dtype), None

    return tf.cast(tf.gather(table, rows), tf.bfloat16), gradient

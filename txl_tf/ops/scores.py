"""The arguments of operations, as values: the terms of attention's scores, its dropout, a cluster's weights.

Shapes: B batch, H heads, T queries, K keys, d = d_head.
"""

from __future__ import annotations

import dataclasses
import typing

import tensorflow as tf

from txl_tf.hashing import bits_at, random_bits

TILE = 128
"""The queries of one mask of attention's dropout, and the most that are computed at once: the number of columns of a
TPU's vector registers, and of rows and columns of its matrix units."""

MASKED = -1e30
"""The score of a key that may not be seen; finite, so that no row can become NaN."""


class Drop(typing.NamedTuple):
    """The dropout of attention probabilities: its rate, and its seed as for `dropout`."""

    rate: float = 0.0
    seed: tf.Tensor | None = None


NO_DROP = Drop()


class Cluster(typing.NamedTuple):
    """The output weights of a vocabulary's cluster of S ids.

    table: [S, E].
    bias: [S].
    projection: [E, D]; None: E == D.
    """

    table: tf.Tensor
    bias: tf.Tensor
    projection: tf.Tensor | None


class Block(typing.NamedTuple):
    """Neighbouring queries of T, and the keys that they may see at most.

    first, last: the first query, and the one after the last.
    seen: the number of keys, from the first on.
    """

    first: int
    last: int
    seen: int

    def queries(self, x: tf.Tensor) -> tf.Tensor:
        """The block's rows of x [.., T, n]."""
        return cut(x, -2, self.first, self.last)

    def keys(self, x: tf.Tensor) -> tf.Tensor:
        """The block's rows of x [.., K, n]."""
        return cut(x, -2, 0, self.seen)

    def mask(self, x: tf.Tensor) -> tf.Tensor:
        """The block's part of x, [T, K] or broadcastable to [B, H, T, K]."""
        rows = x if x.shape[-2] == 1 else self.queries(x)
        return rows if x.shape[-1] == 1 else cut(rows, -1, 0, self.seen)


def cut(x: tf.Tensor, axis: int, first: int, last: int) -> tf.Tensor:
    """x[first:last] along axis -1 or -2; x itself if that is the whole axis, since TensorFlow's kernels would copy."""
    if first == 0 and last == x.shape[axis]:
        return x
    return x[..., first:last] if axis == -1 else x[..., first:last, :]


@dataclasses.dataclass(frozen=True)
class Scores:
    """query . key + position_query . position, for the distance of the two.

    query: [B, H, T, d].
    key: [B, H, K, d].
    position_query: [B, H, T, d'].
    position: what `ops.positions` makes of [H, C, d'], farthest distance first. Query i and key j get the term
        position_query[i] . position[j + T-1-i], if that row exists: C = K rows for distances K-1, .., 0, or K + T-1
        rows for K-1, .., -(T-1). None: no such term.
    backward: bool [B], the lanes whose text runs backward, as given to `ops.positions`.
    places: int [B, P], the tokens' numbers in the segment if the queries are only P of its T, [B, H, P, d]. Position
        then has K + T-1 rows. `ops.attend` returns the same rows, dropout included, as for all T queries. None: query i
        is at place i.
    causal: whether the mask hides every key in a query's future, so that such keys need not be computed.
    absent: bool [B, K], keys that no query ever attends to, not even one whose mask is empty; None: none.
    """

    query: tf.Tensor
    key: tf.Tensor
    position_query: tf.Tensor | None = None
    position: tf.Tensor | None = None
    backward: tf.Tensor | None = None
    places: tf.Tensor | None = None
    causal: bool = True
    absent: tf.Tensor | None = None

    def blocks(self, size: int) -> list[Block]:
        """All queries in Blocks of this many; a block skips the keys that lie in the future of all its queries."""
        t_len, k_len = self.query.shape[2], self.key.shape[2]
        ends = [min(first + size, t_len) for first in range(0, t_len, size)]
        seen = [k_len - t_len + last if self.causal else k_len for last in ends]
        return [Block(first, *rest) for first, *rest in zip(range(0, t_len, size), ends, seen, strict=True)]

    def cast(self, dtype: tf.DType | str) -> Scores:
        """The same with queries, keys and positions in another dtype."""
        parts = {name: getattr(self, name) for name in ("query", "key", "position_query", "position")}
        return dataclasses.replace(self, **{name: tf.cast(x, dtype) for name, x in parts.items() if x is not None})


def keep_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Bool of a shape, int32 [n]: false with probability `rate`; seed as for `dropout`."""
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return random_bits(shape, seed) >= int(rate * 2**32)


def tile_mask(scores: Scores, drop: Drop, first: int, shape: tf.Tensor) -> tf.Tensor:
    """The dropout mask of the tile of queries that begins with number `first`: bool [B, H, rows, keys], the shape."""
    if scores.places is None or drop.seed is None:
        return keep_mask(shape, drop.rate, None if drop.seed is None else tf.add(drop.seed, [0, first]))
    places = scores.places[:, first : first + TILE]
    position: typing.Any = scores.position  # which Scores with places have
    return _mask_at(places, position.shape[-2] - scores.key.shape[2] + 1, drop.rate, drop.seed, shape)


def _mask_at(places: tf.Tensor, t_len: int, rate: float, seed: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The rows at these places, int [B, P], of the masks that are drawn for T queries: bool [B, H, P, K], the shape."""
    batch, heads, _, k_len = tf.unstack(shape)
    first = places // TILE * TILE  # of the row's tile
    rows = tf.minimum(t_len - first, TILE)  # in the tile
    head = tf.range(heads)[:, None, None]
    if len(seed.shape) == 1:
        head += tf.range(batch)[:, None, None, None] * heads
    index = (head * rows[:, None, :, None] + (places - first)[:, None, :, None]) * k_len + tf.range(k_len)
    first = tf.stack([tf.zeros_like(first), first], axis=-1)[:, None, :, None]
    return bits_at(index, tf.reshape(seed, [-1, 1, 1, 1, 2]) + first) >= int(rate * 2**32)


def segments_in_a_block(t_len: int) -> int:
    """How many segments of T tokens make up a block of attention's queries: larger matrices are multiplied faster."""
    return 1 if TILE % t_len else TILE // t_len

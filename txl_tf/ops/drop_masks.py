"""Dropout as a pure function of its seed; the masks of attention's probabilities, which are drawn tile by tile."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.hashing import bits_at, random_bits
from txl_tf.ops.scores import Drop, Scores

TILE = 128
"""Queries that one mask of attention's dropout is drawn for, and the most that are computed at once: the columns of a
TPU's vector registers, the rows and columns of its matrix units."""


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None = None, shared_axis: int | None = None) -> tf.Tensor:
    """Zeroes elements of x with probability `rate` and scales the rest by 1 / (1 - rate).

    Args:
        x: any float tensor; [B, ..] with a seed for each lane.
        rate: in [0, 1); 0 returns x.
        seed: int32 [2] or [B, 2]; None: drawn from TensorFlow's global generator (for layers in other models).
        shared_axis: an axis along which all elements share one mask value; None: every element has its own.
    """
    if not rate:
        return x
    shape = tf.shape(x)
    if shared_axis is not None:
        shape = tf.tensor_scatter_nd_update(shape, [[shared_axis % x.shape.rank]], [1])
    return tf.where(keep_mask(shape, rate, seed), x / (1 - rate), tf.zeros([], x.dtype))


def keep_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Bool of a shape, int32 [n]: false with probability `rate`; seed as for `dropout`."""
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return random_bits(shape, seed) >= int(rate * 2**32)


def probability_mask(scores: Scores, drop: Drop) -> tf.Tensor:
    """The dropout mask of all attention probabilities: bool [B, H, T, K]; keys that cannot be seen are kept."""
    batch, heads, t_len, _ = tf.unstack(tf.shape(scores.query))
    k_len, t_len = scores.key.shape[2], scores.query.shape[2]
    tiles = []
    for first in range(0, t_len, TILE):
        last = min(first + TILE, t_len)
        tile = tile_mask(scores, drop, first, tf.stack([batch, heads, last - first, scores.seen(last)]))
        tiles.append(tf.pad(tile, [[0, 0]] * 3 + [[0, k_len - scores.seen(last)]], constant_values=True))
    return tf.concat(tiles, axis=2)


def tile_mask(scores: Scores, drop: Drop, first: int, shape: tf.Tensor) -> tf.Tensor:
    """The dropout mask of the tile of queries that begins with number `first`: bool [B, H, rows, keys], the shape."""
    if scores.places is None or drop.seed is None:
        return keep_mask(shape, drop.rate, None if drop.seed is None else tf.add(drop.seed, [0, first]))
    places = scores.places[:, first : first + TILE]
    return _mask_at(places, scores.segment_len(), drop.rate, drop.seed, shape)


def _mask_at(places: tf.Tensor, t_len: int, rate: float, seed: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The rows at these places, int [B, P], of the masks that are drawn for T queries: bool [B, H, P, K].

    Args:
        places, t_len: the numbers of the rows, and T.
        rate, seed: as for `dropout`.
        shape: int32 [4], of the result.
    """
    batch, heads, _, k_len = tf.unstack(shape)
    first = places // TILE * TILE  # of the row's tile
    rows = tf.minimum(t_len - first, TILE)  # in the tile
    head = tf.range(heads)[:, None, None]
    if len(seed.shape) == 1:
        head += tf.range(batch)[:, None, None, None] * heads
    index = (head * rows[:, None, :, None] + (places - first)[:, None, :, None]) * k_len + tf.range(k_len)
    first = tf.stack([tf.zeros_like(first), first], axis=-1)[:, None, :, None]
    return bits_at(index, tf.reshape(seed, [-1, 1, 1, 1, 2]) + first) >= int(rate * 2**32)

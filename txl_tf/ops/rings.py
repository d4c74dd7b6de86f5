"""The newest keys and values of a layer, projected once; inference keeps them instead of hidden states.

New keys and values overwrite the oldest in place, so adding a token does not copy the others. The slot after the newest
key holds the oldest, and the next key goes there. Shapes: B batch, H heads, C slots, d = d_head.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

SCATTERED = 32
"""The most slots that a scatter writes at a time. On a TPU smaller blocks need many writes, and larger ones copy the
ring to another layout."""


class KeyValueRing(typing.NamedTuple):
    """A ring of C slots.

    keys, values: [B, H, C, d].
    start: int32 scalar, the slot of the next token to be read; slot 0 follows slot C - 1.
    """

    keys: tf.Tensor
    values: tf.Tensor
    start: tf.Tensor


Writer = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From a ring's slots [B, H, C, d] and new ones [B, H, T, d] to the slots with the new ones."""


def written(ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, write: Writer) -> KeyValueRing:
    """The ring with the keys and values [B, H, T, d] of a segment from `start` on."""
    start = (ring.start + key.shape[2]) % ring.keys.shape[2]
    return KeyValueRing(write(ring.keys, key), write(ring.values, value), start)


def with_rows(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """The new slots are next to each other, from `start` on, which is at most C - T; only XLA can do that."""
    return gen_xla_ops.xla_dynamic_update_slice(slots, new, tf.stack([0, 0, start, 0]))


def scatter(ring: KeyValueRing, new_len: int, block: int) -> Writer:
    """A Writer of T slots from the ring's start on, in blocks; C, T and the start are multiples of a block."""
    block = math.gcd(block, SCATTERED)
    n_head, c_len = ring.keys.shape[1:3]
    n_blocks = c_len // block
    of_segment = (ring.start // block + tf.range(new_len // block)) % n_blocks
    of_heads = tf.range((ring.keys.shape[0] or tf.shape(ring.keys)[0]) * n_head) * n_blocks
    return functools.partial(scattered, places=tf.reshape(of_heads[:, None] + of_segment, [-1, 1]), block=block)


def scattered(slots: tf.Tensor, new: tf.Tensor, places: tf.Tensor, block: int) -> tf.Tensor:
    """The `slots` [.., C, d] with the blocks of `new` [.., T, d] at these `places` among all blocks, int32 [n, 1]."""
    blocks, new = (tf.reshape(x, [-1, block, slots.shape[-1]]) for x in (slots, new))
    return tf.reshape(tf.tensor_scatter_nd_update(blocks, places, new), [-1, *slots.shape[1:]])

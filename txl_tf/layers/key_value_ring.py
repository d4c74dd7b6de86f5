"""The memory of inference: projected keys and values in a ring."""

from __future__ import annotations

import math
import typing

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.layers import platform
from txl_tf.layers.rotated_scores import TILE
from txl_tf.layers.row_products import as_bits

SCATTERED = 32
"""How many slots a scatter writes at a time, at most. On a TPU smaller blocks need many writes, larger ones a copy of
the ring to another layout in memory."""


class KeyValueRing(typing.NamedTuple):
    """The newest C keys and values of a layer, projected once; inference keeps them instead of hidden states.

    New keys and values overwrite the oldest in place, so adding a token does not copy the others. The slot after the
    newest key holds the oldest, and the next key goes there.

    keys, values: [B, H, C, d].
    start: int32 scalar, the slot of the next token to be read; slot 0 follows slot C - 1.
    """

    keys: tf.Tensor
    values: tf.Tensor
    start: tf.Tensor

    def written(self, key: tf.Tensor, value: tf.Tensor, block: int = 1) -> KeyValueRing:
        """The ring with the keys and values [B, H, T, d] of a segment from `start` on.

        Args:
            key, value: of the segment.
            block: C, T and `start` are multiples of it.
        """
        keys, values = (
            _write(slots, new, self.start, block) for slots, new in ((self.keys, key), (self.values, value))
        )
        return KeyValueRing(keys, values, (self.start + key.shape[2]) % keys.shape[2])


def _write(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor, block: int) -> tf.Tensor:
    """A ring's `slots` [B, H, C, d] with `new` [B, H, T, d] from slot `start` on; slot 0 follows the last slot.

    If T = `block`, the new slots are next to each other. A TPU then writes whole tiles of slots in place. By a scatter,
    as in other cases, it would copy rings of narrow heads to another layout and back, since it keeps them with slots as
    the innermost axis.
    """
    if slots.dtype == tf.bfloat16 and platform.on_cpu():
        # As bits, or XLA for CPU would convert the whole ring to float32 and back.
        return tf.bitcast(_write(as_bits(slots), as_bits(new), start, block), slots.dtype)
    _, n_head, c_len, d_head = slots.shape
    if platform.on_tpu() and block == new.shape[2] and block % TILE == 0:
        return gen_xla_ops.xla_dynamic_update_slice(slots, new, tf.stack([0, 0, start // block * block, 0]))
    block = math.gcd(block, SCATTERED)
    n_blocks = c_len // block
    written = (start // block + tf.range(new.shape[2] // block)) % n_blocks
    places = tf.range(tf.shape(slots)[0] * n_head)[:, None] * n_blocks + written
    blocks = tf.tensor_scatter_nd_update(
        tf.reshape(slots, [-1, block, d_head]), tf.reshape(places, [-1, 1]), tf.reshape(new, [-1, block, d_head])
    )
    return tf.reshape(blocks, [-1, n_head, c_len, d_head])

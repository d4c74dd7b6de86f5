"""The memory of inference: projected keys and values in a ring."""

from __future__ import annotations

import functools
import math
import typing

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.layers import platform
from txl_tf.layers.rotated_scores import TILE
from txl_tf.layers.row_products import LayerSlice, Stored, as_bits

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

        If T = `block`, the new slots are next to each other. A TPU then writes whole tiles of slots in place, and for a
        single token the tile that it is in. By a scatter, as in other cases, it would copy rings of narrow heads to
        another layout and back, since it keeps them with slots as the innermost axis. Without the scatter a token of
        one text takes 0.75 of the time on a GPU, and XLA for CPU does not copy rings of bfloat16 to bits and back; but
        there a token alone would take 2.4 times as long.

        Args:
            key, value: of the segment.
            block: C, T and `start` are multiples of it.
        """
        n_head, c_len = self.keys.shape[1:3]
        new_len = key.shape[2]
        if platform.on_tpu() and block == new_len and block % TILE == 0:
            write = functools.partial(_with_rows, start=self.start // block * block)
        elif platform.on_tpu() and new_len == 1 and c_len % TILE == 0:
            write = functools.partial(_with_token, start=self.start)
        elif platform.only_in_xla() and (
            (platform.on_gpu() and new_len == 1) or (platform.on_cpu() and block == new_len > 1)
        ):
            write = functools.partial(_with_rows, start=self.start)
        else:
            block = math.gcd(block, SCATTERED)
            n_blocks = c_len // block
            written = (self.start // block + tf.range(new_len // block)) % n_blocks
            of_heads = tf.range((self.keys.shape[0] or tf.shape(self.keys)[0]) * n_head) * n_blocks
            places = tf.reshape(of_heads[:, None] + written, [-1, 1])
            write = functools.partial(_scattered, places=places, block=block)
        keys, values = write(self.keys, key), write(self.values, value)
        return KeyValueRing(keys, values, (self.start + new_len) % c_len)


class LayerRing(typing.NamedTuple):
    """A layer's `KeyValueRing` among those of all layers, of a few texts: only `row_products` can read it.

    all_keys, all_values: [N, B, H, C, d], `as_bits`; B is known.
    start: int32 scalar, as for KeyValueRing.
    layer: int32 scalar, the number of the layer.
    """

    all_keys: tf.Tensor
    all_values: tf.Tensor
    start: tf.Tensor
    layer: tf.Tensor

    @property
    def keys(self) -> LayerSlice:
        """The layer's keys."""
        return LayerSlice(Stored(self.all_keys), self.layer)

    @property
    def values(self) -> LayerSlice:
        """The layer's values."""
        return LayerSlice(Stored(self.all_values), self.layer)

    def written(self, key: tf.Tensor, value: tf.Tensor, block: int = 1) -> LayerRing:
        """The ring with the keys and values [B, H, 1, d] of a token of each text in slot `start`; block is 1."""
        batch, n_head, c_len = self.all_keys.shape[1:4]
        heads = batch * n_head
        places = tf.reshape((self.layer * heads + tf.range(heads)) * c_len + self.start, [-1, 1])
        keys, values = (
            _scattered(slots, as_bits(new), places, 1)
            for slots, new in ((self.all_keys, key), (self.all_values, value))
        )
        return LayerRing(keys, values, (self.start + 1) % c_len, self.layer)


def _with_rows(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """A ring's `slots` [B, H, C, d] with `new` [B, H, T, d] in the slots from `start` on, which is at most C - T."""
    return gen_xla_ops.xla_dynamic_update_slice(slots, new, tf.stack([0, 0, start, 0]))


def _with_token(slots: tf.Tensor, new: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """The same for T = 1 and C of whole TILEs, for a TPU: the tile that the slot is in is read and written.

    If the slot alone were written, the compiler would store rings in a layout in which a token of eight texts takes 1.8
    times as long.
    """
    first = start // TILE * TILE
    batch, n_head, _, d_head = tf.unstack(tf.shape(slots))
    tile = gen_xla_ops.xla_dynamic_slice(slots, tf.stack([0, 0, first, 0]), tf.stack([batch, n_head, TILE, d_head]))
    return _with_rows(slots, tf.where(tf.range(TILE)[:, None] == start - first, new, tile), first)


def _scattered(slots: tf.Tensor, new: tf.Tensor, places: tf.Tensor, block: int) -> tf.Tensor:
    """A ring's `slots` [B, H, C, d] with the blocks of `new` [B, H, T, d] at these `places`.

    Args:
        places: int32 [B H T / block, 1], the numbers of the blocks among all blocks of slots.
        block: slots of a block.
    """
    if slots.dtype == tf.bfloat16 and platform.on_cpu():
        # As bits, or XLA for CPU would convert the whole ring to float32 and back.
        return tf.bitcast(_scattered(as_bits(slots), as_bits(new), places, block), slots.dtype)
    blocks, new = (tf.reshape(x, [-1, block, slots.shape[-1]]) for x in (slots, new))
    return tf.reshape(tf.tensor_scatter_nd_update(blocks, places, new), [-1, *slots.shape[1:]])

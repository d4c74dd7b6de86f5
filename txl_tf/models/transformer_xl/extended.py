"""The extended context: the tokens before a segment are read again with it, with gradient, in place of memory."""

from __future__ import annotations

import typing
from typing import Any

import tensorflow as tf

from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import Lengths, TransformerXL


class Extended(typing.NamedTuple):
    """The state before a segment is read with an extended context of E tokens.

    mems: Mems of the text before these tokens.
    tokens: int32 [B, E], the newest tokens of the text, oldest first.
    seen: int32 [B], how many of them are of the text: fewer than E at its beginning.
    """

    mems: Mems
    tokens: tf.Tensor
    seen: tf.Tensor


def first_state(model: TransformerXL, batch_size: int | tf.Tensor, reach: Reach) -> Extended:
    """The state before any text."""
    tokens = tf.zeros([batch_size, reach.ext_len], tf.int32)
    return Extended(model.initial_mems(batch_size, reach), tokens, tf.zeros([batch_size], tf.int32))


def read(
    model: TransformerXL,
    segment: tf.Tensor,
    state: Extended,
    reach: Reach,
    length: tf.Tensor | None = None,
    **inputs: Any,
) -> tuple[tf.Tensor, Extended]:
    """Reads a segment, int32 [B, T], and with it the E tokens before: hidden [B, T, D] of the segment, and a new state.

    This is the official PyTorch code's ext_len: a token sees the tokens before it in the segment, the E tokens before
    the segment, and the memory, which holds the states of the tokens before these. `length`, an int32 scalar, is how
    many tokens the segment has; the rest of it is padding. None: T. Further `inputs` are those of `TransformerXL.call`.
    """
    t_len, e_len = segment.shape[1], reach.ext_len
    tokens = tf.concat([state.tokens, segment], axis=1)
    hidden, mems = model(tokens, state.mems, reach=reach, lengths=Lengths(state.seen, length), **inputs)
    if length is None:
        newest, length = tokens[:, t_len:], tf.constant(t_len)
    else:
        newest = tf.gather(tokens, length + tf.range(e_len), axis=1)  # as in `shift_in`
    return hidden, Extended(mems, newest, tf.minimum(state.seen + length, e_len))

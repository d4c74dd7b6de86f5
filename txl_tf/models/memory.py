"""A model's memory of earlier segments: a value that is passed in and returned, never kept inside the model."""

from __future__ import annotations

import typing

import tensorflow as tf


class Mems(typing.NamedTuple):
    """The hidden states of earlier segments.

    hidden: a tuple of N tensors [B, M, D], the newest M inputs of each layer, oldest first.
    length: int32 [B], how many of the M slots hold states of the text; the others are empty. It is used only if empty
        slots are masked (`mem_init="empty"`).
    """

    hidden: tuple[tf.Tensor, ...]
    length: tf.Tensor


def shift_in(memory: tf.Tensor, hidden: tf.Tensor, remembered: int | tf.Tensor | None = None) -> tf.Tensor:
    """The newest M of [memory [B, M, D], hidden [B, T, D]] along time, without gradient: [B, M, D].

    remembered: how many of the first tokens of hidden are taken; an int32 scalar if it is known only when the program
        runs; None: all.
    """
    m_len = memory.shape[1]
    hidden = tf.stop_gradient(hidden)
    if tf.is_tensor(remembered):
        # Not by a slice: XLA would compile a program for each place where it begins.
        return tf.gather(tf.concat([memory, hidden], axis=1), remembered + tf.range(m_len), axis=1)
    hidden = hidden[:, :remembered]
    t_len = hidden.shape[1]
    if m_len <= t_len:
        return hidden[:, t_len - m_len :]
    return tf.concat([memory[:, t_len:], hidden], axis=1)

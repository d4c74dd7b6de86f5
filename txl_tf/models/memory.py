"""What a model remembers of earlier segments: a value, passed in and handed back, never kept inside."""

from __future__ import annotations

import typing

import tensorflow as tf


class Mems(typing.NamedTuple):
    """The hidden states of earlier segments.

    hidden: a tuple of N tensors [B, M, D], the newest M inputs of each layer, oldest first.
    length: int32 [B], how many of the M slots are real; the others are older than the text. It counts only where
        empty slots are masked (`mem_init="empty"`).
    """

    hidden: tuple[tf.Tensor, ...]
    length: tf.Tensor


def shift_in(memory: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
    """The newest M of [memory [B, M, D], hidden [B, T, D]] along time, without gradient: [B, M, D]."""
    m_len, t_len = memory.shape[1], hidden.shape[1]
    hidden = tf.stop_gradient(hidden)
    if m_len <= t_len:
        return hidden[:, t_len - m_len :]
    return tf.concat([memory[:, t_len:], hidden], axis=1)

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


def first_mems(n_layer: int, batch_size: int | tf.Tensor, m_len: int, d_model: int, dtype: str, masked: bool) -> Mems:
    """The memory before any text: zero vectors.

    Args:
        n_layer, batch_size, m_len, d_model: N, B, M, D.
        dtype: of the hidden states.
        masked: whether all slots count as empty (`mem_init="empty"`), or all as filled (with zero vectors).
    """
    shape = [batch_size, m_len, d_model]
    hidden = tuple(tf.zeros(shape, dtype) for _ in range(n_layer))
    return Mems(hidden, tf.fill([batch_size], 0 if masked else m_len))


def check_mems(mems: Mems, tokens: tf.Tensor, n_layer: int, m_len: int, d_model: int) -> None:
    """Raises ValueError unless these are mems of N layers, M slots and width D, for tokens [B, T]."""
    want = tf.TensorShape([tokens.shape[0], m_len, d_model])
    given = [memory.shape for memory in mems.hidden]
    if len(given) != n_layer or not all(want.is_compatible_with(shape) for shape in given):
        raise ValueError(
            f"mems must be {n_layer} tensors {want} for tokens {tokens.shape} and mem_len={m_len}, got "
            f"{[tuple(shape) for shape in given]}: take them from initial_mems with the same batch size and reach"
        )


def shift_in(memory: tf.Tensor, hidden: tf.Tensor, remembered: int | tf.Tensor | None = None) -> tf.Tensor:
    """The newest M of [memory [B, M, D], hidden [B, T, D]] along time, without gradient: [B, M, D].

    remembered: how many tokens of hidden, from the first on, are taken; an int32 scalar if the program does not know
        their number; None: all.
    """
    m_len = memory.shape[1]
    hidden = tf.stop_gradient(hidden)
    if tf.is_tensor(remembered):
        joined = tf.concat([memory, hidden], axis=1)
        newest = tf.slice(joined, [0, remembered, 0], [-1, m_len, -1])
        return tf.ensure_shape(newest, memory.shape)
    hidden = hidden[:, :remembered]
    t_len = hidden.shape[1]
    if m_len <= t_len:
        return hidden[:, t_len - m_len :]
    return tf.concat([memory[:, t_len:], hidden], axis=1)

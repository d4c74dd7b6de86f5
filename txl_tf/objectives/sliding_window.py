"""A model without recurrence, which computes a whole window for every token: so the paper evaluates Transformers."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL


class SlidingWindow:
    """Reads a text token by token; for each token it computes the window of the W newest tokens again.

    The reach's memory is not used.
    """

    def __init__(self, model: TransformerXL, reach: Reach, window: int):
        self.model = model
        self.reach = dataclasses.replace(reach, mem_len=0, same_length=False)
        self.window = window

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The state before any text: (the window's tokens int32 [B, W], the number of tokens in it)."""
        return tf.zeros([batch_size, self.window], tf.int32), tf.constant(0)

    def __call__(
        self, tokens: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Reads a segment, int32 [B, T] with T static, after a state: hidden [B, T, D], and the new state.

        Each hidden state is computed from the W newest tokens up to its own.
        """
        t_len = tokens.shape[1]
        hidden = tf.TensorArray(self.model.compute_dtype, t_len, element_shape=[None, self.model.config.d_model])

        def body(i: tf.Tensor, window: tf.Tensor, filled: tf.Tensor, hidden: tf.TensorArray) -> tuple[Any, ...]:
            # Until the window is full, tokens are added at its end; the newest token does not see the places after it.
            window = tf.where(filled < self.window, window, tf.roll(window, -1, axis=1))
            newest = tf.minimum(filled, self.window - 1)
            window = tf.where(tf.range(self.window) == newest, tokens[:, i, None], window)
            states, _ = self.model(window, reach=self.reach)
            return i + 1, window, newest + 1, hidden.write(i, tf.gather(states, newest, axis=1))

        _, window, filled, hidden = tf.while_loop(lambda i, *_: i < t_len, body, (0, *state, hidden))
        return tf.transpose(hidden.stack(), [1, 0, 2]), (window, filled)

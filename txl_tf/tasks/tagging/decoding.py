"""The likeliest sequence of tags that a scheme allows (Viterbi 1967), in TensorFlow ops."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

NEVER = -1e6
"""The log-probability of what is not allowed. It is finite: where nothing is allowed, the fewest breaches win."""


def only(tag: int, tags: int) -> np.ndarray:
    """Log-probabilities float32 [tags] that leave only one tag."""
    return np.where(np.arange(tags) == tag, 0.0, NEVER).astype(np.float32)


def legal_tags(log_probs: tf.Tensor, lengths: tf.Tensor, allowed: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    """The tags, int32 [W], of words [W, C] of texts with `lengths` words, and their log-probabilities [W]."""
    padded = tf.RaggedTensor.from_row_lengths(log_probs, lengths).to_tensor()
    tag = tf.boolean_mask(likeliest_legal(padded, lengths, allowed), tf.sequence_mask(lengths, tf.shape(padded)[1]))
    return tag, tf.gather(log_probs, tag, batch_dims=1)


def likeliest_legal(log_probs: tf.Tensor, lengths: tf.Tensor, allowed: np.ndarray) -> tf.Tensor:
    """The tags of sequences of words, int32 [B, W], whose log-probabilities have the largest sum.

    log_probs: [B, W, C], in nats, of sequences of `lengths` words, int [B]; what is beyond them says nothing.
    allowed: bool [C + 1, C + 1], see `schemes.allowed`.
    """
    batch, words, outside = tf.shape(log_probs)[0], tf.shape(log_probs)[1], len(allowed) - 1
    step = tf.constant(np.where(allowed, 0.0, NEVER), tf.float32)
    # A column more: no word is outside the text, whatever else is not allowed. And a row more, so that there is one.
    own = tf.pad(tf.cast(log_probs, tf.float32), [[0, 0], [0, 1], [0, 1]], constant_values=1e3 * NEVER)
    inside = tf.sequence_mask(lengths, words + 1)
    first = tf.tile(tf.constant(only(outside, outside + 1))[None], [batch, 1])
    stay = tf.tile(tf.range(outside + 1)[None], [batch, 1])

    def forward(before: tuple[tf.Tensor, tf.Tensor], now: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        log_prob, real = now
        sums = before[0][:, :, None] + step
        best = tf.argmax(sums, axis=1, output_type=tf.int32)
        return tf.where(real, tf.reduce_max(sums, axis=1) + log_prob, before[0]), tf.where(real, best, stay)

    over_words = tf.transpose(own, [1, 0, 2]), tf.transpose(inside)[:, :, None]
    sums, pointers = tf.scan(forward, over_words, (first, stay))
    last = tf.argmax(sums[-1] + step[:, outside], axis=1, output_type=tf.int32)
    # Before the pointers are followed, `last` is the tag of the last word; beyond the end they point at themselves.
    before = tf.scan(lambda tag, pointer: tf.gather(pointer, tag, batch_dims=1), pointers, last, reverse=True)
    return tf.transpose(tf.concat([before[1:], last[None]], axis=0))[:, :words]

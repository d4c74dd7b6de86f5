"""Choosing the next token from its log-probabilities."""

import dataclasses
import typing

import tensorflow as tf

from txl_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to choose: all limits apply, in the order temperature, top_k, top_p.

    Attributes:
        temperature: divides the log-probabilities; 0: always the most likely token.
        top_k: only the k most likely tokens (and those as likely as the last of them); 0: all.
        top_p: only the most likely tokens that together reach this probability; 1: all.
        repetition_penalty: makes tokens that the text already has less likely: before all else their logits are
            divided by it if positive, else multiplied (Keskar et al. 2019, arXiv 1909.05858, section 4.1, with
            log-probabilities as logits). 1: no penalty.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self):
        """Refuses settings that leave nothing to choose from."""
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature={self.temperature} must not be negative; 0 takes the most likely token")
        if self.top_k < 0:
            raise InputError(f"top_k={self.top_k} must not be negative; 0 takes all tokens")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p} must be above 0 and at most 1")
        if not 1 <= self.repetition_penalty < float("inf"):
            raise InputError(f"repetition_penalty={self.repetition_penalty} must be at least 1; 1 is no penalty")

    def choice(self, seeds):
        """The `Choice` of these settings with int32 seeds [B]."""
        return Choice(
            tf.constant(seeds, tf.int32),
            tf.constant(self.temperature, tf.float32),
            tf.constant(self.top_k, tf.int32),
            tf.constant(self.top_p, tf.float32),
            tf.constant(self.repetition_penalty, tf.float32),
        )


class Choice(typing.NamedTuple):
    """How to choose, as tensors: int32 seeds [B], and the fields of `Sampling` as scalars."""

    seeds: tf.Tensor
    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor

    @classmethod
    def spec(cls):
        """The TensorSpecs of a Choice for any batch size."""
        count, number = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
        return cls(tf.TensorSpec([None], tf.int32), number, count, number, number)


def penalise(log_prob, seen, penalty):
    """Log-probabilities [B, V], those of tokens that were seen (bool [B, V]) times the penalty: see `Sampling`."""
    return tf.where(seen, log_prob * penalty, log_prob)  # they are never positive


def sample(log_prob, random, temperature, top_k, top_p):
    """One token per row.

    Args:
        log_prob: float32 [B, V].
        random: float32 [B] in [0, 1): the row's token is the first at which the cumulative probability passes it.
        temperature, top_k, top_p: scalars, numbers or tensors; see `Sampling`.

    Returns:
        int32 [B].
    """
    temperature = tf.cast(temperature, tf.float32)
    logits = log_prob / tf.where(temperature > 0, temperature, 1.0)
    limited = (tf.cast(top_k, tf.int32) > 0) | (tf.cast(top_p, tf.float32) < 1)
    # Only a limit needs the sort.
    logits = tf.cond(limited, lambda: _limit(logits, top_k, top_p), lambda: logits)
    probability = tf.nn.softmax(logits)
    cumulative = tf.cumsum(probability, axis=-1)
    passed = (cumulative > random[:, None] * cumulative[:, -1:]) & (probability > 0)
    vocab_size = log_prob.shape[-1]
    drawn = tf.reduce_min(tf.where(passed, tf.range(vocab_size), vocab_size), axis=-1)
    best = tf.argmax(log_prob, axis=-1, output_type=tf.int32)
    # A parallel sum need not rise: where rounding lets no token pass, the most likely stands in.
    return tf.where((temperature > 0) & (drawn < vocab_size), drawn, best)


def _limit(logits, top_k, top_p):
    """Logits [B, V] with -inf for the tokens that top_k and top_p leave out."""
    vocab_size = logits.shape[-1]
    top_k = tf.cast(top_k, tf.int32)
    descending = tf.sort(logits, direction="DESCENDING")
    kept = tf.range(vocab_size) < tf.where(top_k > 0, top_k, vocab_size)
    probability = tf.nn.softmax(tf.where(kept, descending, -float("inf")))
    # A token stays while what is more likely than it does not yet reach top_p; the most likely always stays.
    kept &= tf.cumsum(probability, axis=-1, exclusive=True) < tf.cast(top_p, tf.float32)
    smallest = tf.reduce_min(tf.where(kept, descending, float("inf")), axis=-1, keepdims=True)
    return tf.where(logits >= smallest, logits, -float("inf"))


def uniform(seeds, positions):
    """Random numbers in [0, 1) that depend on nothing but their own seed and position.

    TensorFlow's stateless generators give a row other numbers in another batch, and on another device. This is a
    hash: two rounds of the 32-bit mixer "lowbias32" (Wellons 2018, https://nullprogram.com/blog/2018/07/31/).

    Args:
        seeds, positions: int32 [B].

    Returns:
        float32 [B], multiples of 2^-24.
    """
    bits = _mix(_mix(tf.bitcast(seeds, tf.uint32)) + tf.bitcast(positions, tf.uint32))
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24


def _mix(bits):
    def fold(bits, shift):
        return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32)))

    bits = fold(bits, 16) * tf.constant(0x7FEB352D, tf.uint32)
    bits = fold(bits, 15) * tf.constant(0x846CA68B, tf.uint32)
    return fold(bits, 16)

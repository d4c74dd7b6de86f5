"""Choosing the next token from its log-probabilities."""

import dataclasses

import tensorflow as tf

from txl_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to choose: all limits apply, in the order temperature, top_k, top_p.

    Attributes:
        temperature: divides the log-probabilities; 0: always the most likely token.
        top_k: only the k most likely tokens; 0: all.
        top_p: only the most likely tokens that together reach this probability; 1: all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        """Refuses settings that leave nothing to choose from."""
        if self.temperature < 0:
            raise InputError(f"temperature={self.temperature} must not be negative; 0 takes the most likely token")
        if self.top_k < 0:
            raise InputError(f"top_k={self.top_k} must not be negative; 0 takes all tokens")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p} must be above 0 and at most 1")


def sample(log_prob, seeds, temperature, top_k, top_p):
    """One token per row, each row from its own seed, so that a row does not depend on the others in its batch.

    Args:
        log_prob: float32 [B, V].
        seeds: int32 [B, 2].
        temperature, top_k, top_p: scalars, numbers or tensors; see `Sampling`.

    Returns:
        int32 [B].
    """
    vocab_size = log_prob.shape[-1]
    top_k, top_p = tf.cast(top_k, tf.int32), tf.cast(top_p, tf.float32)
    temperature = tf.cast(temperature, tf.float32)
    scaled = tf.nn.log_softmax(log_prob / tf.where(temperature > 0, temperature, 1.0))
    descending = tf.sort(scaled, direction="DESCENDING")
    kept = tf.range(vocab_size) < tf.where(top_k > 0, top_k, vocab_size)
    probability = tf.where(kept, tf.exp(descending), 0.0)
    probability /= tf.reduce_sum(probability, axis=-1, keepdims=True)
    # A token stays while what is more likely than it does not yet reach top_p; the most likely always stays.
    kept &= tf.cumsum(probability, axis=-1, exclusive=True) < top_p
    smallest = tf.reduce_min(tf.where(kept, descending, 0.0), axis=-1, keepdims=True)
    allowed = tf.where(scaled >= smallest, scaled, -float("inf"))

    def gumbel(seed):
        uniform = tf.random.stateless_uniform([vocab_size], seed, minval=1e-20)
        return -tf.math.log(-tf.math.log(uniform))

    noise = tf.vectorized_map(gumbel, seeds)  # argmax(log p + Gumbel noise) samples from p
    return tf.argmax(tf.where(temperature > 0, allowed + noise, log_prob), axis=-1, output_type=tf.int32)

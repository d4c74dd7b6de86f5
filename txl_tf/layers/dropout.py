"""Dropout as a pure function of its seed.

A training step derives all its seeds from (run seed, step, replica), so masks differ between replicas, repeat
exactly after a resume, and need no generator state in checkpoints.
"""

import tensorflow as tf


def checked_rate(rate, name, layer):
    """`rate`, or a ValueError if it is not in [0, 1)."""
    if not 0 <= rate < 1:
        raise ValueError(f"{type(layer).__name__}: {name} must be in [0, 1), got {rate}")
    return rate


def dropout(x, rate, seed=None, shared_axis=None):
    """Zeroes elements of x with probability `rate` and scales the rest by 1 / (1 - rate).

    Args:
        x: any float tensor.
        rate: in [0, 1); 0 returns x.
        seed: int32 [2]; None: drawn from TensorFlow's global generator (for layers in a stranger's model).
        shared_axis: an axis along which one mask serves for all; None: every element has its own.
    """
    if not rate:
        return x
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    noise_shape = None
    if shared_axis is not None:
        noise_shape = tf.tensor_scatter_nd_update(tf.shape(x), [[shared_axis % x.shape.rank]], [1])
    return tf.nn.experimental.stateless_dropout(x, rate, seed, noise_shape=noise_shape)


def token_dropout(embedded, tokens, vocab_size, rate, seed=None):
    """Drops words of the vocabulary: all occurrences in the batch at once, the others scaled by 1 / (1 - rate).

    As in AWD-LSTM (Merity et al. 2017, arXiv 1708.02182, section 4.3) rows of the embedding are zeroed; those of the
    softmax are not, even where the two are tied.

    Args:
        embedded: [B, T, D].
        tokens: int [B, T].
        vocab_size: V.
        rate, seed: as for `dropout`.
    """
    if not rate:
        return embedded
    keep_V = dropout(tf.ones([vocab_size], embedded.dtype), rate, seed)
    return embedded * tf.gather(keep_V, tokens)[..., None]


TIME = -2
"""The axis of time in [.., T, D], for `shared_axis`."""


def split_seed(seed, count):
    """`count` independent seeds: a list of int32 [2], or of None where seed is None."""
    return [None] * count if seed is None else tf.unstack(tf.random.split(seed, count))

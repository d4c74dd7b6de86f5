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
    shape = tf.shape(x)
    if shared_axis is not None:
        shape = tf.tensor_scatter_nd_update(shape, [[shared_axis % x.shape.rank]], [1])
    return tf.where(keep_mask(shape, rate, seed), x / (1 - rate), tf.zeros([], x.dtype))


def keep_mask(shape, rate, seed=None):
    """Bool of a shape, int32 [n]: false with probability `rate`; seed as for `dropout`."""
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return random_bits(shape, seed) >= int(rate * 2**32)


def random_bits(shape, seed):
    """Random uint32 of a shape, as a hash of each element's index and the seed.

    Good enough for masks and far cheaper than `tf.random.stateless_uniform`: compilers fuse it into whatever uses the
    mask, while Philox and Threefry write their bits to memory first (with XLA for CPU they took a sixth of a training
    step). The multiply-and-shift rounds are lowbias32's (C. Wellons, "Prospecting for Hash Functions", 2018, with
    the constants found later by TheIronBorn).

    Args:
        shape: int32 [n].
        seed: int32 [2]; the second word enters after a first fold, so that two seeds' bits are not one sequence
            shifted, and multiplied, so that small seeds do not lie close together.
    """
    seed = [tf.bitcast(word, tf.uint32) for word in tf.unstack(seed)]
    bits = tf.reshape(tf.cast(tf.range(tf.reduce_prod(shape)), tf.uint32), shape)
    bits = bits * 0x9E3779B9 + seed[0]
    bits = (_fold(bits, 16) ^ seed[1] * 0x85EBCA6B) * 0x21F0AAAD
    bits = _fold(bits, 15) * 0x735A2D97
    return _fold(bits, 15)


def _fold(bits, distance):
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(distance, tf.uint32))


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
    if seed is None:
        return [None] * count
    return tf.unstack(tf.bitcast(random_bits([count, 2], seed), tf.int32))

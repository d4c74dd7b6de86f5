"""Dropout as a pure function of its seed.

A training step derives all its seeds from (run seed, step, replica), so masks differ between replicas, repeat
exactly after a resume, and need no generator state in checkpoints.
"""

import tensorflow as tf


def dropout(x, rate, seed=None):
    """Zeroes elements of x with probability `rate` and scales the rest by 1 / (1 - rate).

    Args:
        x: any float tensor.
        rate: in [0, 1); 0 returns x.
        seed: int32 [2]; None: drawn from TensorFlow's global generator (for layers in a stranger's model).
    """
    if not rate:
        return x
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return tf.nn.experimental.stateless_dropout(x, rate, seed)


def split_seed(seed, count):
    """`count` independent seeds: a list of int32 [2], or of None where seed is None."""
    return [None] * count if seed is None else tf.unstack(tf.random.split(seed, count))

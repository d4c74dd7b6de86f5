"""Penalties on hidden states (Merity et al. 2017, arXiv 1708.01009), as sums that the number of targets divides."""

from __future__ import annotations

import tensorflow as tf


def activation(hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """The mean square of the states [B, T, D] that are counted, bool [B, T], times their number: a scalar.

    It is float32 if hidden is in bfloat16.
    """
    squares = _mean_squares(hidden)
    return tf.reduce_sum(tf.where(counted, squares, 0))


def slowness(hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """The mean square of the differences between neighbours in time, times the number of counted states.

    Both neighbours must be counted. Arguments and result as for `activation`.
    """
    squares = _mean_squares(hidden[:, 1:] - hidden[:, :-1])
    pairs = counted[:, 1:] & counted[:, :-1]
    states, differences = (tf.reduce_sum(tf.cast(which, squares.dtype)) for which in (counted, pairs))
    return tf.reduce_sum(tf.where(pairs, squares, 0)) * tf.math.divide_no_nan(states, differences)


def _mean_squares(x: tf.Tensor) -> tf.Tensor:
    """[B, T, D] -> [B, T]."""
    accurate = tf.float64 if x.dtype == tf.float64 else tf.float32
    return tf.reduce_mean(tf.cast(x, accurate) ** 2, axis=-1)

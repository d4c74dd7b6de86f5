"""Random numbers as a hash of a seed and an index: the same on every device and in any order, without a generator.

A seed is int32 [2], or int32 [B, 2] for a batch of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def random_bits(shape: tf.Tensor | Sequence[int], seed: tf.Tensor) -> tf.Tensor:
    """Random uint32 of a shape, as a hash of each element's index and the seed.

    It is good enough for masks and much cheaper than `tf.random.stateless_uniform`. Compilers fuse it into the
    operation that uses the mask, while Philox and Threefry write their bits to memory first. The multiply-and-shift
    rounds are those of lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018, with constants by TheIronBorn).

    Args:
        shape: int32 [n].
        seed: int32 [2]; the second word is added after a first fold. So the bits of one seed are not a shifted copy of
            those of another seed. It is also multiplied, so that small seeds are not close together. Or int32 [B, 2],
            where B is the shape's first number: then an element's index is its index within its lane.
    """
    shape = tf.convert_to_tensor(shape)
    if len(seed.shape) == 1:
        first, second = tf.unstack(seed)
        axes = shape
    else:
        words = tf.reshape(seed, [-1, 2, *[1] * (shape.shape[0] - 1)])
        first, second = words[:, 0], words[:, 1]
        axes = shape[1:]
    # index * _SPREAD + first, summed axis by axis, starting with the seed. The indices are constants: if the sum
    # started with them, TensorFlow would compute it at compile time, and the program would contain a constant as
    # large as each mask. The last two axes together are one constant if it is small: one addition less for each number.
    spread, rank = tf.bitcast(first, tf.uint32), axes.shape[0]
    sizes = tf.get_static_value(shape)
    joined = 2 if rank > 1 and sizes is not None and sizes[-2:].prod() <= _LARGEST_CONSTANT else 1
    for begin, end in itertools.pairwise([*range(rank - joined + 1), rank]):
        stride = tf.cast(tf.reduce_prod(axes[end:]), tf.uint32) * _SPREAD
        index = tf.cast(tf.range(tf.reduce_prod(axes[begin:end])), tf.uint32) * stride
        spread += tf.reshape(index, tf.concat([axes[begin:end], [1] * (rank - end)], 0) if end < rank else axes[begin:])
    return _mix(spread, second)


def bits_at(index: tf.Tensor | np.ndarray, seed: tf.Tensor) -> tf.Tensor:
    """The numbers that `random_bits` makes for the elements with these indices, uint32.

    Args:
        index: integers [..], an element's index within its lane, or in all of the shape if that has one seed.
        seed: int32 [.., 2], broadcast to the indices.
    """
    first, second = tf.unstack(seed, 2, axis=-1)
    return _mix(tf.cast(index, tf.uint32) * _SPREAD + tf.bitcast(first, tf.uint32), second)


def numbered_seeds(seed: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Seeds int32 [.., 2], one for each of the numbers, int [..], derived from a seed int32 [2] or [.., 2]."""
    first, second = seed[..., :1], seed[..., 1:]
    index = tf.cast(numbers, tf.uint32)[..., None] * 2 + tf.constant([0, 1], tf.uint32)
    return tf.bitcast(_mix(index * _SPREAD + tf.bitcast(first, tf.uint32), second), tf.int32)


_LARGEST_CONSTANT = 1 << 19  # numbers in a constant of a program
_SPREAD = 0x9E3779B9  # an odd number whose multiples are far apart


def _mix(spread: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """The bits of uint32 numbers and a seed's second word, int32, broadcast."""
    bits = (fold(spread, 16) ^ tf.bitcast(second, tf.uint32) * 0x85EBCA6B) * 0x21F0AAAD
    bits = fold(bits, 15) * 0x735A2D97
    return fold(bits, 15)


def fold(bits: tf.Tensor, distance: int) -> tf.Tensor:
    """Bits, uint32, XORed with themselves shifted right by `distance`: a step of the hashes."""
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(distance, tf.uint32))


def split_seed(seed: tf.Tensor | None, count: int) -> list[tf.Tensor | None]:
    """`count` independent seeds of seed's shape, int32 [2] or [B, 2]: a list, of None if seed is None."""
    if seed is None:
        return [None] * count
    index = np.arange(2 * count, dtype=np.uint32).reshape(count, 2)
    return tf.unstack(tf.bitcast(bits_at(index, seed[..., None, None, :]), tf.int32), count, axis=-2)


def random_integers(bits: tf.Tensor, bound: tf.Tensor | int) -> tf.Tensor:
    """Random bits, uint32, as integers from 0 to bound - 1, int64; `bound`, of any shape that fits, is at least 1.

    All are equally likely, up to a relative error of bound / 2**32.
    """
    return tf.bitwise.right_shift(tf.cast(bits, tf.int64) * tf.cast(bound, tf.int64), tf.constant(32, tf.int64))

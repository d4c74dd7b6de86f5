"""Relative positions: sinusoids and the relative shift, as pure functions.

Shapes: B batch, H heads, T queries (the current segment), M memory slots, K = M + T keys, D = d_model.
Query i of the segment sits at position M + i of the keys, so its *distance* to key j is M + i - j: zero for
itself, positive into the past, negative into the future.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.gradients import custom_gradient


def sinusoids(distances: tf.Tensor, d_model: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """The fixed encoding R of the paper (section 3.3), in the official layout [sin | cos].

    R[k] = [sin(d_k w_0), .., sin(d_k w_{D/2-1}), cos(d_k w_0), ..], with w_i = 10000^(-2i / D).

    Args:
        distances: [K] distances in tokens, of any numeric dtype.
        d_model: D, even.
        dtype: of the result. It is computed in float64 if that is float64, otherwise in float32, to within 3e-6 for
            distances up to 25,000. (Angles as products in float32 would be off by 1e-4 at a distance of 1,600.)

    Returns:
        [K, D].

    Raises:
        ValueError: d_model is odd.
    """
    if d_model % 2:
        raise ValueError(f"sinusoids need an even d_model, half sines and half cosines, got {d_model}")
    compute_dtype = tf.float64 if dtype == tf.float64 else tf.float32
    distances = tf.cast(distances, compute_dtype)[:, None]
    turns = frequencies(d_model) / (2 * math.pi)  # per token
    # Whole turns are left out before they can cost digits: a distance times a multiple of 2^-12 is exact in float32.
    coarse = np.round(turns * 2**12) / 2**12
    whole = distances * tf.constant(coarse, compute_dtype)
    part_KxF = (whole - tf.round(whole)) + distances * tf.constant(turns - coarse, compute_dtype)
    angle_KxF = 2 * math.pi * part_KxF
    return tf.cast(tf.concat([tf.sin(angle_KxF), tf.cos(angle_KxF)], axis=-1), dtype)


def frequencies(d_model: int) -> np.ndarray:
    """w_i = 10000^(-2i / D) of `sinusoids`, in radians per token: float64 [D/2]."""
    return 10000.0 ** (-np.arange(0, d_model, 2) / d_model)


def key_distances(k_len: int, clamp_len: int = -1, future: int = 0) -> tf.Tensor:
    """Distances of the relative positions, farthest into the past first: int32 [K + future], K-1, .., 0, .., -future.

    Args:
        k_len: K.
        clamp_len: if positive, larger distances, on both sides, are treated as this one (the official `clamp_len`).
        future: how many distances into the future follow: T - 1 where a query may see every key of its segment.
    """
    distances = tf.range(k_len - 1, -1 - future, -1)
    return tf.clip_by_value(distances, -clamp_len, clamp_len) if clamp_len > 0 else distances


def relative_shift(scores: tf.Tensor, k_len: int | None = None) -> tf.Tensor:
    """Turns scores by distance into scores by key (paper, appendix B).

    Column c of the input is for distance C-1-c; column j of the output is for key j, whose distance to query i
    is C-T+i-j. Row i therefore moves left by T-1-i. From the right the start of the next row moves in: these values
    are in the places of future keys, which the causal mask hides.

    T = 2, C = 3, columns by distance:

        [[a2 a1 a0],       [[a1 a0  . ],
         [b2 b1 b0]]   ->   [b2 b1 b0 ]]

    The shift is two reshapes: if the numbers, from the T-th on, are read as rows that are shorter by one, each row is
    shifted by one more than the row before. These rows have C - 1 columns; if all C columns are needed, one column is
    padded in front first.

    On a CPU the gradient moves each row back by its index: for that of the reshapes XLA divides once for each number,
    which takes twice as long. There the gradient leaves out what moved in from the next row, which the mask hides.

    Args:
        scores: [.., T, C], C >= T; leading dimensions and T, C static.
        k_len: K, how many of the columns are returned; None: C.

    Returns:
        [.., T, K].
    """
    k_len = k_len or scores.shape[-1]
    if not platform.on_cpu():
        return _by_reshapes(scores, k_len)

    @custom_gradient
    def run(scores: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        t_len, columns = scores.shape[-2:]
        first = t_len - 1 - tf.range(t_len)[:, None]
        return _by_reshapes(scores, k_len), lambda d_shifted: _placed(d_shifted, first, columns)

    return run(scores)


def _by_reshapes(scores: tf.Tensor, k_len: int) -> tf.Tensor:
    """The relative shift of scores [.., T, C]: [.., T, K]."""
    *lead, t_len, columns = scores.shape
    first = t_len - 1
    if k_len == columns:
        scores = tf.pad(scores, [[0, 0]] * (len(lead) + 1) + [[1, 0]])
        columns, first = columns + 1, t_len
    lead = [-1 if size is None else size for size in lead]
    flat = tf.reshape(scores, [*lead, t_len * columns])
    # Not flat[..., first:]: with TensorFlow's kernels for CPU its gradient takes ten times as long as that of tf.slice.
    flat = tf.slice(flat, [0] * len(lead) + [first], [-1] * len(lead) + [t_len * (columns - 1)])
    shifted = tf.reshape(flat, [*lead, t_len, columns - 1])
    return shifted if k_len == columns - 1 else shifted[..., :k_len]


def columns_from(scores: tf.Tensor, first: tf.Tensor, k_len: int) -> tf.Tensor:
    """K neighbouring columns of each row, from a column on that depends on lane and row: the shift of single rows.

    The gradient moves the columns back. TensorFlow's would add up single numbers, which takes compilers far longer.

    Args:
        scores: [B, H, P, C].
        first: int32 [B, P], in 0, .., C - K.
        k_len: K.

    Returns:
        [B, H, P, K], where [b, h, p, j] is scores[b, h, p, first[b, p] + j].
    """

    @custom_gradient
    def run(scores: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        from_column = first[:, None, :, None]
        *lead, columns = tf.unstack(tf.shape(scores))
        row = tf.reshape(tf.range(tf.reduce_prod(lead)), [*lead, 1])
        taken = tf.gather(tf.reshape(scores, [-1]), row * columns + from_column + tf.range(k_len))
        return taken, lambda d_taken: _placed(d_taken, from_column, scores.shape[-1])

    return run(scores)


def _placed(rows: tf.Tensor, first: tf.Tensor, columns: int) -> tf.Tensor:
    """[.., C]: the rows [.., K], each from a column on, int32 [.., 1] or broadcastable to that; elsewhere zero."""
    *lead, k_len = tf.unstack(tf.shape(rows))
    column = tf.range(columns) - first
    index = tf.reshape(tf.range(tf.reduce_prod(lead)), [*lead, 1]) * k_len + column
    moved = tf.gather(tf.reshape(rows, [-1]), tf.clip_by_value(index, 0, tf.size(rows) - 1))
    return tf.where((column >= 0) & (column < k_len), moved, tf.zeros([], rows.dtype))

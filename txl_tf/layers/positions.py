"""Relative positions: distances between queries and keys, and the sinusoids that encode them.

Shapes: T queries (the current segment), M memory slots, K = M + T keys, D = d_model. Query i of the segment sits at
position M + i of the keys, so its *distance* to key j is M + i - j: zero for itself, positive into the past, negative
into the future.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from txl_tf.ops.plain import accurate_dtype


def sinusoids(distances: tf.Tensor, d_model: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """The fixed encoding R, [K, D], of the paper (section 3.3), in the official layout [sin | cos].

    R[k] = [sin(d_k w_0), .., sin(d_k w_{D/2-1}), cos(d_k w_0), ..], with w_i = 10000^(-2i / D).

    Args:
        distances: [K] distances in tokens, of any numeric dtype.
        d_model: D, even.
        dtype: of the result. It is computed in float64 if that is float64, otherwise in float32, to within 3e-6 for
            distances up to 25,000. (Angles as products in float32 would be off by 1e-4 at a distance of 1,600.)

    Raises:
        ValueError: d_model is odd.
    """
    if d_model % 2:
        raise ValueError(f"sinusoids need an even d_model, half sines and half cosines, got {d_model}")
    compute_dtype = accurate_dtype(dtype)
    distances = tf.cast(distances, compute_dtype)[:, None]
    turns = frequencies(d_model) / (2 * math.pi)  # per token
    # Whole turns are removed before they cost digits: a distance times a multiple of 2^-12 is exact in float32.
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

    clamp_len: if positive, larger distances on both sides are treated as this one (the official `clamp_len`).
    future: how many distances into the future follow: T - 1 if a query may see every key of its segment.
    """
    distances = tf.range(k_len - 1, -1 - future, -1)
    return tf.clip_by_value(distances, -clamp_len, clamp_len) if clamp_len > 0 else distances

"""The relative shift. Shapes: B batch, H heads, T queries, K keys, C columns, one for each distance."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from txl_tf.ops.gradients import WithGradient, custom_gradient


def relative_shift(scores: tf.Tensor, k_len: int | None = None) -> tf.Tensor:
    """Turns scores by distance into scores by key (paper, appendix B).

    Column c of the input is for distance C-1-c; column j of the output is for key j, whose distance to query i is
    C-T+i-j. So row i moves left by T-1-i. From the right the start of the next row moves in; it takes the places of
    future keys, which the causal mask hides.

    T = 2, C = 3, columns by distance:

        [[a2 a1 a0],       [[a1 a0  . ],
         [b2 b1 b0]]   ->   [b2 b1 b0 ]]

    The shift is two reshapes: if the numbers, from the T-th on, are read as rows that are shorter by one, each row
    moves by one less than the row before. These rows have C - 1 columns; if all C columns are needed, a column is first
    padded in front.

    scores: [.., T, C], C >= T, leading dimensions and T, C static; the result has K columns, or C if K is None.
    """
    k_len = k_len or scores.shape[-1]
    *lead, t_len, columns = scores.shape
    if t_len == 1:
        return scores if k_len == columns else scores[..., :k_len]
    first = t_len - 1
    if k_len == columns:
        scores = tf.pad(scores, [[0, 0]] * (len(lead) + 1) + [[1, 0]])
        columns, first = columns + 1, t_len
    lead = [-1 if size is None else size for size in lead]
    flat = tf.reshape(scores, [*lead, t_len * columns])
    # Not flat[..., first:]: TensorFlow's CPU kernel for its gradient is far slower than that for tf.slice.
    flat = tf.slice(flat, [0] * len(lead) + [first], [-1] * len(lead) + [t_len * (columns - 1)])
    shifted = tf.reshape(flat, [*lead, t_len, columns - 1])
    return shifted if k_len == columns - 1 else shifted[..., :k_len]


def relative_shift_moved_back(scores: tf.Tensor, k_len: int) -> tf.Tensor:
    """`relative_shift` with a gradient for CPUs, which moves each row back by its index.

    Differentiating the reshapes would cost XLA a division per number. This gradient ignores the numbers that moved in
    from the next row, which the mask hides.
    """

    @custom_gradient
    def run(scores: tf.Tensor) -> WithGradient:
        return relative_shift(scores, k_len), lambda d_shifted: _moved_back(d_shifted, scores.shape)

    return run(scores)


def _moved_back(rows: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """[.., T, C], the shape: of the rows [.., T, K] row i from column T-1-i on, as far as it goes; elsewhere zero.

    All leading dimensions share one index of [T, C]. With an index for each number TensorFlow would compute it
    beforehand, and the program would contain a constant as large as the scores of each layer.
    """
    (t_len, columns), k_len = shape[-2:], rows.shape[-1]
    row = np.arange(t_len)[:, None]
    column = np.arange(columns) - (t_len - 1 - row)
    index = np.clip(row * k_len + column, 0, t_len * k_len - 1)
    moved = tf.gather(tf.reshape(rows, [-1, t_len * k_len]), index.astype(np.int32).ravel(), axis=1)
    lead = [-1 if size is None else size for size in shape]
    return tf.where((column >= 0) & (column < k_len), tf.reshape(moved, lead), tf.zeros([], rows.dtype))


def columns_from(scores: tf.Tensor, first: tf.Tensor, k_len: int) -> tf.Tensor:
    """K neighbouring columns of each row, from a column on that depends on lane and row: the shift of single rows.

    scores: [B, H, P, C]; first: int32 [B, P], in 0, .., C - K. In the result [B, H, P, K], [b, h, p, j] is
    scores[b, h, p, first[b, p] + j]. The gradient moves the columns back; TensorFlow's would add up single numbers.
    """

    @custom_gradient
    def run(scores: tf.Tensor) -> WithGradient:
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

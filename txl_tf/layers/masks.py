"""Attention masks, as pure functions: true where a query may see a key.

Shapes: B batch, T queries (the current segment), M memory slots, K = M + T keys. Query i of the segment is key M + i.
"""

from __future__ import annotations

import tensorflow as tf


def visible_keys(t_len: int, m_len: int, window: int | None = None, valid: tf.Tensor | None = None) -> tf.Tensor:
    """Which of K = M + T keys each of T queries may attend to: bool [T, K], or [B, 1, T, K] with `valid`.

    window: the number of keys a query sees, itself included (`same_length`); None: all of the past.
    valid: [B], how many memory slots, counted from the newest, hold real states (`mem_init="empty"`); None: all.
    """
    distance_TxK = m_len + tf.range(t_len)[:, None] - tf.range(m_len + t_len)[None, :]
    visible = distance_TxK >= 0
    if window is not None:
        visible &= distance_TxK < window
    if valid is not None:
        visible = visible[None, None] & ~empty_slots(t_len, m_len, valid)[:, None, None]
    return visible


def empty_slots(t_len: int, m_len: int, valid: tf.Tensor) -> tf.Tensor:
    """Which of the M + T keys are memory slots without a real state: bool [B, K]; arguments as for `visible_keys`."""
    return tf.range(m_len + t_len)[None, :] < m_len - valid[:, None]


def without_padding(visible: tf.Tensor, padding: tf.Tensor) -> tf.Tensor:
    """A mask, bool [B, 1, T, K], in which no token sees padding but padding itself: every query must see a key.

    visible: bool [T, K], or broadcastable to [B, H, T, K]; a token must see itself.
    padding: bool [B, T], which tokens of the segment are padding.
    """
    t_len, k_len = visible.shape[-2:]
    hidden_BxK = tf.pad(padding, [[0, 0], [k_len - t_len, 0]])
    itself_TxK = k_len - t_len + tf.range(t_len)[:, None] == tf.range(k_len)[None, :]
    return visible & (~hidden_BxK[:, None, None] | itself_TxK)


def within_reach_of_segments(t_len: int, m_len: int, segment_len: int, reach: int) -> tf.Tensor:
    """Which keys each query may attend to if the T queries belong to several segments that are read at once.

    bool [T, K]; keys in a query's future are not hidden. reach: how many keys before its own segment a query sees.
    """
    query = tf.range(t_len)[:, None]
    return m_len + query - tf.range(m_len + t_len)[None, :] <= reach + query % segment_len


def permutation_visible(rank: tf.Tensor, context: tf.Tensor, target: tf.Tensor, reuse_len: int = 0) -> tf.Tensor:
    """Which tokens of the segment XLNet's query stream sees, given factorization orders.

    Context tokens are visible to all tokens of their part, and see only context. Targets, which are predicted, see
    context and tokens of smaller rank, but not themselves. Functional tokens, SEP and CLS, see the same as targets, and
    themselves. In the content stream every token sees itself, too (`stream_masks`).

    Each token becomes known at a time: -1 for context, its rank for the others. Its query has a time, too: the rank for
    a target, and just after the token becomes known for any other. A query sees the tokens that are known before its
    time. All times of the second part are later than those of the first.

    Args:
        rank: int [B, T], each token's place in the order of its part, below T; different for all tokens of a part but
            context.
        context, target: bool [B, T]; the result is bool [B, T, T].
        reuse_len: length of the first part, R. It sees no token of the second; the second sees all of the first.
    """
    t_len = rank.shape[1]
    second = tf.cast(tf.range(t_len) >= reuse_len, rank.dtype) * (t_len + 1)
    known = tf.where(context, -1, rank)
    looks = tf.where(target, rank, known + 1)
    return (looks + second)[:, :, None] > (known + second)[:, None, :]


def stream_masks(
    t_len: int,
    m_len: int,
    visible: tf.Tensor | None = None,
    padding: tf.Tensor | None = None,
    valid: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The masks of XLNet's query stream and of its content stream, in which every token also sees itself.

    Both can be broadcast to bool [B, H, T, K]. The M slots of memory are visible, as far as they are valid.

    visible: bool [B, T, T] or [1, T, T], which tokens of the segment the query stream sees; None: all.
    padding: bool [B, T], true for padding; None: there is no padding.
    valid: as for `visible_keys`.
    """
    seen = tf.ones([1, 1, t_len], tf.bool) if visible is None else visible
    if padding is not None:
        seen &= ~padding[:, None]
    itself = m_len + tf.range(t_len)[:, None] == tf.range(m_len + t_len)[None, :]
    if m_len:
        memory = tf.ones([tf.shape(seen)[0], seen.shape[1], m_len], tf.bool)
        seen = tf.concat([memory, seen], axis=-1)
    content = seen if visible is None and padding is None else seen | itself
    if valid is not None:
        filled = ~empty_slots(t_len, m_len, valid)[:, None]
        seen, content = seen & filled, content & filled
    return seen[:, None], content[:, None]


def rows_at(x: tf.Tensor, places: tf.Tensor | None) -> tf.Tensor:
    """The rows of x at these places of axis -2, int [B, P]; x itself if places is None, or if x has one row for all.

    x is [T, n], or [.., T, n] with a first axis of B or 1.
    """
    if places is None or x.shape[-2] == 1:
        return x
    if x.shape.rank == 2:
        return tf.gather(x, places)[:, None]
    if x.shape[0] == 1:
        x = tf.broadcast_to(x, tf.concat([tf.shape(places)[:1], tf.shape(x)[1:]], 0))
    return tf.gather(x, places, axis=x.shape.rank - 2, batch_dims=1)

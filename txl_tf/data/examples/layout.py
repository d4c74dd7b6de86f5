"""The official code's layout of an example: A SEP [B SEP] CLS, cut to a length, padded on the left.

All of it is TensorFlow ops, so that a SavedModel lays out its inputs by the same code. Shapes: n texts, T tokens.
"""

from __future__ import annotations

import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.data.vocabularies.xlnet import remove_space

FIRST, SECOND, CLS, PADDING = 0, 1, 2, 4
"""Segment ids of A and its SEP, of B and its SEP, of CLS, and of padding; the official code's SEP, 3, is never used."""

MAX_QA = 128
"""A question with its option is cut to its last MAX_QA tokens, as in the official code."""


def lay_out(
    vocabulary: Vocabulary, texts: tf.Tensor, second: tf.Tensor, t_len: int | None = None, max_segments: int = 1
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Ids and segments, int32 RaggedTensors [n, None], of texts and pairs of texts, cut as by `cut_longer`.

    texts, second: strings [n]; "" where there is no second text.
    t_len: T; None: nothing is cut. max_segments: the largest length, in segments of T tokens.
    """
    first, other = encode(vocabulary, texts), encode(vocabulary, second)
    if t_len is not None:
        first, other = cut_longer(first, other, t_len, max_segments)
    return join(vocabulary, first, other)


def encode(vocabulary: Vocabulary, texts: tf.Tensor) -> tf.RaggedTensor:
    """Strings [n] -> ids, int32 RaggedTensor [n, None]."""
    # As in the official code, any white space between words becomes one space.
    texts = remove_space(texts) if vocabulary.ignores_space else texts
    return tf.cast(vocabulary.encode_tensor(texts), tf.int32)


def cut_longer(
    first: tf.RaggedTensor, second: tf.RaggedTensor, t_len: int, max_segments: int = 1
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts texts so that they fit into T tokens together with SEP, SEP and CLS, or SEP and CLS if there is no second.

    Until they fit, the longer text loses its last token (the second text, if they are equally long). If texts may have
    several segments of T tokens, the second text is cut to fit into the last segment, since memory counts as the first.
    """
    second, t_len = second[:, : t_len - 3], t_len * max_segments
    total = t_len - 3 + tf.cast(second.row_lengths() == 0, tf.int64)
    lengths = first.row_lengths(), second.row_lengths()
    keep = tf.minimum(lengths[0], tf.maximum(total - total // 2, total - lengths[1]))
    return cut(first, keep, t_len), cut(second, tf.minimum(lengths[1], total - keep), t_len)


def cut_article(
    articles: tf.RaggedTensor, texts: tf.RaggedTensor, t_len: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts articles and questions with options so that they fit into T tokens with SEP, SEP and CLS.

    A question with its option keeps its last MAX_QA tokens; the article keeps its first tokens, as many as still fit.
    """
    room = t_len - 3
    texts = texts[:, -min(MAX_QA, room) :]
    articles = cut(articles, tf.minimum(articles.row_lengths(), room - texts.row_lengths()), t_len)
    return articles, texts


def cut(texts: tf.RaggedTensor, lengths: tf.Tensor, most: int) -> tf.RaggedTensor:
    """The first tokens of each text: `lengths`, int64 [n], of them, none above `most`."""
    dense = texts[:, :most].to_tensor(shape=[None, most])
    return tf.RaggedTensor.from_tensor(dense, lengths=lengths)


def join(
    vocabulary: Vocabulary, first: tf.RaggedTensor, second: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """A SEP CLS where B is empty, otherwise A SEP B SEP CLS: ids and segments, int32 RaggedTensors [n, None]."""
    sep, cls = vocabulary.special_token("sep"), vocabulary.special_token("cls")
    lengths = [tf.cast(side.row_lengths(), tf.int32) for side in (first, second)]
    one, paired = tf.ones_like(lengths[0]), tf.cast(lengths[1] > 0, tf.int32)

    def mark(token: int, count: tf.Tensor) -> tf.Tensor:
        return tf.fill([tf.reduce_sum(count)], token)

    parts = [  # the parts of all rows: ids, how many of them each row has, segment
        (first.flat_values, lengths[0], FIRST),
        (mark(sep, one), one, FIRST),
        (second.flat_values, lengths[1], SECOND),
        (mark(sep, paired), paired, SECOND),
        (mark(cls, one), one, CLS),
    ]
    total = tf.add_n([count for _, count, _ in parts])
    begin, places = tf.cumsum(total, exclusive=True), []
    for ids, count, _ in parts:
        shift = tf.repeat(begin - tf.cumsum(count, exclusive=True), count)
        places.append(tf.range(tf.size(ids)) + shift)
        begin += count
    segments = [tf.fill(tf.shape(ids), segment) for ids, _, segment in parts]
    joined = [tf.dynamic_stitch(places, values) for values in ([ids for ids, _, _ in parts], segments)]
    return tuple(tf.RaggedTensor.from_row_lengths(values, tf.cast(total, tf.int64)) for values in joined)


def pad_left(ids: tf.RaggedTensor, segments: tf.RaggedTensor, t_len: int) -> dict[str, tf.Tensor]:
    """Examples of T tokens from ids and segments as `join` gives them, none longer than T.

    By name: tokens and segments, int32 [n, T], and padding, bool [n, T], true where there is no token. As in the
    official code, padding has token 0 and a segment of its own.
    """
    there = tf.range(t_len, dtype=tf.int64) >= t_len - ids.row_lengths()[:, None]
    places, shape = tf.where(there), tf.shape(there, out_type=tf.int64)

    def padded(values: tf.RaggedTensor, fill: int) -> tf.Tensor:
        dense = tf.scatter_nd(places, values.flat_values - fill, shape) + fill  # `shape` is filled with 0
        return tf.ensure_shape(dense, [None, t_len])

    return {"tokens": padded(ids, 0), "segments": padded(segments, PADDING), "padding": ~there}

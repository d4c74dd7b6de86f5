"""Tags of words in TensorFlow ops, for SavedModels: parts of texts, the words' first pieces, and entities.

The rules are those of words.py, examples.py and schemes.py, which use NumPy.
Shapes: B texts, P parts of all of them, N pieces of all texts, W words of all texts.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.examples.layout import join, pad_left
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.tasks.base import Served, Signatures
from txl_tf.tasks.tagging import schemes
from txl_tf.tasks.tagging.decoding import legal_tags, only
from txl_tf.tasks.tagging.examples import MARKS
from txl_tf.tasks.tagging.schemes import Tags
from txl_tf.tasks.tagging.words import MARK, SPACE, WORD, character_kinds


class WordsTensor(typing.NamedTuple):
    """The words of n texts: where they begin and end, int32 RaggedTensors [n, None]."""

    begin: tf.RaggedTensor
    end: tf.RaggedTensor


def word_places(texts: tf.Tensor, runs: bool = False) -> WordsTensor:
    """As `words.word_places`, of strings [n]."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    begins, kinds = (tf.constant(part) for part in character_kinds(runs))
    kind = tf.gather(kinds, tf.searchsorted(begins, codes.flat_values, side="right") - 1)
    rows, before, after = codes.value_rowids(), kind[:-1], kind[1:]
    joined = (before >= WORD) & tf.equal(after, MARK)
    joined |= (tf.equal(before, WORD) | tf.equal(before, MARK)) & tf.equal(after, WORD)
    joined &= tf.equal(rows[1:], rows[:-1])
    some = tf.fill([tf.minimum(tf.size(kind), 1)], True)
    is_word = tf.not_equal(kind, SPACE)
    first = tf.concat([some, ~joined], axis=0) & is_word
    last = tf.concat([~joined, some], axis=0) & is_word
    column = tf.cast(tf.ragged.range(codes.row_lengths()).flat_values, tf.int32)
    row = tf.boolean_mask(rows, first)
    begin, end = tf.boolean_mask(column, first), tf.boolean_mask(column, last) + 1
    count = codes.nrows()
    return WordsTensor(*(tf.RaggedTensor.from_value_rowids(place, row, count) for place in (begin, end)))


def parts_of(ids: tf.RaggedTensor, vocabulary: Vocabulary, size: int) -> tuple[tf.RaggedTensor, ...]:
    """Texts in parts, at least one each, of at most `size` pieces, and marks: ids and segments, int32 [P, None]."""
    count = ids.row_lengths()
    needed = tf.maximum(-(-count // size), 1)
    first = tf.ragged.range(needed).flat_values * size
    length = tf.minimum(tf.repeat(count, needed) - first, size)
    own = tf.RaggedTensor.from_row_lengths(ids.flat_values, length)
    nothing = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros_like(length))
    return join(vocabulary, own, nothing)


def of_pieces(ids: tf.RaggedTensor, values: tf.Tensor) -> tf.Tensor:
    """Values of parts, padded on the left, [P, T] -> the values of all pieces [N], without marks and padding."""
    t_len = values.shape[1]
    column, first = tf.range(t_len, dtype=tf.int64)[None], t_len - ids.row_lengths()[:, None]
    return tf.boolean_mask(values, (column >= first) & (column < t_len - MARKS))


def at_words(
    begin: tf.RaggedTensor, end: tf.RaggedTensor, words: WordsTensor, given: Sequence[tuple[tf.Tensor, Any]]
) -> list[tf.Tensor]:
    """Values at the words' first pieces, [W, ..]; see `examples.first_pieces`.

    begin, end: int32 [B, None], the pieces' places. given: their values [N, ..], each with that of no piece.
    """
    row, begin, end = begin.value_rowids(), begin.flat_values, end.flat_values
    visible = tf.where(begin < end)[:, 0]
    # The places of all texts as one increasing row of numbers: places within a text are below `most`.
    most = tf.cast(tf.reduce_max(tf.concat([end, words.end.flat_values, [0]], axis=0)), tf.int64) + 1
    own = words.begin.value_rowids()
    ends = tf.gather(row * most + tf.cast(end, tf.int64), visible)
    place = tf.searchsorted(ends, own * most + tf.cast(words.begin.flat_values, tf.int64), side="right")
    there = place < tf.size(visible)
    piece = tf.gather(tf.concat([visible, [0]], axis=0), place)

    def at_first_piece(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.concat([values, tf.zeros([1, *values.shape[1:]], values.dtype)], axis=0), piece)

    there &= tf.equal(at_first_piece(row), own) & (at_first_piece(begin) < words.end.flat_values)
    return [
        tf.where(tf.reshape(there, [-1, *[1] * (values.shape.rank - 1)]), at_first_piece(values), default)
        for values, default in given
    ]


def entities(known: Tags, words: WordsTensor, tag: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
    """The entities of words with these tags, int [W]; see `Tags.entities`.

    Their kinds, strings, and the places in characters where they begin and end, int32: three RaggedTensors [B, None].
    """
    row, kind = words.begin.value_rowids(), tf.gather(known.kinds, tag)
    new = tf.gather(known.starts, tag) | tf.equal(kind, known.NOTHING)
    follows = tf.gather(known.closes, tag[:-1]) | tf.not_equal(kind[1:], kind[:-1]) | tf.not_equal(row[1:], row[:-1])
    new |= tf.concat([tf.fill([tf.minimum(tf.size(tag), 1)], True), follows], axis=0)
    first = tf.where(new)[:, 0]
    last = tf.concat([first[1:], [tf.size(tag, tf.int64)]], axis=0)[: tf.size(first)] - 1
    is_entity = tf.not_equal(tf.gather(kind, first), known.NOTHING)
    first, last = tf.boolean_mask(first, is_entity), tf.boolean_mask(last, is_entity)
    found = (
        tf.gather(tf.constant(known.names, tf.string), tf.gather(kind, first)),
        tf.gather(words.begin.flat_values, first),
        tf.gather(words.end.flat_values, last),
    )
    rows, count = tf.gather(row, first), words.begin.nrows()
    return tuple(tf.RaggedTensor.from_value_rowids(values, rows, count) for values in found)


def signatures(served: Served) -> Signatures:
    """`tag`: the tags of each text's words, and the entities that they name; see README."""
    vocabulary, labels = served.vocabulary, served.labels

    def tag(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        (ids, begin, end), words = served.encode(texts), word_places(texts, served.scheme == schemes.OLDER)
        parts, segments = parts_of(ids, vocabulary, served.lengths[-1] - MARKS)
        found = served.in_groups(
            tf.reduce_max(parts.row_lengths()),
            lambda t_len: pad_left(parts, segments, t_len),
            lambda found: {name: of_pieces(parts, values) for name, values in found.items()},
        )
        default = schemes.default_tag(labels)
        if "log_probs" in found:
            log_probs = tf.cast(found["log_probs"], tf.float32)
            (of_words,) = at_words(begin, end, words, [(log_probs, only(default, len(labels)))])
            tag, log_prob = legal_tags(of_words, words.begin.row_lengths(), schemes.allowed(labels, served.scheme))
        else:
            log_prob = tf.cast(found["log_prob"], tf.float32)
            tag, log_prob = at_words(begin, end, words, [(found["tag"], default), (log_prob, 0.0)])
        kind, first, last = entities(Tags(labels, served.scheme), words, tag)
        names = tf.gather(tf.constant(labels), tag)
        return {
            "tags": words.begin.with_flat_values(names).to_tensor(""),
            "probability": words.begin.with_flat_values(tf.exp(log_prob)).to_tensor(0.0),
            "begin": words.begin.to_tensor(-1),
            "end": words.end.to_tensor(-1),
            "entity_labels": kind.to_tensor(""),
            "entity_begin": first.to_tensor(-1),
            "entity_end": last.to_tensor(-1),
        }

    return {tag: {"texts": tf.TensorSpec([None], tf.string)}}

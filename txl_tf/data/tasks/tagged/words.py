"""Where the words of a text stand, in NumPy and in TensorFlow ops.

A word is a run of letters, marks, digits and underscores; every other character but a space is a word by itself.
"""

from __future__ import annotations

import functools
import itertools
import sys
import typing
import unicodedata

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.traced_text import BLANK

SPACE, WORD, OTHER = 0, 1, 2


@functools.cache
def _kinds() -> tuple[np.ndarray, np.ndarray]:
    """The codes at which the kind of characters changes, and the kind from each of them on, int32 [k]."""
    kinds = np.full([sys.maxunicode + 1], OTHER, np.int32)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character == "_" or unicodedata.category(character)[0] in "LMN":
            kinds[code] = WORD
        elif character.isspace():
            kinds[code] = SPACE
    kinds[BLANK] = SPACE
    begins = np.flatnonzero(np.diff(kinds, prepend=-1)).astype(np.int32)
    return begins, kinds[begins]


def word_places(text: str) -> list[tuple[int, int]]:
    """Where each word of a text begins and ends, in characters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    begins, kinds = _kinds()
    kind = kinds[np.searchsorted(begins, codes, side="right") - 1]
    joined = (kind[1:] == WORD) & (kind[:-1] == WORD)
    limits: list[int] = np.flatnonzero(np.concatenate([[True], ~joined, [True]])).tolist() if len(kind) else []
    return [(first, end) for first, end in itertools.pairwise(limits) if kind[first] != SPACE]


class WordsTensor(typing.NamedTuple):
    """The words of n texts: where they begin and end, int32 RaggedTensors [n, None]."""

    begin: tf.RaggedTensor
    end: tf.RaggedTensor


def word_places_tensor(texts: tf.Tensor) -> WordsTensor:
    """As `word_places`, of strings [n]."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    begins, kinds = (tf.constant(part) for part in _kinds())
    kind = tf.gather(kinds, tf.searchsorted(begins, codes.flat_values, side="right") - 1)
    rows = codes.value_rowids()
    same_row = tf.equal(rows[1:], rows[:-1])
    joined = same_row & tf.equal(kind[1:], WORD) & tf.equal(kind[:-1], WORD)
    some = tf.fill([tf.minimum(tf.size(kind), 1)], True)
    is_word = tf.not_equal(kind, SPACE)
    first = tf.concat([some, ~joined], axis=0) & is_word
    last = tf.concat([~joined, some], axis=0) & is_word
    column = tf.cast(tf.ragged.range(codes.row_lengths()).flat_values, tf.int32)
    row = tf.boolean_mask(rows, first)
    begin, end = tf.boolean_mask(column, first), tf.boolean_mask(column, last) + 1
    count = codes.nrows()
    return WordsTensor(*(tf.RaggedTensor.from_value_rowids(place, row, count) for place in (begin, end)))

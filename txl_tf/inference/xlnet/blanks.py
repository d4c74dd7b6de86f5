"""Texts with blanks: finds the blanks, encodes the text around them, and lists the tokens that can fill them.

A blank is written ____ and stands for one token; ____*3 stands for three. A longer row of underscores is one blank,
too. In rows of ids a negative number stands for a missing token and gives its kind: see below.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary

MARKER = "____"
ANY, GLUED, SPACED = -1, -2, -3
"""Kinds of missing token: any token; one that does not begin with a space; one that begins with a space.
`Vocabulary.encode_around` decides which."""
PADDING = -4
"""Fills a row after its last token."""

_COUNT = r"(?s)\*(\d{1,3}).*"


def split_at_blanks(texts: tf.Tensor, marker: str) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts texts, strings [B], at their blanks, in TensorFlow ops.

    `marker` is how a blank is written; *N after it makes it a blank of N tokens. If it is ____, a longer row of
    underscores is one blank, too.

    Returns:
        The parts, strings RaggedTensor [B, n], where a text with k blanks has n = k + 1 parts; and for each part, int32
        [sum of n], how many tokens are missing before it.
    """
    if marker == MARKER:
        texts = tf.strings.regex_replace(texts, "_{5,}", MARKER)
    parts = tf.strings.split(texts, marker)
    flat, first = parts.flat_values, _at_start(parts)
    counted = ~first & tf.strings.regex_full_match(flat, _COUNT)
    counts = tf.strings.to_number(tf.where(counted, tf.strings.regex_replace(flat, _COUNT, r"\1"), "1"), tf.int32)
    rest = tf.where(counted, tf.strings.regex_replace(flat, r"^\*\d{1,3}", "", replace_global=False), flat)
    return parts.with_flat_values(rest), tf.where(first, 0, counts)


def encode_parts(
    vocabulary: Vocabulary, parts: tf.RaggedTensor, counts: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """The ids of texts with blanks, in TensorFlow ops; parts and counts as `split_at_blanks` returns them.

    The vocabulary's `encode_around` decides how spaces next to a blank are encoded.

    Returns:
        int32 RaggedTensor [B, None], in which ANY, GLUED and SPACED are missing tokens; and int32 [sum of n], as
        `encode_around` returns it.
    """
    first = _at_start(parts)
    last = tf.concat([first[1:], [True]], axis=0)
    ids, kinds = vocabulary.encode_around(parts.flat_values, first, last)
    # The part before a blank decides the kind of the blank's first token. -1, 0, 1 become ANY, GLUED, SPACED.
    like = tf.gather(-2 - kinds, tf.maximum(tf.range(tf.size(kinds)) - 1, 0))
    starts = tf.cumsum(counts, exclusive=True)
    missing = tf.where(tf.range(tf.reduce_sum(counts)) > tf.repeat(starts, counts), ANY, tf.repeat(like, counts))
    rows = tf.RaggedTensor.from_row_lengths(missing, tf.cast(counts, tf.int64))
    return parts.with_flat_values(tf.concat([rows, ids], axis=1)).merge_dims(1, 2), kinds


def encode_candidates(
    vocabulary: Vocabulary, parts: tf.Tensor, candidates: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]:
    """The ids of texts with one blank, and of a candidate for each, strings [B], in TensorFlow ops.

    `parts` are strings [B, 2], before and after the blank; spaces around candidates do not count.

    Returns:
        Before the blank, in it, and after it: int32 RaggedTensors [B, None]; and the parts' kinds, int32 [B, 2], as
        `encode_around` returns them.
    """
    first = tf.tile([True, False], tf.shape(parts)[:1])
    around, kinds = vocabulary.encode_around(tf.reshape(parts, [-1]), first, ~first)
    kinds = tf.reshape(kinds, [-1, 2])
    candidates = tf.strings.strip(candidates)
    spaced = tf.where(kinds[:, 0] == 1, tf.strings.join([" ", candidates]), candidates)
    inside = tf.zeros_like(candidates, tf.bool)
    ids, _ = vocabulary.encode_around(spaced, inside, ~inside)
    return around[::2], ids, around[1::2], kinds


def allowed_tokens(vocabulary: Vocabulary) -> np.ndarray:
    """The tokens that can fill a blank: bool [3, V], one row each for ANY, GLUED and SPACED.

    Tokens that stand for no text, such as <sep>, and the unknown token are never allowed.
    """
    texts = [vocabulary.decode_bytes([token]) for token in range(vocabulary.vocab_size)]
    written = np.array([len(text) > 0 for text in texts])
    if vocabulary.special.unknown is not None:
        written[vocabulary.special.unknown] = False
    spaced = np.array([text.startswith(b" ") for text in texts])
    return np.stack([written, written & ~spaced, written & spaced])


def _at_start(parts: tf.RaggedTensor) -> tf.Tensor:
    return tf.equal(tf.ragged.range(parts.row_lengths()).flat_values, 0)

"""Which tokens begin a word or end a sentence. XLNet's spans and pairs of texts are drawn by them."""

from __future__ import annotations

import string

import numpy as np

from txl_tf.data.vocabularies import SubwordVocabulary, Vocabulary
from txl_tf.data.vocabularies.sentence_pieces import SPACE

_PUNCTUATION = set(string.punctuation) - {"'"}
_FULL_STOPS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")


def word_starts(vocabulary: Vocabulary) -> np.ndarray:
    """Which tokens a predicted span may begin with: bool [V].

    For subword pieces the published rule applies: pieces that begin with a space or "<", and punctuation marks except
    the apostrophe. In other vocabularies all tokens may begin a span.
    """
    if not isinstance(vocabulary, SubwordVocabulary):
        return np.ones(vocabulary.vocab_size, bool)
    return np.array([name[:1] in (SPACE, "<") or name in _PUNCTUATION for name in vocabulary.pieces])


def sentence_ends(vocabulary: Vocabulary) -> np.ndarray:
    """Which tokens end a sentence: bool [V].

    These are tokens that end a line, because XLNet's text files have one sentence per line, and tokens that end a
    document or a paragraph. If no token stands for the end of a line, as in XLNet's own vocabulary, full stops,
    question marks and exclamation marks end sentences.
    """
    tokens = range(vocabulary.vocab_size)
    texts = [vocabulary.decode_bytes([token]) for token in tokens]
    ends = np.array([text.endswith(b"\n") for text in texts])
    if not ends.any():
        ends = np.array([text.decode("utf-8", "replace").endswith(_FULL_STOPS) for text in texts])
    if vocabulary.special.end_of_document is not None:
        ends[vocabulary.special.end_of_document] = True
    if isinstance(vocabulary, SubwordVocabulary):
        ends |= vocabulary.pieces == "<eop>"
    return ends

"""XLNet's clean-up of text before SentencePiece, in TensorFlow ops, of strings and of characters with their places.

The order is that of the official code: white space, quotes, accents, case. Each step is a separate function on
strings of any shape; `CleanUp.traced` has the same steps for the characters of lines.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import unicodedata

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import WHITESPACE
from txl_tf.data.vocabularies.traced_text import (
    TracedText,
    mapped,
    with_marks_joined,
    with_plain_quotes,
    without_spare_space,
)


@dataclasses.dataclass(frozen=True)
class CleanUp:
    """The clean-up as a function of strings.

    Attributes:
        lower_case: for uncased models; the released ones are cased. TensorFlow knows the cases of Unicode 13: 40
            letters of later versions stay as they are.
        keep_accents: keep accented letters unchanged, in any Unicode form.
        remove_space: leave one space between words and none at the ends.
    """

    lower_case: bool = False
    keep_accents: bool = False
    remove_space: bool = True

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """UTF-8 strings of any shape -> strings of the same shape."""
        if self.remove_space:
            strings = remove_space(strings)
        strings = plain_quotes(strings)
        if not self.keep_accents:
            strings = remove_accents(strings)
        return lower_case(strings) if self.lower_case else strings

    def traced(self, text: TracedText) -> TracedText:
        """The clean-up of lines, with the places of their characters."""
        if self.remove_space:
            text = without_spare_space(text)
        text = with_plain_quotes(text)
        if not self.keep_accents:
            text = mapped(with_marks_joined(text, _mark_codes()), remove_accents)
        if self.lower_case:  # of whole lines, because the form of a sigma depends on the letters beside it
            codes = tf.strings.unicode_decode(lower_case(text.lines()), "UTF-8").flat_values
            text = mapped(text, lower_case)._replace(codes=codes)
        return text


def remove_space(strings: tf.Tensor) -> tf.Tensor:
    """Single spaces between words and none at the ends, as by Python's split and join."""
    return tf.strings.strip(tf.strings.regex_replace(strings, WHITESPACE + "+", " "))


def plain_quotes(strings: tf.Tensor) -> tf.Tensor:
    """TeX's quotes, two backquotes or two apostrophes, become double quotes."""
    return tf.strings.regex_replace(tf.strings.regex_replace(strings, "``", '"'), "''", '"')


def remove_accents(strings: tf.Tensor) -> tf.Tensor:
    """Compatibility decomposition (NFKD), followed by removal of the combining marks."""
    import tensorflow_text  # here, because it is slow to load

    return tf.strings.regex_replace(tensorflow_text.normalize_utf8(strings, "NFKD"), combining_marks(), "")


@functools.cache
def _mark_codes() -> np.ndarray:
    """The code points with a combining class other than 0, by Python's Unicode tables, int32 [k]."""
    return np.array([code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))], np.int32)


@functools.cache
def combining_marks() -> str:
    r"""A pattern for the characters with a combining class other than 0.

    It is not \p{Mn}: over 1,000 nonspacing marks have class 0 and stay (variation selectors, vowel signs of Indic
    scripts), and some 25 spacing marks have a class and go (viramas, tone marks).
    """
    runs = [list(run) for _, run in itertools.groupby(enumerate(_mark_codes()), lambda item: item[1] - item[0])]
    return "[" + "".join(rf"\x{{{run[0][1]:x}}}-\x{{{run[-1][1]:x}}}" for run in runs) + "]"


def lower_case(strings: tf.Tensor) -> tf.Tensor:
    """Lower case, by Unicode."""
    # tf.strings.lower drops the text after a zero byte. So zero bytes are replaced by a noncharacter, which is
    # an unknown character for all models, too.
    strings = tf.strings.regex_replace(strings, r"\x00", "\uffff")
    return tf.strings.regex_replace(tf.strings.lower(strings, encoding="utf-8"), "\uffff", "\0")

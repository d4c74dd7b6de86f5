"""XLNet's clean-up of text before SentencePiece, in TensorFlow ops, and in Python with places in the source.

The order is that of the official code: white space, quotes, accents, case. Each step is a separate function on
strings of any shape; `CleanUp.traced` has the same steps for one text.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import sys
import unicodedata

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import WHITESPACE
from txl_tf.data.vocabularies.traced_tensor import (
    TracedTensor,
    mapped,
    with_marks_joined,
    with_plain_quotes,
    without_spare_space,
)
from txl_tf.data.vocabularies.traced_text import TracedText


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
        """The clean-up of one text. Cases are those of Python's Unicode tables."""
        if self.remove_space:
            text = text.substitute(_SPACE_TO_REMOVE, lambda _: " ")
            text = text.substitute(_SPACE_AT_ENDS, lambda _: "")
        for quotes in _TEX_QUOTES:
            text = text.substitute(quotes, lambda _: '"')
        if not self.keep_accents:
            text = text.substitute(_accented(), _without_accents)
        return _traced_lower_case(text) if self.lower_case else text

    def traced_tensor(self, traced: TracedTensor) -> TracedTensor:
        """As `traced`, in TensorFlow ops. Letters are lowered one by one: a final sigma becomes an ordinary one."""
        import tensorflow_text  # here, because it is slow to load

        if self.remove_space:
            traced = without_spare_space(traced)
        traced = with_plain_quotes(traced)
        if not self.keep_accents:
            traced = with_marks_joined(traced, combining_marks())
            decomposed = tensorflow_text.normalize_utf8(traced.text, "NFKD")
            traced = mapped(traced, tf.strings.regex_replace(decomposed, combining_marks(), ""))
        return mapped(traced, lower_case(traced.text)) if self.lower_case else traced


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
def combining_marks() -> str:
    r"""A pattern for the characters with a combining class other than 0, by Python's Unicode tables.

    It is not \p{Mn}: over 1,000 nonspacing marks have class 0 and stay (variation selectors, vowel signs of Indic
    scripts), and some 25 spacing marks have a class and go (viramas, tone marks).
    """
    marks = [code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))]
    runs = [list(run) for _, run in itertools.groupby(enumerate(marks), lambda item: item[1] - item[0])]
    return "[" + "".join(rf"\x{{{run[0][1]:x}}}-\x{{{run[-1][1]:x}}}" for run in runs) + "]"


def lower_case(strings: tf.Tensor) -> tf.Tensor:
    """Lower case, by Unicode."""
    # tf.strings.lower drops the text after a zero byte. So zero bytes are replaced by a noncharacter, which is
    # an unknown character for all models, too.
    strings = tf.strings.regex_replace(strings, r"\x00", "\uffff")
    return tf.strings.regex_replace(tf.strings.lower(strings, encoding="utf-8"), "\uffff", "\0")


_SPACE_TO_REMOVE = re.compile(r"\s{2,}|[^\S ]")
_SPACE_AT_ENDS = re.compile(r"\A\s+|\s+\Z")
_TEX_QUOTES = (re.compile("``"), re.compile("''"))


@functools.cache
def _accented() -> re.Pattern[str]:
    """A character and the combining marks that follow it, if NFKD or the removal of marks may change them."""
    marks = re.sub(r"\\x\{(\w+)\}", lambda match: f"\\U{match[1]:0>8}", combining_marks())
    # Without the lookahead, each ASCII letter would be looked up among the marks.
    return re.compile(rf"[^\x00-\x7f]{marks}*|[\x00-\x7f](?=[^\x00-\x7f]){marks}+")


@functools.cache
def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _traced_lower_case(text: TracedText) -> TracedText:
    lower = text.text.lower()
    lengths = [len(character.lower()) for character in text.text] if len(lower) != len(text.text) else 1
    return TracedText(lower, np.repeat(text.begin, lengths), np.repeat(text.end, lengths))

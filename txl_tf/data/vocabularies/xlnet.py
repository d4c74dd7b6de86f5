"""XLNet's tokens: the published SentencePiece model with the clean-up and the comma rule of the official code.

The clean-up's order is that of the official code: white space, quotes, accents, case. Each step is a separate function
on strings of any shape; `CleanUp.traced` has the same steps for the characters of lines.
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
from txl_tf.data.vocabularies.sentence_pieces import SPACE, SPECIAL_PIECES, SubwordVocabulary
from txl_tf.data.vocabularies.traced_text import (
    TracedText,
    mapped,
    traced_lines,
    with_marks_joined,
    with_plain_quotes,
    without_spare_space,
)
from txl_tf.errors import InputError


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


class XLNetVocabulary(SubwordVocabulary):
    """A SentencePiece model used as XLNet's official code uses it.

    Text is cleaned (see CleanUp) and cut into pieces. A piece that ends in a digit and a comma is replaced by the
    pieces of the text before the comma, and the comma (the comma rule). Each line is encoded separately, in the graph
    and outside, which gives the ids of the whole text in linear time. No token stands for the end of a line.
    decode(encode(text)) is the cleaned text: double spaces, ends of lines and accents are lost.

    `model` is the serialised model; the other arguments are those of CleanUp. InputError if it is not a SentencePiece
    model, or one without XLNet's special pieces.
    """

    kind = "xlnet"
    FILE = "spiece.model"

    def __init__(self, model: bytes, lower_case: bool = False, keep_accents: bool = False, remove_space: bool = True):
        super().__init__(model)
        missing = [SPECIAL_PIECES[name] for name, token in dataclasses.asdict(self.special).items() if token is None]
        if missing:
            raise InputError(
                f"this SentencePiece model is not one of XLNet's: it has no {', '.join(missing)}; "
                "give XLNet's spiece.model, or use the model with --vocab=sentencepiece"
            )
        self._clean_up = CleanUp(lower_case, keep_accents, remove_space)
        self.options, self.ignores_space = dataclasses.asdict(self._clean_up), remove_space
        self._replacements, self._replacement_ends = self._comma_rule()
        self._replacement_counts = np.diff(self._replacement_ends, prepend=0)
        self.start_token = self.special_token("end_of_document")

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        lines = tf.strings.split(strings, "\n")
        return lines.with_flat_values(self._encode_lines(lines.flat_values)).merge_dims(1, 2)

    def _lines(self, text: bytes) -> list[bytes]:
        return text.split(b"\n")

    def _encode_lines(self, lines: tf.Tensor) -> tf.RaggedTensor:
        ids = self._tokenizer.tokenize(self._clean_up(lines))
        replaced = tf.RaggedTensor.from_row_limits(self._replacements, self._replacement_ends, validate=False)
        return ids.with_flat_values(tf.gather(replaced, ids.flat_values)).merge_dims(1, 2)

    def _traced_lines(self, texts: tf.Tensor) -> tuple[TracedText, tf.Tensor]:
        traced, counts = traced_lines(texts, keep_ends=False)
        return self._clean_up.traced(traced), counts

    def _finished(
        self, ids: tf.RaggedTensor, begin: tf.RaggedTensor, end: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Applies the comma rule. If the source lacks the piece letter by letter, each replacement gets its place."""
        letters, first, last = self._comma_places()
        rows = [
            tf.gather(tf.RaggedTensor.from_row_limits(part, self._replacement_ends, validate=False), ids.flat_values)
            for part in (self._replacements, first, last)
        ]
        found = ids.with_flat_values(rows[0]).merge_dims(1, 2)
        token = rows[0].value_rowids()
        split = tf.gather(tf.equal(end.flat_values - begin.flat_values, tf.gather(letters, ids.flat_values)), token)
        begins, ends = (tf.gather(part.flat_values, token) for part in (begin, end))
        return (
            found,
            found.with_flat_values(tf.where(split, begins + rows[1].flat_values, begins)),
            found.with_flat_values(tf.where(split, begins + rows[2].flat_values, ends)),
        )

    def _comma_places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For `_finished`: int32 [V], how many letters a piece must stand for so that its replacements have
        different places, -1 if they never have; and where each replacement begins and ends in these letters."""
        letters = np.full(self.vocab_size, -1, np.int32)
        first, last = np.zeros([2, len(self._replacements)], np.int32)
        for token in np.flatnonzero(self._replacement_counts > 1):
            end = self._replacement_ends[token]
            place = slice(end - self._replacement_counts[token], end)
            parts = self._replacements[place]
            unknown = parts == self.special.unknown
            if unknown.sum() <= 1:
                letters[token] = len(self.pieces[token].replace(SPACE, ""))
                lengths = np.array([len(self.pieces[part].replace(SPACE, "")) for part in parts])
                lengths[unknown] = letters[token] - lengths[~unknown].sum()
                last[place] = np.cumsum(lengths)
                first[place] = last[place] - lengths
        return letters, first, last

    def _comma_rule(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids that replace each id, as (ids, end of each id's row). Most ids are replaced by themselves."""
        id_of: dict[str, int] = dict(zip(self.pieces, range(self.vocab_size), strict=True))
        unknown = self.special_token("unknown")
        rows = [[token] for token in range(self.vocab_size)]
        for token, piece in enumerate(self.pieces):
            if piece[-1:] != "," or not piece[-2:-1].isdigit():
                continue
            before = self._tokenizer.tokenize([piece[:-1].replace(SPACE, "")])[0].numpy().tolist()
            first = self.pieces[before[0]]
            if not piece.startswith(SPACE) and first.startswith(SPACE):
                # SentencePiece added a space at the start, which the text does not have.
                rest = [id_of.get(first[1:], unknown)] if len(first) > 1 else []
                before = rest + before[1:]
            rows[token] = [*before, id_of.get(",", unknown)]
        ends = np.cumsum([len(row) for row in rows])
        return np.concatenate(rows).astype(np.int32), ends.astype(np.int64)

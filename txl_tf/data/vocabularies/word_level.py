"""Words between white space as tokens."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import WHITESPACE, SpecialTokens, Vocabulary, stands_apart, write_lines
from txl_tf.errors import InputError
from txl_tf.storage.files import read_lines


class WordVocabulary(Vocabulary):
    """Words between white space. Ends of lines are tokens. Words that are not listed become `unknown`.

    A newline in a text is an end of a line. `encode` adds none of its own, so that a prompt can stop mid-line.
    Round trip: decode(encode(text)) == text with single spaces and without unknown words; ids come back exactly.

    Args:
        words: the words by id. Must contain `unknown` and `line_end`.
        line_end: the token that ends a line, "<eos>".
        both_ends: lines also begin with `line_end` (lm1b), so that a newline between two lines is two tokens.
        unknown: the token for words that are not listed.
        lower_case: convert text to lower case first (ptb).
    """

    kind = "words"
    unit = "word"
    FILE = "vocab.txt"

    def __init__(
        self,
        words: Sequence[str],
        line_end: str = "<eos>",
        both_ends: bool = False,
        unknown: str = "<unk>",
        lower_case: bool = False,
    ):
        super().__init__(name="word_vocabulary")
        # No list or dict may be an attribute: tf.Module would wrap and track every word.
        self._words = np.array(words, dtype=object)
        self.options = {"line_end": line_end, "both_ends": both_ends, "unknown": unknown, "lower_case": lower_case}
        self.vocab_size = len(self._words)
        ids = dict(zip(self._words, range(self.vocab_size), strict=True))
        for token in (line_end, unknown):
            if token not in ids:
                raise InputError(f"the word list has no {token}: add it as a line of its own")
        if len(ids) != self.vocab_size:
            twice, _ = collections.Counter(words).most_common(1)[0]
            raise InputError(f"the word list has {twice!r} twice: every word has one line")
        self._id_of = ids.get
        self._unknown = ids[unknown]
        self.special = SpecialTokens(unknown=ids[unknown])
        self.start_token = ids[line_end]
        self._tables: tuple[tf.lookup.StaticHashTable, tf.lookup.StaticHashTable] | None = None
        self._newline = f" {line_end} {line_end} " if both_ends else f" {line_end} "

    read = staticmethod(read_lines)

    def save(self, directory: str) -> None:
        """Writes one word per line."""
        write_lines(directory, self.FILE, self._words)

    def encode(self, text: str | bytes) -> np.ndarray:
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        text = text.lower() if self.options["lower_case"] else text
        words = text.replace("\n", self._newline).split()
        return self.ids(words)

    def ids(self, words: Sequence[str]) -> np.ndarray:
        """Ids [n] of text that is already split into words."""
        return np.fromiter((self._id_of(word, self._unknown) for word in words), np.int32, len(words))

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Words each followed by a space, ends of lines as newlines."""
        pieces = ["\n" if token == self.start_token else self._words[token] + " " for token in ids]
        return "".join(pieces).encode()

    def decoder(self, after: str = "") -> Callable[[Iterable[int]], bytes]:
        """See Vocabulary. A word has a space before it, unless it begins the text or a line."""
        apart = not after or after[-1].isspace()
        ends = 0  # of lines, since the last word

        def decode(ids: Iterable[int]) -> bytes:
            nonlocal apart, ends
            pieces = []
            for token in ids:
                if token == self.start_token:
                    pieces.append("" if self.options["both_ends"] and ends % 2 else "\n")
                    apart, ends = True, ends + 1
                else:
                    pieces.append(self._words[token] if apart else " " + self._words[token])
                    apart, ends = False, 0
            return "".join(pieces).encode()

        return decode

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        if self.options["lower_case"]:
            strings = tf.strings.lower(strings, encoding="utf-8")
        strings = tf.strings.regex_replace(strings, "\n", self._newline)
        words = tf.strings.split(tf.strings.regex_replace(strings, WHITESPACE, " "))
        return words.with_flat_values(self._look_up(0, words.flat_values))

    def decode_tensor(self, ids: tf.Tensor | tf.RaggedTensor, after: tf.Tensor | str = "") -> tf.Tensor:
        ragged = ids if isinstance(ids, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(ids)
        flat = tf.cast(ragged.flat_values, tf.int32)
        words = tf.where(flat == self.start_token, "\n", self._look_up(1, flat) + " ")
        text = tf.strings.reduce_join(ragged.with_flat_values(words), axis=-1)
        text = tf.strings.regex_replace(tf.strings.regex_replace(text, " \n", "\n"), " $", "")
        text = tf.strings.regex_replace(text, "\n\n", "\n") if self.options["both_ends"] else text
        apart = stands_apart(after) | tf.strings.regex_full_match(text, "(?s)(\n.*)?")
        return tf.where(apart, text, " " + text)

    def describe(self, token: int) -> str:
        return self._words[token]

    def _look_up(self, direction: int, keys: tf.Tensor) -> tf.Tensor:
        """Words to ids (direction 0) or ids to words (1), in tables that are created at first use."""
        if self._tables is None:
            with tf.init_scope():  # outside the function that is being traced
                words, ids = tf.constant(self._words.tolist()), tf.range(self.vocab_size)
                self._tables = (
                    tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, ids), self._unknown),
                    tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(ids, words), ""),
                )
        return self._tables[direction].lookup(keys)

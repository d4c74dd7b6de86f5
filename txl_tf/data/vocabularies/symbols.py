"""Single symbols as tokens: bytes, all 256 or those of a corpus's own list, and Unicode characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import Vocabulary, write_lines
from txl_tf.errors import InputError
from txl_tf.storage.files import read_lines
from txl_tf.storage.strict_json import parse_json


class ByteVocabulary(Vocabulary):
    """Bytes: all 256 as themselves, or a list of symbols, byte values by id (enwik8).

    With a list, bytes in `dropped` are removed from the text, as they were from the corpus. Any other byte that is not
    listed is encoded as "?" (or as the most frequent symbol if "?" is not listed either).
    """

    kind = "bytes"
    unit = "byte"
    FILE = "vocab.txt"

    def __init__(self, symbols: Sequence[int] | None = None, dropped: Sequence[int] = ()):
        super().__init__(name="byte_vocabulary")
        values = [int(value) for value in (*(() if symbols is None else symbols), *dropped)]
        if any(not 0 <= value < 256 for value in values) or len({*values}) < len(values):
            raise InputError("a list of bytes must have numbers from 0 to 255, each once")
        self._identity = symbols is None
        self._symbols = np.arange(256, dtype=np.uint8) if symbols is None else np.array(symbols, np.uint8)
        self._dropped = tuple(int(value) for value in dropped)
        self._texts = np.array([bytes([value]) for value in self._symbols], object)
        self.vocab_size = len(self._symbols)
        self._ids = np.full(256, -1, np.int32)
        self._ids[self._symbols] = np.arange(self.vocab_size)
        unknown = max(int(self._ids[ord("?")]), 0)
        self._ids[self._ids < 0] = unknown
        self._ids[list(self._dropped)] = -1
        newline = int(self._ids[ord("\n")]) if ord("\n") in self._symbols else -1
        self.start_token = newline if newline >= 0 else max(int(self._ids[ord(" ")]), 0)

    @property
    def spec(self) -> dict[str, Any]:
        if self._identity:
            return {"kind": self.kind}
        return {"kind": self.kind, "file": self.FILE, "dropped": list(self._dropped)}

    @classmethod
    def load(cls, directory: str, spec: dict[str, Any]) -> ByteVocabulary:
        """The vocabulary that `save` wrote."""
        if "file" not in spec:
            return cls()
        path, values = tf.io.gfile.join(directory, spec["file"]), list[int]()
        for number, line in enumerate(read_lines(path), start=1):
            value = int(line) if re.fullmatch(r"[0-9]{1,3}", line) else 256
            if value > 255 or value in (*values, *spec["dropped"]):
                raise InputError(
                    f"{path}, line {number} has {line[:20]!r}: the vocabulary cannot be read, since a list of bytes "
                    "must have numbers from 0 to 255, each once"
                )
            values.append(value)
        if not values:
            raise InputError(f"{path} is empty: a list of bytes has a number from 0 to 255 in each line")
        return cls(values, spec["dropped"])

    def save(self, directory: str) -> None:
        """Writes one byte value per line, in decimal; nothing if all 256 bytes are tokens."""
        if not self._identity:
            write_lines(directory, self.FILE, [str(value) for value in self._symbols])

    def encode(self, text: str | bytes) -> np.ndarray:
        data = text.encode() if isinstance(text, str) else text
        ids = self._ids[np.frombuffer(data, np.uint8)]
        return ids[ids >= 0] if self._dropped else ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return self._symbols[np.asarray(ids, np.int64)].tobytes()

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        # One decode_raw over the joined strings, since it needs strings of equal length, and a batch's lengths differ.
        data = tf.io.decode_raw(tf.strings.reduce_join(strings), tf.uint8)
        ids = tf.gather(tf.constant(self._ids), tf.cast(data, tf.int32))
        ragged = tf.RaggedTensor.from_row_lengths(ids, tf.cast(tf.strings.length(strings), tf.int64))
        return tf.ragged.boolean_mask(ragged, ragged >= 0) if self._dropped else ragged


class CharVocabulary(Vocabulary):
    """Unicode characters by id (text8). An unlisted one is encoded as a space, or as id 0 if there is no space."""

    kind = "chars"
    unit = "char"
    FILE = "vocab.txt"

    def __init__(self, symbols: Iterable[str]):
        super().__init__(name="char_vocabulary")
        self._symbols = np.array(list(symbols), dtype=object)
        self._texts = np.array([symbol.encode("utf-8", "replace") for symbol in self._symbols], object)
        self.vocab_size = len(self._symbols)
        codes = np.array([ord(symbol) for symbol in self._symbols], np.int32)
        # A sorted list to search. There is no table, so nothing to initialise or to save in a SavedModel.
        self._order = np.argsort(codes).astype(np.int32)
        self._codes = codes[self._order]
        ids: dict[str, int] = dict(zip(self._symbols, range(self.vocab_size), strict=True))
        self._unknown = ids.get(" ", 0)
        self.start_token = ids.get("\n", self._unknown)

    @staticmethod
    def read(path: str) -> list[str]:
        symbols = [parse_json(line, f"{path}, line {i}") for i, line in enumerate(read_lines(path), start=1)]
        wrong = (i for i, symbol in enumerate(symbols, start=1) if not isinstance(symbol, str) or len(symbol) != 1)
        if line := next(wrong, 0 if symbols else 1):
            raise InputError(
                f"{path}, line {line}: this is not a list of characters, where every line is a JSON text of one "
                "character"
            )
        return symbols

    def save(self, directory: str) -> None:
        """Writes one character per line, as a JSON string."""
        write_lines(directory, self.FILE, [json.dumps(symbol, ensure_ascii=False) for symbol in self._symbols])

    def encode(self, text: str | bytes) -> np.ndarray:
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.int32)
        return self._search(np, codes)

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        return codes.with_flat_values(self._search(tf, codes.flat_values))

    def _search(self, xp: Any, codes: np.ndarray | tf.Tensor) -> Any:
        """Code points [n] -> ids [n]; `xp` is numpy or TensorFlow."""
        place = xp.minimum(xp.searchsorted(self._codes, codes), self.vocab_size - 1)
        found = (xp.gather(self._codes, place) if xp is tf else self._codes[place]) == codes
        ids = xp.gather(self._order, place) if xp is tf else self._order[place]
        return xp.where(found, ids, np.int32(self._unknown))

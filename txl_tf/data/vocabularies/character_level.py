"""Unicode characters as tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import Vocabulary, write_lines
from txl_tf.errors import InputError
from txl_tf.storage.files import read_lines
from txl_tf.storage.strict_json import parse_json


class CharVocabulary(Vocabulary):
    """Unicode characters by id (text8). An unlisted one is encoded as a space, or as id 0 if there is no space."""

    kind = "chars"
    unit = "char"
    FILE = "vocab.txt"

    def __init__(self, symbols: Iterable[str]):
        super().__init__(name="char_vocabulary")
        self._symbols = np.array(list(symbols), dtype=object)
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

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return "".join([self._symbols[token] for token in ids]).encode()

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        return codes.with_flat_values(self._search(tf, codes.flat_values))

    def decode_tensor(self, ids: tf.Tensor | tf.RaggedTensor, after: tf.Tensor | str = "") -> tf.Tensor:
        del after
        return tf.strings.reduce_join(tf.gather(tf.constant(self._symbols.tolist()), ids), axis=-1)

    def _search(self, xp: Any, codes: np.ndarray | tf.Tensor) -> Any:
        """Code points [n] -> ids [n]; `xp` is numpy or TensorFlow."""
        place = xp.minimum(xp.searchsorted(self._codes, codes), self.vocab_size - 1)
        found = (xp.gather(self._codes, place) if xp is tf else self._codes[place]) == codes
        ids = xp.gather(self._order, place) if xp is tf else self._order[place]
        return xp.where(found, ids, np.int32(self._unknown))

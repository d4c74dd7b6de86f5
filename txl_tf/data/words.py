"""Numbers the words of large texts."""

from __future__ import annotations

import numpy as np


class WordNumbers(dict[str, int]):
    """{word: its number}. A word that is looked up for the first time gets the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def of(self, text: str) -> np.ndarray:
        """The numbers of a text's tokens, int32 [n]."""
        tokens = tokens_of(text)
        return np.fromiter(map(self.__getitem__, tokens), np.int32, len(tokens))


def tokens_of(text: str) -> list[str]:
    """The words of str.split(), and every newline as a token."""
    tokens: list[str] = []
    for line in text.split("\n"):
        tokens += line.split()
        tokens.append("\n")
    tokens.pop()
    return tokens

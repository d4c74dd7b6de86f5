"""Numbers the words of large texts, counts numbers, and runs functions in threads."""

from __future__ import annotations

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


class WordNumbers(dict[str, int]):
    """{word: its number}. A word that is looked up for the first time gets the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def of(self, text: str) -> np.ndarray:
        """The numbers of a text's tokens, int32 [n]: the words of str.split(), and every newline as a token."""
        tokens: list[str] = []
        for line in text.split("\n"):
            tokens += line.split()
            tokens.append("\n")
        tokens.pop()
        return np.fromiter(map(self.__getitem__, tokens), np.int32, len(tokens))


class Counts:
    """How often each number occurs."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int64)

    def add(self, numbers: np.ndarray) -> None:
        """Counts numbers [n]."""
        here = np.bincount(numbers)
        if len(self._counts) < len(here):
            self._counts = self.up_to(len(here) * 3 // 2)
        self._counts[: len(here)] += here

    def up_to(self, size: int) -> np.ndarray:
        """The counts of numbers below `size`, int64 [size]."""
        return np.concatenate([self._counts, np.zeros(size, np.int64)])[:size]


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None) -> Iterator[Result]:
    """map(function, items) in threads, with results in order and only a few items in memory."""
    workers = workers or min(os.cpu_count() or 1, 8)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        under_way: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) > workers + 1:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

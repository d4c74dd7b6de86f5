"""Numbers the words of large texts, in NumPy calls over whole blocks.

A Python string for every word would be slow. Here only a new word becomes a Python object: a word's bytes are hashed to
64 bits, and a hash table of two arrays gives its number. NumPy releases the interpreter lock in all expensive calls, so
threads use all cores.

Two words with the same hash would get the same number: for 3 million words the probability is 1 in 4 million.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

_WORD, _SPACE, _LINE_END, _MAYBE_SPACE = range(4)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LENGTH_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = TypeVar("Key")


def _classes() -> bytes:
    """A table for bytes.translate: the class of each byte. str.split() splits at spaces, some of several bytes."""
    classes = np.full(256, _WORD, np.uint8)
    classes[[9, 11, 12, 13, 0x1C, 0x1D, 0x1E, 0x1F, 32]] = _SPACE
    classes[10] = _LINE_END
    classes[[0xC2, 0xE1, 0xE2, 0xE3]] = _MAYBE_SPACE
    return classes.tobytes()


_CLASSES = _classes()
_WIDE_SPACES = [chr(code).encode() for code in (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F)]
_WIDE_SPACES += [chr(code).encode() for code in (0x205F, 0x3000)]


def split_words(block: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Finds the tokens of a text in UTF-8: the words of str.split(), and every newline as a token of its own.

    Returns:
        (text uint8 [bytes + 8], starts [n], lengths [n], hashes uint64 [n]).
    """
    text = np.frombuffer(block + b"\0" * 8, np.uint8)
    classes = np.frombuffer(bytearray(block.translate(_CLASSES)), np.uint8)
    if (maybe := np.flatnonzero(classes == _MAYBE_SPACE)).size:
        classes[maybe] = _WORD
        for space in _WIDE_SPACES:
            place = maybe[text[maybe] == space[0]]
            for i in range(1, len(space)):
                place = place[text[place + i] == space[i]]
            for i in range(len(space)):
                classes[place + i] = _SPACE
    line_end = classes == _LINE_END
    in_word = np.concatenate([[False], classes == _WORD, [False]])
    edge = in_word[1:] != in_word[:-1]
    starts = np.flatnonzero((edge[:-1] & in_word[1:-1]) | line_end)
    ends = np.flatnonzero((edge[1:] & in_word[1:-1]) | line_end) + 1
    lengths = ends - starts
    return text, starts, lengths, _hashes(text, starts, lengths)


def _hashes(text: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """uint64 [n], never 0. Different words of the same length up to 8 bytes have different hashes."""
    eight_bytes = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))  # at every byte
    keep = ~np.uint64(0) >> (np.uint64(64) - np.uint64(8) * np.arange(1, 9, dtype=np.uint64))
    keep = np.concatenate([[np.uint64(0)], keep])
    hashes = eight_bytes[starts] & keep[np.minimum(lengths, 8)]
    hashes = (hashes + lengths.astype(np.uint64) * _LENGTH_MULTIPLIER) * _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    longer, offset = np.flatnonzero(lengths > 8), 8
    while longer.size:
        left = lengths[longer] - offset
        chunk = eight_bytes[starts[longer] + offset] & keep[np.minimum(left, 8)]
        mixed = (hashes[longer] + chunk) * _MULTIPLIER
        hashes[longer] = mixed ^ (mixed >> np.uint64(29))
        longer, offset = longer[left > 8], offset + 8
    hashes[hashes == 0] = 1
    return hashes


class WordNumbers:
    """Numbers words in the order of their first appearance. Threads may `look_up` while one thread runs `number`."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self._known, self._table = np.zeros(0, np.uint64), _empty_table(1 << 16)

    def look_up(self, hashes: np.ndarray) -> np.ndarray:
        """The numbers of hashes [n]; -1 for new ones."""
        shift, keys, numbers = self._table
        slots = (hashes >> shift).astype(np.int64)
        found = np.where(keys[slots] == hashes, numbers[slots], -1)
        place = np.flatnonzero((found < 0) & (keys[slots] != 0))
        slots = slots[place]
        while place.size:
            slots = (slots + 1) & (len(keys) - 1)
            here = keys[slots]
            match = here == hashes[place]
            found[place[match]] = numbers[slots[match]]
            place, slots = place[~match & (here != 0)], slots[~match & (here != 0)]
        return found

    def number(
        self, text: np.ndarray, starts: np.ndarray, lengths: np.ndarray, hashes: np.ndarray, found: np.ndarray
    ) -> np.ndarray:
        """Numbers the words that `look_up` did not find; returns the numbers of all, [n]."""
        missing = np.flatnonzero(found < 0)
        found[missing] = self.look_up(hashes[missing])  # an earlier block may have added them since
        missing = missing[found[missing] < 0]
        if not missing.size:
            return found
        new, first, inverse = np.unique(hashes[missing], return_index=True, return_inverse=True)
        order = np.argsort(first)
        found[missing] = len(self.words) + np.argsort(order)[inverse]
        places = missing[first[order]]
        data = text.tobytes()
        self.words += [data[s : s + n] for s, n in zip(starts[places].tolist(), lengths[places].tolist(), strict=True)]
        self._insert(new[order])
        return found

    def _insert(self, hashes: np.ndarray) -> None:
        """Adds new hashes [n] to the table, or to a larger one that replaces it."""
        first, table = len(self._known), self._table
        self._known = np.concatenate([self._known, hashes])
        if len(self._known) * 2 > len(table[1]):
            first, table = 0, _empty_table(1 << (2 * len(self._known)).bit_length())
        shift, keys, numbers = table
        hashes, values = self._known[first:], np.arange(first, len(self._known), dtype=np.int32)
        slots = (hashes >> shift).astype(np.int64)
        while hashes.size:
            free = np.flatnonzero(keys[slots] == 0)
            won = free[np.unique(slots[free], return_index=True)[1]]  # one per slot
            numbers[slots[won]] = values[won]  # before the key, since readers look at the key first
            keys[slots[won]] = hashes[won]
            lost = np.ones(len(hashes), bool)
            lost[won] = False
            hashes, values, slots = hashes[lost], values[lost], (slots[lost] + 1) & (len(keys) - 1)
        self._table = table


def _empty_table(size: int) -> tuple[np.uint64, np.ndarray, np.ndarray]:
    """(shift, keys, numbers): a hash belongs at `hash >> shift` or behind it; keys are 0 where nothing is."""
    return np.uint64(65 - size.bit_length()), np.zeros(size, np.uint64), np.empty(size, np.int32)


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


def number_blocks(blocks: Iterable[tuple[Key, bytes]], numbers: WordNumbers) -> Iterator[tuple[Key, np.ndarray]]:
    """Yields (key, numbers int32 [n]) for (key, text) blocks in order, on all cores; `numbers` is a WordNumbers."""

    def work(item: tuple[Key, bytes]) -> tuple[Key, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        key, block = item
        text, starts, lengths, hashes = split_words(block)
        return key, text, starts, lengths, hashes, numbers.look_up(hashes)

    for key, *found in in_order(work, blocks):
        yield key, numbers.number(*found)

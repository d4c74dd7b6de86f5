"""The log-probabilities of parts of texts, by the functions of a Transformer-XL's SavedModel.

A text is read as `score` reads it: the vocabulary's start token, then segments of S tokens, each with the memory of
those before it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from txl_tf.storage.surrogates import whole

MOST_NUMBERS = 1 << 26
"""Log-probabilities that are computed at once, of all tokens of the vocabulary at all places."""

TEXTS = 256
"""Texts that become tokens at once."""

Cache = dict[str, tf.Tensor]


class Part(NamedTuple):
    """A part of a text that is scored, and how the text is read up to it.

    inputs, targets: int32 [n], each token and the next one; the first input is the start token.
    first: the number of the first target that is scored.
    shared: how many inputs are in whole segments before it.
    """

    inputs: np.ndarray
    targets: np.ndarray
    first: int
    shared: int


class PartScorer:
    """Scores parts of texts.

    Args:
        functions: as `ServedCausal` has them, by name.
        segment: S, the tokens that `read` takes.
        batch_size: texts at once; does not change the results.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], segment: int, batch_size: int):
        self._functions, self._segment, self._batch_size = functions, segment, batch_size
        nothing = functions["encode"](texts=tf.constant([""]))
        self._start = int(nothing["start_token"])
        self.unknown = int(nothing.get("unknown_token", -1))
        self._vocab_size = functions["initial_cache"](batch_size=tf.constant(1))["seen"].shape[1]

    def totals(self, readings: Sequence[Part]) -> Iterator[tuple[int, float]]:
        """(number, log-probability) of each reading from its first to its last token, in any order."""
        for some in batches(range(len(readings)), self._batch_size, lambda i: len(readings[i].inputs)):
            cache, rows, total = self._empty(len(some)), [readings[i] for i in some], np.zeros(len(some))
            for start in range(0, max(len(row.inputs) for row in rows), self._segment):
                log_probs, cache = self._read(cache, rows, start)
                total += np.sum(log_probs, axis=1, dtype=np.float64)
            yield from zip(some, total.tolist(), strict=True)

    def scores(self, readings: Sequence[Part]) -> Iterator[tuple[int, float, bool]]:
        """(number, log-probability, whether it is the likeliest) of each reading, in any order.

        Readings whose whole segments before the first scored target are equal share these segments.
        """
        groups: dict[bytes, list[int]] = collections.defaultdict(list)
        for i, reading in enumerate(readings):
            groups[reading.inputs[: reading.shared].tobytes()].append(i)
        for some in batches(groups.values(), self._batch_size, lambda group: readings[group[0]].shared):
            rows = [readings[group[0]] for group in some]
            cache, longest = self._empty(len(rows)), max(row.shared for row in rows)
            for start in range(0, longest + 1, self._segment):
                ends = [(row, i) for row, group in enumerate(some) if rows[row].shared == start for i in group]
                yield from self._rests(cache, start, ends, readings)
                if start < longest:
                    _, cache = self._read(cache, rows, start, scored=False)

    def _rests(
        self, cache: Cache, start: int, ends: Iterable[tuple[int, int]], readings: Sequence[Part]
    ) -> Iterator[tuple[int, float, bool]]:
        """As `scores`, for (row of the cache, number of a reading that goes on there at `start`).

        Readings with equal inputs, such as choices of one token each, are read as one.
        """
        alike: dict[tuple[int, bytes], list[int]] = collections.defaultdict(list)
        for row, i in ends:
            alike[row, readings[i].inputs[start:].tobytes()].append(i)
        at_once = max(1, min(self._batch_size, MOST_NUMBERS // (self._segment * self._vocab_size)))
        for some in batches(alike.items(), at_once, lambda item: len(item[0][1])):
            rows = [readings[numbers[0]] for _, numbers in some]
            places = np.resize([row for (row, _), _ in some], self.filled(len(some)))
            state = {name: tf.gather(tensor, places) for name, tensor in cache.items()}
            found = {i: (0.0, True) for _, numbers in some for i in numbers}
            for at in range(start, max(len(row.inputs) for row in rows), self._segment):
                tokens = tf.constant(self._cut(rows, "inputs", at, len(places), 0))
                out = self._functions["step"](tokens=tokens, **state)
                state, log_probs = {name: out[name] for name in cache}, out["log_probs"]
                likeliest = tf.argmax(log_probs, axis=-1, output_type=tf.int32).numpy()
                for row, (_, numbers) in enumerate(some):
                    for i in numbers:
                        first = max(readings[i].first - at, 0)
                        targets = readings[i].targets[at + first : at + self._segment]
                        columns = np.arange(first, first + len(targets))
                        values = tf.gather_nd(log_probs[row], np.stack([columns, targets], axis=1)).numpy()
                        total, greedy = found[i]
                        greedy &= bool((likeliest[row, columns] == targets).all())
                        found[i] = (total + float(np.sum(values, dtype=np.float64)), greedy)
            for i, (total, greedy) in found.items():
                yield i, total, greedy

    def _empty(self, rows: int) -> Cache:
        """The cache of `rows` texts before their first token; there may be more rows, to fill it up."""
        return self._functions["initial_cache"](batch_size=tf.constant(self.filled(rows)))

    def filled(self, rows: int) -> int:
        """The next power of two, at most batch_size: each number of rows is compiled by itself."""
        return max(rows, min(1 << (rows - 1).bit_length(), self._batch_size))

    def _read(self, cache: Cache, rows: Sequence[Part], start: int, scored: bool = True) -> tuple[np.ndarray, Cache]:
        """Reads a segment of each text: its targets' log-probabilities [rows, S], 0 where none is, and the cache."""
        count = cache["length"].shape[0]
        tokens = tf.constant(self._cut(rows, "inputs", start, count, 0))
        targets = tf.constant(self._cut(rows if scored else (), "targets", start, count, -1))
        found = self._functions["read"](tokens=tokens, targets=targets, **cache)
        return found["log_probs"].numpy()[: len(rows)], {name: found[name] for name in cache}

    def _cut(self, rows: Sequence[Part], name: str, start: int, count: int, fill: int) -> np.ndarray:
        """The segment from `start` on of each text's inputs or targets: int32 [count, S]."""
        pieces = [getattr(row, name)[start : start + self._segment] for row in rows]
        found = np.full([count, self._segment], fill, np.int32)
        for row, piece in enumerate(pieces):
            found[row, : len(piece)] = piece
        return found

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The tokens of each text, int32 [n]."""
        strings = [whole(text) for text in texts]
        known: dict[str, np.ndarray] = {}
        for some in batches(dict.fromkeys(strings), TEXTS, len):
            found = self._functions["encode"](texts=tf.constant(some))
            ids, lengths = found["tokens"].numpy(), found["lengths"].numpy()
            known |= {text: row[:n] for text, row, n in zip(some, ids, lengths, strict=True)}
        return [known[text] for text in strings]

    def reading(self, ids: np.ndarray, first: int) -> Part:
        """The reading of a text whose tokens from `first` on are scored."""
        inputs = np.concatenate([[self._start], ids]).astype(np.int32)[:-1]
        return Part(inputs, ids, first, first // self._segment * self._segment)


def batches(items: Iterable[Any], size: int, length: Callable[[Any], int]) -> Iterator[list[Any]]:
    """The items in batches of at most this size, the longest first."""
    order = sorted(items, key=length, reverse=True)
    return (order[i : i + size] for i in range(0, len(order), size))

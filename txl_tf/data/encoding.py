"""Makes a vocabulary and ids from text, in one process.

Results are (vocabulary, chunks), where chunks yields (stream, ids [n]). A stream is named after its split; further
passes over the training text are "train-1", "train-2", ..
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from txl_tf.data.encoders import TokenKind, WordNumbers, Words, added_counts
from txl_tf.data.text.sources import SPLITS, TextSource
from txl_tf.data.threads import in_order
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.progress import progress_bar

# Lines are shuffled within groups of this many tokens, and the groups are shuffled, too.
_SHUFFLE_TOKENS = 1 << 20

Chunks = Iterable[tuple[str, np.ndarray]]
"""(stream, ids [n]) in the order of the text."""
_Group = tuple[str, str, int, int, np.random.Generator | None]  # stream, split, start, stop, shuffling


def encode(
    encoder: TokenKind, text: TextSource, work_dir: str, passes: int = 1, seed: int = 0
) -> tuple[Vocabulary, Chunks]:
    """The vocabulary of a text and its ids; provisional ids are in `work_dir`, a local directory.

    A training text of words is written `passes` times; if more than once, each time in another order of lines.
    """
    if isinstance(encoder, Words):
        return _encode_words(encoder, text, work_dir, passes, seed)

    def blocks() -> Iterator[tuple[str, bytes]]:
        found = text.blocks(**encoder.reading)
        return _trimmed(found) if encoder.trim else found

    counts = (encoder.count(block) for split, block in blocks() if split in encoder.counted)
    vocabulary = encoder.vocabulary(text, *added_counts(counts if encoder.counted else []))
    return vocabulary, in_order(lambda item: (item[0], encoder.encode(vocabulary, item[1])), blocks())


def _encode_words(encoder: Words, text: TextSource, work_dir: str, passes: int, seed: int) -> tuple[Vocabulary, Chunks]:
    """`encode`, reading the text only once: words get provisional numbers before the vocabulary is known."""
    numbers = WordNumbers()
    spools = {split: _Spool(os.path.join(work_dir, f"{split}.ids")) for split in SPLITS}
    for split, block in text.blocks(**encoder.reading):
        spools[split].add(numbers.of(encoder.cleaned(block)))
    seen = list(numbers)
    del numbers  # frees memory: there may be millions of words
    totals = np.zeros(len(seen), np.int64)
    for spool in (spools[split] for split in encoder.counted):
        for start, stop in spool.groups(_SHUFFLE_TOKENS):
            totals += np.bincount(spool.read(start, stop), minlength=len(seen))
    vocabulary = encoder.vocabulary(text, seen, totals)
    id_of, newline = encoder.ids_of(vocabulary, seen)
    del seen, totals

    def finished(group: _Group) -> tuple[str, np.ndarray]:
        stream, split, start, stop, rng = group
        numbered = spools[split].read(start, stop)
        if rng is not None:
            numbered = _shuffle_lines(numbered, newline, rng)
        return stream, encoder.tokens(numbered, id_of, newline)

    def groups() -> Iterator[_Group]:
        total = sum(spool.tokens * (passes if split == "train" else 1) for split, spool in spools.items())
        with progress_bar("writing", total, " tokens") as bar:
            for split, spool in spools.items():
                for index in range(passes if split == "train" else 1):
                    rng = np.random.default_rng([seed & 0xFFFFFFFF, index]) if split == "train" and passes > 1 else None
                    parts = spool.groups(_SHUFFLE_TOKENS)
                    if rng is not None:
                        rng.shuffle(parts)
                    for start, stop in parts:
                        yield f"{split}-{index}" if index else split, split, start, stop, rng and rng.spawn(1)[0]
                        bar.update(stop - start)

    return vocabulary, in_order(finished, groups())


class _Spool:
    """The numbers of a split in a file, and the positions at which they may be cut."""

    def __init__(self, path: str):
        self._path, self._bounds = path, [0]
        open(path, "wb").close()

    def add(self, numbers: np.ndarray) -> None:
        with open(self._path, "ab") as file:
            file.write(np.ascontiguousarray(numbers, np.int32).data)
        self._bounds.append(self._bounds[-1] + len(numbers))

    @property
    def tokens(self) -> int:
        return self._bounds[-1]

    def groups(self, size: int) -> list[tuple[int, int]]:
        """[(start, stop)] of about `size` numbers."""
        groups, start = [], 0
        for stop in self._bounds[1:]:
            if stop - start >= size or stop == self._bounds[-1]:
                groups.append((start, stop))
                start = stop
        return groups

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.fromfile(self._path, np.int32, stop - start, offset=4 * start)


def _shuffle_lines(numbers: np.ndarray, newline: int, rng: np.random.Generator) -> np.ndarray:
    """Shuffles the lines of numbers [n]; a line ends with `newline`."""
    ends = np.flatnonzero(numbers == newline) + 1
    starts = np.concatenate([[0], ends[:-1]])
    order = rng.permutation(len(ends))
    lengths = (ends - starts)[order]
    new_starts = np.cumsum(lengths) - lengths
    return numbers[np.arange(lengths.sum()) + np.repeat(starts[order] - new_starts, lengths)]


def _trimmed(blocks: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Blocks without white space at both ends of a split; the blocks of a split must be consecutive."""
    last, waiting = None, b""
    for split, block in blocks:
        if split != last:
            if last is not None:
                yield last, waiting.rstrip()
            last, waiting = split, block.lstrip()
        else:
            yield split, waiting
            waiting = block
    if last is not None:
        yield last, waiting.rstrip()

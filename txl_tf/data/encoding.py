"""Makes a vocabulary and ids from text: one function for each kind of token.

Each takes a TextSource and returns (vocabulary, chunks), where chunks yields (stream, ids [n]). A stream is named after
its split; further passes over the training text are "train-1", "train-2", ..
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from txl_tf.data import words
from txl_tf.data.progress import Progress
from txl_tf.data.sources import SPLITS, TextSource
from txl_tf.data.vocabularies import (
    ByteVocabulary,
    CharVocabulary,
    SubwordVocabulary,
    Vocabulary,
    WordVocabulary,
    XLNetVocabulary,
    load_vocabulary,
)
from txl_tf.data.vocabularies.subword_training import train

# Lines are shuffled within groups of this many tokens, and the groups are shuffled, too.
_SHUFFLE_TOKENS = 1 << 20
_TRAINING_WORDS = 40_000_000

Chunks = Iterable[tuple[str, np.ndarray]]
"""(stream, ids [n]) in the order of the text."""
_Group = tuple[str, str, int, int, np.random.Generator | None]  # stream, split, start, stop, shuffling


def all_bytes(text: TextSource) -> tuple[ByteVocabulary, Chunks]:
    """All 256 bytes, each its own id."""
    vocabulary = ByteVocabulary()
    return vocabulary, ((split, vocabulary.encode(block)) for split, block in text.blocks(utf8=False))


def seen_bytes(text: TextSource, vocab_file: str | None = None) -> tuple[Vocabulary, Chunks]:
    """The bytes that occur, without newlines, by decreasing frequency: the official vocabulary of enwik8.

    (The official code writes bytes as numbers between spaces but newlines as themselves, and splits at white space.)

    Args:
        text: TextSource.
        vocab_file: a file that `ByteVocabulary.save` wrote; None: order by frequency.
    """
    if vocab_file:
        vocabulary = load_vocabulary("", {"kind": "bytes", "file": vocab_file, "dropped": [ord("\n")]})
    else:
        order = _symbols_by_frequency(np.frombuffer(block, np.uint8) for _, block in text.blocks(utf8=False))
        vocabulary = ByteVocabulary(order[order != ord("\n")], dropped=[ord("\n")])
    return vocabulary, ((split, vocabulary.encode(block)) for split, block in text.blocks(utf8=False))


def seen_chars(text: TextSource, trim: bool = False, vocab_file: str | None = None) -> tuple[Vocabulary, Chunks]:
    """The characters that occur, by decreasing frequency.

    Args:
        text: TextSource.
        trim: whether to strip white space at both ends of each split, as the official code does for text8.
        vocab_file: a file that `CharVocabulary.save` wrote; None: order by frequency.
    """

    def blocks() -> Iterator[tuple[str, bytes]]:
        return _trimmed(text.blocks()) if trim else text.blocks()

    if vocab_file:
        vocabulary = load_vocabulary("", {"kind": "chars", "file": vocab_file})
    else:
        codes = (np.frombuffer(block.decode().encode("utf-32-le"), np.int32) for _, block in blocks())
        vocabulary = CharVocabulary([chr(code) for code in _symbols_by_frequency(codes)])
    return vocabulary, ((split, vocabulary.encode(block)) for split, block in blocks())


def seen_words(
    text: TextSource,
    work_dir: str,
    *,
    counted: Sequence[str] = ("train",),
    min_count: int = 1,
    word_list: list[str] | None = None,
    passes: int = 1,
    seed: int = 0,
    first: Sequence[str] = ("<eos>",),
    **options: Any,
) -> tuple[WordVocabulary, Chunks]:
    """The words that occur, by decreasing frequency; equally frequent ones in the order of their first appearance.

    Args:
        text: TextSource.
        work_dir: a local directory for provisional ids, given before the vocabulary is known.
        counted: the splits whose words enter the vocabulary; other words are unknown.
        min_count: rarer words are unknown.
        word_list: the vocabulary, in the order of ids, in place of the words that occur.
        passes: how many times the training text is written; with more than one, each has its lines shuffled
            differently.
        seed: of the shuffling.
        first: words at the start of the vocabulary, including the line's end.
        **options: of WordVocabulary.
    """
    options = {"line_end": "<eos>", "both_ends": False, "unknown": "<unk>", "lower_case": False, **options}
    numbers, counts = words.WordNumbers(), _Counts()
    spools = {split: _Spool(os.path.join(work_dir, f"{split}.ids")) for split in SPLITS}
    blocks = text.blocks(end_lines=True)
    if options["lower_case"]:
        blocks = ((split, block.decode().lower().encode()) for split, block in blocks)
    for split, ids in words.number_blocks(blocks, numbers):
        counts.add(split, ids)
        spools[split].add(ids)
    seen = [word.decode() for word in numbers.words]
    del numbers, blocks  # frees memory: there may be millions of words
    newline = seen.index("\n") if "\n" in seen else -1
    if word_list is None:
        order = _most_common(counts.total(counted, len(seen)), np.arange(len(seen)), min_count)
        word_list = list(dict.fromkeys([*first, *(seen[number] for number in order if number != newline)]))
        if options["unknown"] not in word_list:
            word_list.append(options["unknown"])
    vocabulary = WordVocabulary(word_list, **options)

    id_of = vocabulary.ids(seen)
    if newline >= 0:
        id_of[newline] = vocabulary.start_token
    del seen, word_list, counts

    def finished(group: _Group) -> tuple[str, np.ndarray]:
        stream, split, start, stop, rng = group
        numbered = spools[split].read(start, stop)
        if rng is not None:
            numbered = _shuffle_lines(numbered, newline, rng)
        tokens = id_of[numbered]
        return stream, _mark_both_ends(tokens, numbered == newline) if options["both_ends"] else tokens

    def groups() -> Iterator[_Group]:
        total = sum(spool.tokens * (passes if split == "train" else 1) for split, spool in spools.items())
        progress, done = Progress("writing", total, " tokens"), 0
        for split, spool in spools.items():
            for index in range(passes if split == "train" else 1):
                rng = np.random.default_rng([seed, index]) if split == "train" and passes > 1 else None
                parts = spool.groups(_SHUFFLE_TOKENS)
                if rng is not None:
                    rng.shuffle(parts)
                for start, stop in parts:
                    yield f"{split}-{index}" if index else split, split, start, stop, rng and rng.spawn(1)[0]
                    done += stop - start
                    progress.update(done)
        progress.close()

    return vocabulary, words.in_order(finished, groups())


def subword_pieces(
    text: TextSource, vocab_size: int | None = None, model: bytes | None = None
) -> tuple[SubwordVocabulary, Chunks]:
    """SentencePiece pieces, of a given model or of one trained on the first 40 million words of the training text.

    Models trained here keep spaces and newlines; a given model may not.
    """
    if model is None:
        if vocab_size is None:
            raise ValueError("give either the model or its vocab_size")
        numbers, counts, size = words.WordNumbers(), _Counts(), 0
        blocks = (item for item in text.blocks() if item[0] == "train")
        for split, ids in words.number_blocks(blocks, numbers):
            counts.add(split, ids)
            size += len(ids)
            if size > _TRAINING_WORDS:
                break
        totals = counts.total(["train"], len(numbers.words))
        seen = {word.decode(): int(count) for word, count in zip(numbers.words, totals, strict=True)}
        model = train(seen, vocab_size)
    vocabulary = SubwordVocabulary(model)
    return vocabulary, words.in_order(lambda item: (item[0], vocabulary.encode(item[1])), text.blocks())


def xlnet_pieces(text: TextSource, model: bytes) -> tuple[XLNetVocabulary, Chunks]:
    """XLNet's pieces with its clean-up; blank lines, which part documents, become end-of-document tokens."""
    vocabulary = XLNetVocabulary(model)
    return vocabulary, words.in_order(lambda item: (item[0], vocabulary.encode_documents(item[1])), text.blocks())


class _Counts:
    """How often each number occurs in each split."""

    def __init__(self) -> None:
        self._counts: dict[str, np.ndarray] = {}

    def add(self, split: str, numbers: np.ndarray) -> None:
        here = np.bincount(numbers)
        counts = self._counts.get(split, np.zeros(0, np.int64))
        if len(counts) < len(here):
            counts = np.concatenate([counts, np.zeros(len(here) * 3 // 2 - len(counts), np.int64)])
        counts[: len(here)] += here
        self._counts[split] = counts

    def total(self, splits: Iterable[str], size: int) -> np.ndarray:
        """Counts of numbers below `size`, in all these splits."""
        total = np.zeros(size, np.int64)
        for counts in (self._counts[split] for split in splits if split in self._counts):
            total[: len(counts)] += counts[:size]
        return total


def _most_common(total: np.ndarray, rank: np.ndarray, min_count: int = 1) -> np.ndarray:
    """Numbers by decreasing frequency; equally frequent ones by `rank`."""
    order = np.lexsort((rank, -total))
    return order[total[order] >= min_count]


def _symbols_by_frequency(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """The values in arrays, by decreasing frequency; equally frequent ones in the order of first appearance."""
    counts = _Counts()
    rank: dict[int, int] = {}
    for symbols in arrays:
        counts.add("all", symbols)
        for symbol in symbols[np.sort(np.unique(symbols, return_index=True)[1])].tolist():
            rank.setdefault(symbol, len(rank))
    values = np.array(list(rank))
    return values[_most_common(counts.total(["all"], max(rank, default=0) + 1)[values], np.arange(len(values)))]


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


def _mark_both_ends(tokens: np.ndarray, is_end: np.ndarray) -> np.ndarray:
    """Adds the line end at the start of each line: [a b / c /] -> [/ a b / / c /]."""
    return np.roll(np.repeat(tokens, np.where(is_end, 2, 1)), 1)


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

"""For each kind of token: how a text is read, counted and encoded, block by block.

`encode` runs an encoder over a text in one process, large/pipelines.py on many machines.
"""

from __future__ import annotations

import abc
import collections
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from txl_tf.data.text.blocks import DOCUMENT_MARK
from txl_tf.data.text.sources import SPLITS, TextSource
from txl_tf.data.threads import in_order
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
from txl_tf.progress import progress_bar

_TRAINING_WORDS = 40_000_000
# Lines are shuffled within groups of this many tokens, and the groups are shuffled, too.
_SHUFFLE_TOKENS = 1 << 20
Chunks = Iterable[tuple[str, np.ndarray]]
"""(stream, ids [n]) in the order of the text. Streams have the names of splits, and of further passes: "train-1".."""
_Group = tuple[str, str, int, int, np.random.Generator | None]  # stream, split, start, stop, shuffling


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


class TokenKind(abc.ABC):
    """A kind of token.

    Attributes:
        counted: the splits whose symbols must be counted to know the vocabulary; (): none.
        min_count: symbols that are rarer in these splits are not in the vocabulary.
        reading: how text is read: arguments of `TextSource.reading`.
        trim: whether white space at both ends of a split is left out.
        note: how the vocabulary was made, for the user, once it is made; "": nothing.
    """

    counted: tuple[str, ...] = ()
    min_count: int = 1
    reading: dict[str, bool] = {}  # noqa: RUF012 (never changed)
    trim: bool = False
    note: str = ""

    def count(self, block: bytes) -> tuple[list[Any], np.ndarray]:
        """The symbols of a block in the order of their first appearance, and the count of each, int64 [n]."""
        raise NotImplementedError(f"the vocabulary of {type(self).__name__} does not depend on counts")

    @abc.abstractmethod
    def vocabulary(self, text: TextSource, seen: Sequence[Any], totals: np.ndarray) -> Vocabulary:
        """The vocabulary, from symbols `seen`, in the order of their first appearance in `text.blocks()`.

        `totals` is int64 [n], how often each occurs in the splits that are counted; below 1: only in other splits.
        """

    def encode(self, vocabulary: Vocabulary, block: bytes) -> np.ndarray:
        """int32 ids [n] of a block."""
        return vocabulary.encode(block)


class AllBytes(TokenKind):
    """All 256 bytes, each its own id."""

    reading = {"utf8": False}  # noqa: RUF012

    def vocabulary(self, text: TextSource, seen: Sequence[Any], totals: np.ndarray) -> ByteVocabulary:
        return ByteVocabulary()


class SeenBytes(TokenKind):
    """The bytes that occur, without newlines, by decreasing frequency, or as in `vocab_file`: the vocabulary of enwik8.

    (The official code writes bytes as numbers between spaces but newlines as themselves, and splits at white space.)
    """

    reading = {"utf8": False}  # noqa: RUF012

    def __init__(self, vocab_file: str | None = None):
        self._vocab_file = vocab_file
        self.counted = () if vocab_file else SPLITS

    def count(self, block: bytes) -> tuple[list[int], np.ndarray]:
        return _count(np.frombuffer(block, np.uint8))

    def vocabulary(self, text: TextSource, seen: Sequence[int], totals: np.ndarray) -> Vocabulary:
        if self._vocab_file:
            return load_vocabulary("", {"kind": "bytes", "file": self._vocab_file, "dropped": [ord("\n")]})
        order = np.array(seen)[most_common(totals)]
        return ByteVocabulary(order[order != ord("\n")], dropped=[ord("\n")])


class SeenChars(TokenKind):
    """The characters that occur, by decreasing frequency, or as in `vocab_file`.

    With `trim`, white space at both ends of each split is left out, as by the official code for text8.
    """

    def __init__(self, trim: bool = False, vocab_file: str | None = None):
        self.trim, self._vocab_file = trim, vocab_file
        self.counted = () if vocab_file else SPLITS

    def count(self, block: bytes) -> tuple[list[int], np.ndarray]:
        return _count(np.frombuffer(block.decode().encode("utf-32-le"), np.int32))

    def vocabulary(self, text: TextSource, seen: Sequence[int], totals: np.ndarray) -> Vocabulary:
        if self._vocab_file:
            return load_vocabulary("", {"kind": "chars", "file": self._vocab_file})
        return CharVocabulary([chr(seen[number]) for number in most_common(totals)])


class Words(TokenKind):
    """The words that occur, by decreasing frequency; equally frequent ones in the order of their first appearance.

    Args:
        counted: the splits whose words enter the vocabulary; other words are unknown.
        min_count: rarer words are unknown.
        word_list: the vocabulary, in the order of ids, in place of the words that occur.
        first: words at the start of the vocabulary, including the line's end.
        **options: of WordVocabulary.
    """

    reading = {"end_lines": True}  # noqa: RUF012

    def __init__(
        self,
        counted: Sequence[str] = ("train",),
        min_count: int = 1,
        word_list: list[str] | None = None,
        first: Sequence[str] = ("<eos>",),
        **options: Any,
    ):
        self.counted, self.min_count = () if word_list else tuple(counted), min_count
        self._word_list, self._first = word_list, first
        self._options = {"line_end": "<eos>", "both_ends": False, "unknown": "<unk>", "lower_case": False, **options}

    @property
    def required(self) -> tuple[str, str]:
        """The words that every vocabulary has: the line's end and the unknown word."""
        return self._options["line_end"], self._options["unknown"]

    def cleaned(self, block: bytes) -> str:
        """The text of a block, in lower case if the vocabulary is."""
        return block.decode().lower() if self._options["lower_case"] else block.decode()

    def count(self, block: bytes) -> tuple[list[str], np.ndarray]:
        seen, numbered = self._numbered(block)
        return seen, np.bincount(numbered, minlength=len(seen))

    def vocabulary(self, text: TextSource, seen: Sequence[str], totals: np.ndarray) -> WordVocabulary:
        word_list = self._word_list
        if word_list is None:
            names = (seen[number] for number in most_common(totals, self.min_count) if seen[number] != "\n")
            word_list = list(dict.fromkeys([*self._first, *names]))
            if self._options["unknown"] not in word_list:
                word_list.append(self._options["unknown"])
        return WordVocabulary(word_list, **self._options)

    def encode(self, vocabulary: Vocabulary, block: bytes) -> np.ndarray:
        seen, numbered = self._numbered(block)
        return self.tokens(numbered, *self.ids_of(vocabulary, seen))

    def ids_of(self, vocabulary: Vocabulary, seen: Sequence[str]) -> tuple[np.ndarray, int]:
        """Ids of numbered words, int32 [n], and the number of the newline (-1: there is none)."""
        assert isinstance(vocabulary, WordVocabulary)
        id_of = vocabulary.ids(seen)
        newline = seen.index("\n") if "\n" in seen else -1
        if newline >= 0:
            id_of[newline] = vocabulary.start_token
        return id_of, newline

    def tokens(self, numbered: np.ndarray, id_of: np.ndarray, newline: int) -> np.ndarray:
        """Numbers of words [n] -> ids, with the tokens at the ends of lines."""
        tokens = id_of[numbered]
        if self._options["both_ends"]:  # also at the start of each line: [a b / c /] -> [/ a b / / c /]
            tokens = np.roll(np.repeat(tokens, np.where(numbered == newline, 2, 1)), 1)
        return tokens

    def _numbered(self, block: bytes) -> tuple[list[str], np.ndarray]:
        """The different words of a block, and the number of each of its words, int32 [n]."""
        numbers = WordNumbers()
        numbered = numbers.of(self.cleaned(block))
        return list(numbers), numbered


class Subwords(TokenKind):
    """SentencePiece pieces. The ends of documents become <eod>, if the model has this piece.

    A model of `vocab_size` pieces is trained on the first 40 million words of the training text; it keeps spaces and
    newlines. Or a serialised `model` is used, with `xlnet` after XLNet's clean-up, which its spiece.model needs.
    """

    def __init__(self, vocab_size: int | None, model: bytes | None, xlnet: bool, keep_accents: bool):
        self._vocab_size, self._given = vocab_size, None
        if model is not None:
            self._given = XLNetVocabulary(model, keep_accents=keep_accents) if xlnet else SubwordVocabulary(model)
        marked = self._given is None or self._given.special.end_of_document is not None
        self.reading = {"marked": marked}

    def vocabulary(self, text: TextSource, seen: Sequence[Any], totals: np.ndarray) -> SubwordVocabulary:
        if self._given:
            return self._given
        assert self._vocab_size is not None, "Settings.check has seen that there is a model or its size"
        found, tokens, read = collections.Counter[str](), 0, 0
        for block in (block for split, block in text.blocks() if split == "train"):
            found.update(seen := tokens_of(block.decode()))
            tokens, read = tokens + len(seen), read + len(block)
            if tokens > _TRAINING_WORDS:
                break
        model, share = train(found, self._vocab_size)
        first = f"the first {tokens - found[chr(10)]:,} words ({read:,} bytes)"
        rare = f", without its rarest words ({100 * (1 - share):.1f} %)" if share < 1 else ""
        self.note = (
            f"SentencePiece learned from {first if tokens > _TRAINING_WORDS else 'all'} of the training text{rare}"
        )
        return SubwordVocabulary(model)

    def encode(self, vocabulary: Vocabulary, block: bytes) -> np.ndarray:
        assert isinstance(vocabulary, SubwordVocabulary)
        return vocabulary.encode_documents(block.split(DOCUMENT_MARK))


def most_common(totals: np.ndarray, min_count: int = 1) -> np.ndarray:
    """Indices of counts [n] by decreasing count; equal ones in order. Those below `min_count` are left out."""
    order = np.argsort(-totals, kind="stable")
    return order[totals[order] >= min_count]


def _count(symbols: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The values in an array in the order of their first appearance, and their counts."""
    values, first, counts = np.unique(symbols, return_index=True, return_counts=True)
    order = np.argsort(first)
    return values[order].tolist(), counts[order]


def added_counts(blocks: Iterable[tuple[list[Any], np.ndarray]]) -> tuple[list[Any], np.ndarray]:
    """The symbols of all blocks and their counts, as `TokenKind.count` gives them for each."""
    totals = collections.Counter[Any]()
    for symbols, counts in blocks:
        totals.update(dict(zip(symbols, counts.tolist(), strict=True)))
    return list(totals), np.fromiter(totals.values(), np.int64, len(totals))


def encode(encoder: TokenKind, text: TextSource, work_dir: str, passes: int, seed: int) -> tuple[Vocabulary, Chunks]:
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

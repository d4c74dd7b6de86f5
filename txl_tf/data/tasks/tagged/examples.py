"""Texts with tags as a set of examples, and a model's outputs for them as tags.

An example is P <sep> <cls>, padded on the left: P is a text's pieces, or a part of them if the text is too long for one
example. A word's tag is learned and read at its first piece.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.examples import Chunk, ExamplePlan, ExampleSet
from txl_tf.data.tasks.layout import CLS, FIRST, PADDING
from txl_tf.data.tasks.tables import file_of, refuse_unknown
from txl_tf.data.tasks.tagged.texts import TaggedText
from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.errors import InputError

MARKS = 2  # SEP and CLS
NOTHING = -1
"""The label of a column that does not begin a word, and the example's number of a word without pieces."""

_AT_ONCE = 256  # texts that are encoded in one call


@dataclasses.dataclass(frozen=True)
class Reading:
    """A text in its examples.

    Attributes:
        text: the text.
        parts: its pieces, int32 [m] each, one array for an example.
        part, column: int [W], the place of each word's first piece: the number of its part (NOTHING if the word has no
            piece), and the column in that part.
    """

    text: TaggedText
    parts: tuple[np.ndarray, ...]
    part: np.ndarray
    column: np.ndarray


@dataclasses.dataclass(frozen=True)
class TaggedExamples(ExampleSet):
    """Texts with tags: features tokens, segments, padding and, if tags are known, label [n, S T].

    `readings` gives the texts with their parts, in the order of the examples; `scheme` is that of the tags.
    """

    readings: Callable[[], Sequence[Reading]] = list
    scheme: str = ""

    def of_words(self, values: np.ndarray, default: Any) -> list[np.ndarray]:
        """For each text the values [n, L] at its words' first pieces, [W]; `default` for a word without pieces.

        Columns are counted from the right, so L may be any length.
        """
        found, first = [], 0
        for reading in self.readings():
            lengths = np.array([len(part) for part in reading.parts])
            part = np.maximum(reading.part, 0)
            column = values.shape[1] - MARKS - lengths[part] + reading.column
            found.append(np.where(reading.part == NOTHING, default, values[first + part, column]))
            first += len(reading.parts)
        return found

    def tags(self, outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The numbers of the tags of each text's words, from outputs; a word without pieces has that of O, or 0."""
        return self.of_words(outputs["tag"], self.labels.index("O") if "O" in self.labels else 0)


def read_parts(texts: Sequence[TaggedText], vocabulary: SubwordVocabulary, size: int) -> Iterator[Reading]:
    """The readings of texts in parts of at most `size` pieces."""
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        for text, pieces in zip(some, vocabulary.encode_with_places([one.text for one in some]), strict=True):
            visible = np.flatnonzero(pieces.begin < pieces.end)
            begin, end = np.array(text.places, np.int64).reshape(-1, 2).T
            # The first visible piece that ends after the word's beginning, if it begins before the word's end.
            place = np.searchsorted(pieces.end[visible], begin, side="right")
            there = place < len(visible)
            piece = visible[np.where(there, place, 0)] if len(visible) else np.zeros(len(begin), np.int64)
            there &= (pieces.begin[piece] if len(visible) else piece) < end
            parts = tuple(pieces.ids[i : i + size] for i in range(0, max(len(pieces.ids), 1), size))
            yield Reading(text, parts, np.where(there, piece // size, NOTHING), np.where(there, piece % size, 0))


def tagged_examples(texts: Sequence[TaggedText], plan: ExamplePlan) -> TaggedExamples:
    """Texts as examples of S segments of T tokens: as many as the longest text needs, but at most `max_segments`.

    The pieces of longer texts become several examples.

    Raises:
        InputError: the vocabulary's tokens have no places in texts, all words have the same tag, or a text has one that
            is not among those of the plan.
    """
    vocabulary, labelled = plan.subwords(), plan.labelled
    t_len, max_segments = plan.config.data.tgt_len, plan.config.data.max_segments
    labels = tag_names(texts) if plan.labels is None else plan.labels
    if len(labels) < 2:
        raise InputError(f"{texts[0].where}: all words have the tag {labels[0]!r}: there is nothing to tell apart")
    if labelled:
        unknown = [(text, tag) for text in texts for tag in sorted(set(text.tags) - set(labels))[:1]]
        said = [f"{text.where}: a word has the tag {tag!r}" for text, tag in unknown]
        refuse_unknown(said, labels, file_of(texts))
    size = t_len * max_segments - MARKS

    @functools.cache
    def readings() -> Sequence[Reading]:
        return tuple(read_parts(texts, vocabulary, size))

    parts = [len(part) for reading in readings() for part in reading.parts]
    width = -(-(max(parts) + MARKS) // t_len) * t_len

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(texts), _AT_ONCE):
            yield _features(readings()[start : start + _AT_ONCE], vocabulary, width, labels, labelled), []

    content = hashlib.sha256(repr([(one.text, one.places, one.tags if labelled else ()) for one in texts]).encode())
    layout = {"sha256": content.hexdigest(), "tgt_len": t_len, "max_segments": max_segments}
    layout |= {"tags": labels, "labelled": labelled}
    timed = ("tokens", "segments", "padding", *(["label"] if labelled else []))
    made = plan.make(chunks, len(parts), layout, labels=labels, timed=timed)
    remarks = (*getattr(texts, "remarks", ()), *_remarks(readings(), t_len, max_segments))
    return TaggedExamples(**vars(made) | {"readings": readings, "remarks": remarks, "scheme": plan.scheme})


def _features(
    readings: Sequence[Reading], vocabulary: SubwordVocabulary, width: int, labels: tuple[str, ...], labelled: bool
) -> dict[str, np.ndarray]:
    numbers = {name: i for i, name in enumerate(labels)}
    parts = [part for reading in readings for part in reading.parts]
    tokens = np.zeros([len(parts), width], smallest_dtype(vocabulary.vocab_size))
    segments, label = np.full(tokens.shape, PADDING, np.uint8), np.full(tokens.shape, NOTHING, np.int16)
    marks = [vocabulary.special_token("sep"), vocabulary.special_token("cls")]
    for row, part in enumerate(parts):
        begin = width - MARKS - len(part)
        tokens[row, begin:] = [*part, *marks]
        segments[row, begin:-1], segments[row, -1] = FIRST, CLS
    first = 0
    for reading in readings if labelled else ():
        for tag, part, column in zip(reading.text.tags, reading.part, reading.column, strict=True):
            if part != NOTHING:
                label[first + part, width - MARKS - len(reading.parts[part]) + column] = numbers[tag]
        first += len(reading.parts)
    features = {"tokens": tokens, "segments": segments, "padding": segments == PADDING}
    return features | ({"label": label} if labelled else {})


def _remarks(readings: Sequence[Reading], t_len: int, max_segments: int) -> tuple[str, ...]:
    """Remarks on long texts, and on words without pieces."""
    texts, found = f"of {counted(len(readings), 'text')}", []
    if long := sum(sum(map(len, reading.parts)) + MARKS > t_len for reading in readings):
        found.append(f"{long:,} {texts} with more than {t_len:,} tokens (tgt_len) are read by segments with memory")
    if cut := sum(len(reading.parts) > 1 for reading in readings):
        limit = f"more than {counted(max_segments, 'segment')} (max_segments)"
        found.append(f"{cut:,} {texts} with {limit} are read in parts that do not know of each other")
    if lost := sum(int(np.count_nonzero(reading.part == NOTHING)) for reading in readings):
        found.append(f"not learned: {counted(lost, 'word')} without a token, such as invisible characters")
    return tuple(found)


def tag_names(texts: Sequence[TaggedText]) -> tuple[str, ...]:
    """The tags that occur, in order."""
    return tuple(sorted({tag for text in texts for tag in text.tags}))

"""Texts with tags as a set of examples, and a model's outputs for them as tags.

An example is P <sep> <cls>, padded on the left: P is a text's pieces, or a part of them if the text is too long for one
example. A word's tag is learned and read at its first piece.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.examples.example_set import Chunk, ExamplePlan, ExampleSet
from txl_tf.data.examples.layout import CLS, FIRST, PADDING
from txl_tf.data.records import smallest_dtype
from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.errors import InputError
from txl_tf.tasks.tagging import schemes
from txl_tf.tasks.tagging.decoding import legal_tags, only
from txl_tf.tasks.tagging.texts import TaggedText
from txl_tf.tasks.texts import refuse_unknown

MARKS = 2  # SEP and CLS
NOTHING = -1
"""The label of a column that does not begin a word, and the first piece of a word without pieces."""

_AT_ONCE = 256  # texts that are encoded in one call


@dataclasses.dataclass(frozen=True)
class TaggedExamples(ExampleSet):
    """Texts with tags: features tokens, segments, padding and, if tags are known, label [n, S T].

    `texts` are those of the examples; `pieces` is int [W], as `first_pieces` gives it; `scheme` is that of the tags.
    """

    texts: Sequence[TaggedText] = ()
    pieces: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    scheme: str = ""

    def of_words(self, values: np.ndarray, default: Any) -> list[np.ndarray]:
        """For each text the values [n, L] at its words' first pieces, [W]; `default` for a word without pieces.

        Columns are counted from the right, so L may be any length.
        """
        of_pieces = values[_are_pieces(self.features["padding"][:, -values.shape[1] :])]
        of_pieces = np.concatenate([of_pieces, values[:1, 0]])  # the last one is that of words without pieces
        there = (self.pieces != NOTHING).reshape(-1, *[1] * (values.ndim - 2))
        words = np.where(there, of_pieces[self.pieces], default)
        return np.split(words, np.cumsum([len(text.places) for text in self.texts])[:-1])

    def numbers(self) -> list[list[int]]:
        """The numbers of the tags of each text's words, as they are known."""
        number = {name: i for i, name in enumerate(self.labels)}
        return [[number[tag] for tag in text.tags] for text in self.texts]

    def tags(self, outputs: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The numbers of the tags of each text's words, from outputs, and their log-probabilities, each [W]."""
        if "log_probs" not in outputs:
            default = schemes.default_tag(self.labels)
            return self.of_words(outputs["tag"], default), self.of_words(outputs["log_prob"], 0.0)
        rows, rules = self.log_probs(outputs), schemes.allowed(self.labels, self.scheme)
        found = list[np.ndarray](), list[np.ndarray]()
        for start in range(0, len(rows), _AT_ONCE):
            lengths = [len(row) for row in rows[start : start + _AT_ONCE]]
            legal = legal_tags(np.concatenate(rows[start : start + _AT_ONCE]), lengths, rules)
            for side, values in zip(found, legal, strict=True):
                side += np.split(values.numpy(), np.cumsum(lengths)[:-1])
        return found

    def log_probs(self, outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The log-probabilities of all tags of each text's words, [W, C]."""
        return self.of_words(outputs["log_probs"], only(schemes.default_tag(self.labels), len(self.labels)))

    def forbids(self) -> bool:
        """Whether the scheme of the tags forbids sequences. IOB1 does not: an entity may begin with I."""
        is_iob1 = schemes.scheme_name(self.labels, [text.tags for text in self.texts], self.scheme) == "IOB1"
        return not is_iob1 and not schemes.allowed(self.labels, self.scheme).all()


def first_pieces(texts: Sequence[TaggedText], vocabulary: SubwordVocabulary) -> tuple[list[np.ndarray], np.ndarray]:
    """The pieces of each text, int32 [m], and of each word of all texts the first piece, int [W].

    That is its number among the pieces of all texts; NOTHING if the word has none.
    """
    ids, first, count = [], [], 0
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        for text, pieces in zip(some, vocabulary.encode_with_places([one.text for one in some]), strict=True):
            begin, end = np.array(text.places, np.int64).reshape(-1, 2).T
            # The first visible piece that ends after the word's beginning, if it begins before the word's end.
            visible = np.append(np.flatnonzero(pieces.begin < pieces.end), len(pieces.ids))
            piece = visible[np.searchsorted(pieces.end[visible[:-1]], begin, side="right")]
            there = np.append(pieces.begin, len(text.text))[piece] < end
            first.append(np.where(there, count + piece, NOTHING))
            ids.append(pieces.ids)
            count += len(pieces.ids)
    return ids, np.concatenate(first)


def tagged_examples(texts: Sequence[TaggedText], plan: ExamplePlan) -> TaggedExamples:
    """Texts as examples of S segments of T tokens: as many as the longest text needs, but at most `max_segments`.

    The pieces of longer texts become several examples. InputError if the vocabulary's tokens have no places in texts,
    all words have the same tag, or a text has one that is not among those of the plan.
    """
    vocabulary, labelled = plan.subwords(), plan.labelled
    t_len, max_segments = plan.config.data.tgt_len, plan.config.data.max_segments
    labels = tuple(sorted({tag for text in texts for tag in text.tags})) if plan.labels is None else plan.labels
    if len(labels) < 2:
        raise InputError(f"{texts[0].where}: all words have the tag {labels[0]!r}: there is nothing to tell apart")
    if labelled:
        unknown = [(text, tag) for text in texts for tag in sorted(set(text.tags) - set(labels))[:1]]
        refuse_unknown([f"{text.where}: a word has the tag {tag!r}" for text, tag in unknown], labels, texts)
    size = t_len * max_segments - MARKS
    ids, pieces = first_pieces(texts, vocabulary)
    parts = [own[i : i + size] for own in ids for i in range(0, max(len(own), 1), size)]
    width = -(-(max(map(len, parts)) + MARKS) // t_len) * t_len

    def chunks() -> Iterator[Chunk]:
        tokens = np.zeros([len(parts), width], smallest_dtype(vocabulary.vocab_size))
        segments = np.full(tokens.shape, PADDING, np.uint8)
        marks = [vocabulary.special_token("sep"), vocabulary.special_token("cls")]
        for row, part in enumerate(parts):
            begin = width - MARKS - len(part)
            tokens[row, begin:] = [*part, *marks]
            segments[row, begin:-1], segments[row, -1] = FIRST, CLS
        features = {"tokens": tokens, "segments": segments, "padding": segments == PADDING}
        if labelled:
            number = {name: i for i, name in enumerate(labels)}
            tags = np.array([number[tag] for text in texts for tag in text.tags], np.int16)
            of_pieces = np.full(sum(map(len, parts)), NOTHING, np.int16)
            of_pieces[pieces[pieces != NOTHING]] = tags[pieces != NOTHING]
            features["label"] = np.full(tokens.shape, NOTHING, np.int16)
            features["label"][_are_pieces(features["padding"])] = of_pieces
        yield features, []

    content = hashlib.sha256(repr([(one.text, one.places, one.tags if labelled else ()) for one in texts]).encode())
    layout = {"sha256": content.hexdigest(), "tgt_len": t_len, "max_segments": max_segments}
    layout |= {"tags": labels, "labelled": labelled}
    timed = ("tokens", "segments", "padding", *(["label"] if labelled else []))
    made = plan.make(chunks, len(parts), layout, labels=labels, timed=timed)
    lengths, remarks = np.array([len(own) + MARKS for own in ids]), [*getattr(texts, "remarks", ())]
    if long := np.count_nonzero(lengths > t_len):
        remarks.append(
            f"{long:,} of {counted(len(ids), 'text')} with more than {t_len:,} tokens (tgt_len) are read by segments "
            "with memory"
        )
    if cut := np.count_nonzero(lengths > t_len * max_segments):
        remarks.append(
            f"{cut:,} of {counted(len(ids), 'text')} with more than {counted(max_segments, 'segment')} (max_segments) "
            "are read in parts that do not know of each other"
        )
    if lost := int(np.count_nonzero(pieces == NOTHING)):
        remarks.append(f"not learned: {counted(lost, 'word')} without a token, such as invisible characters")
    own = {"texts": texts, "pieces": pieces, "remarks": tuple(remarks), "scheme": plan.scheme}
    return TaggedExamples(**vars(made) | own)


def _are_pieces(padding: np.ndarray) -> np.ndarray:
    """Whether columns are neither padding nor marks, bool [n, L]."""
    found = ~padding
    found[:, -MARKS:] = False
    return found

"""Paragraphs of any length as examples of T tokens: overlapping windows, each with the question.

An example is P SEP Q SEP CLS, padded on the right, as in the official code: P is a window of the paragraph, Q the
question. Token i of P is column i of the example.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.data.vocabularies.traced_text import PlacedTokens
from txl_tf.tasks.answering import QuestionsConfig
from txl_tf.tasks.answering.squad import Paragraph, SquadQuestion

PARAGRAPH, QUESTION, CLS, PADDING = 0, 1, 2, 3
"""Segment ids of P and its SEP, of Q and its SEP, of CLS, and of padding. They differ from those of other tasks."""

_AT_ONCE = 256  # paragraphs that are encoded in one call


class Window(typing.NamedTuple):
    """The tokens first to first + size of a paragraph."""

    first: int
    size: int


class AnswerSpan(typing.NamedTuple):
    """The tokens first to last of a paragraph, both included."""

    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class QuestionWindows:
    """A question, and the windows of its paragraph.

    Attributes:
        question: the question.
        text: its paragraph.
        pieces: the paragraph's tokens.
        query: the question's tokens, cut, int32 [m].
        query_cut: whether it was cut.
        windows: cover all tokens.
        answer: the tokens that overlap the first of the right answers whose place is known; None: there is none.
    """

    question: SquadQuestion
    text: str
    pieces: PlacedTokens
    query: np.ndarray
    query_cut: bool
    windows: tuple[Window, ...]
    answer: AnswerSpan | None

    @functools.cached_property
    def owners(self) -> np.ndarray:
        """See `owners`."""
        return owners(self.windows)


def cut_windows(n: int, size: int, stride: int) -> tuple[Window, ...]:
    """The windows of n tokens: each has `size` tokens, the last one perhaps fewer. Each starts `stride` tokens after
    the one before, or at that one's end if this is earlier."""
    step = min(size, stride)
    # A window is needed if the window before it, which ends at first + size - step, does not reach the end.
    firsts = range(0, max(n - size + step, 1), step)
    return tuple(Window(first, min(size, n - first)) for first in firsts)


def owners(windows: Sequence[Window]) -> np.ndarray:
    """For each token the window, int [n], in which it has the most context; of equal ones the first.

    Context is the number of tokens on the token's shorter side, plus 0.01 for each token of the window: the "max
    context" of the official code.
    """
    n = windows[-1].first + windows[-1].size
    owner, most = np.zeros([n], np.int64), np.full([n], -1.0)  # a row for each window would be a square of the text
    for number, (first, size) in enumerate(windows):
        left = np.arange(size)
        context = np.minimum(left, size - 1 - left) + 0.01 * size
        more = context > most[first : first + size]
        owner[first : first + size][more], most[first : first + size][more] = number, context[more]
    return owner


def read_windows(
    paragraphs: Iterable[Paragraph], vocabulary: SubwordVocabulary, data: QuestionsConfig
) -> Iterator[QuestionWindows]:
    """The readings of all questions, in order, in windows as the settings say."""
    rest = iter(paragraphs)
    while group := list(itertools.islice(rest, _AT_ONCE)):
        texts = vocabulary.encode_with_places([paragraph.text for paragraph in group])
        queries = iter(vocabulary.encode_with_places([one.text for paragraph in group for one in paragraph.questions]))
        for paragraph, pieces in zip(group, texts, strict=True):
            for question in paragraph.questions:
                whole = next(queries).ids
                query = whole[: data.max_query_len]
                size = data.tgt_len - len(query) - 3
                windows = cut_windows(len(pieces.ids), size, data.doc_stride)
                cut, answer = len(whole) > len(query), answer_span(question, pieces)
                yield QuestionWindows(question, paragraph.text, pieces, query, cut, windows, answer)


def answer_span(question: SquadQuestion, pieces: PlacedTokens) -> AnswerSpan | None:
    """See `QuestionWindows.answer`."""
    for answer in question.answers:
        if answer.start is not None:
            stop = answer.start + len(answer.text)
            inside = (pieces.end > answer.start) & (pieces.begin < stop) & (pieces.begin < pieces.end)
            places = np.flatnonzero(inside)
            if len(places):
                return AnswerSpan(int(places[0]), int(places[-1]))
    return None


def examples(readings: Iterable[QuestionWindows], vocabulary: SubwordVocabulary, t_len: int) -> dict[str, np.ndarray]:
    """The windows of readings as features of examples, in order.

    Returns:
        tokens: int32 [n, T]; padding has token 0.
        segments: int8 [n, T].
        padding: bool [n, T], true where there is no token.
        allowed: bool [n, T], where an answer may start and end: in P, and at CLS for no answer.
        cls_index: int32 [n], the column of CLS.
        start, end: int32 [n], the answer's first and last column; CLS unless the whole answer is in the window.
        impossible: bool [n], whether the window does not have the whole answer.
        learned: bool [n], false if the question has an answer whose place is not known.
    """
    sep, cls = vocabulary.special_token("sep"), vocabulary.special_token("cls")
    placed = [(reading, window) for reading in readings for window in reading.windows]
    n = len(placed)
    tokens, segments = np.zeros([n, t_len], np.int32), np.full([n, t_len], PADDING, np.int8)
    padding, allowed = np.ones([n, t_len], bool), np.zeros([n, t_len], bool)
    cls_index, start, end = np.zeros([3, n], np.int32)
    for row, (reading, (first, size)) in enumerate(placed):
        stop = size + len(reading.query) + 2  # where CLS is
        tokens[row, :size] = reading.pieces.ids[first : first + size]
        tokens[row, size + 1 : stop - 1] = reading.query
        tokens[row, [size, stop - 1, stop]] = sep, sep, cls
        segments[row, : size + 1], segments[row, size + 1 : stop], segments[row, stop] = PARAGRAPH, QUESTION, CLS
        padding[row, : stop + 1] = False
        allowed[row, :size] = allowed[row, stop] = True
        cls_index[row] = start[row] = end[row] = stop
        answer = reading.answer
        if answer is not None and first <= answer.first and answer.last < first + size:
            start[row], end[row] = answer.first - first, answer.last - first
    return {
        "tokens": tokens,
        "segments": segments,
        "padding": padding,
        "allowed": allowed,
        "cls_index": cls_index,
        "start": start,
        "end": end,
        "impossible": start == cls_index,
        "learned": np.array([reading.answer is not None or not reading.question.answers for reading, _ in placed]),
    }

"""Questions about texts of any length as examples: overlapping windows of the texts.

An example is P SEP Q SEP CLS, padded on the right, as in the official code: P is a window of the paragraph, Q the
question. Token i of P is column i of the example.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.examples.example_set import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.records import smallest_dtype
from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.data.vocabularies.traced_text import PlacedTokens
from txl_tf.tasks.answering import QuestionsConfig
from txl_tf.tasks.answering.answers import Answered, decode
from txl_tf.tasks.answering.squad import Answer, Paragraph, Squad, SquadQuestion

PARAGRAPH, QUESTION, CLS, PADDING = 0, 1, 2, 3
"""Segment ids of P and its SEP, of Q and its SEP, of CLS, and of padding. They differ from those of other tasks."""

_AT_ONCE = 256  # paragraphs that are encoded in one call


class Window(typing.NamedTuple):
    """The tokens first to first + size of a paragraph."""

    first: int
    size: int


@dataclasses.dataclass(frozen=True)
class QuestionWindows:
    """A question, and the windows of its paragraph.

    Attributes:
        text, pieces: the paragraph and its tokens.
        query: the question's tokens, cut, int32 [m].
        windows: cover all tokens.
        answer: the first and the last of the tokens that overlap the first of the right answers whose place is known;
            None: there is none.
    """

    question: SquadQuestion
    text: str
    pieces: PlacedTokens
    query: np.ndarray
    query_cut: bool
    windows: tuple[Window, ...]
    answer: tuple[int, int] | None

    @functools.cached_property
    def owners(self) -> np.ndarray:
        """See `owners`."""
        return owners(self.windows)


def cut_windows(n: int, size: int, stride: int) -> tuple[Window, ...]:
    """The windows of n tokens: each has `size` tokens, the last one perhaps fewer.

    Each starts `stride` tokens after the one before, or at that one's end if this is earlier.
    """
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


def answer_span(question: SquadQuestion, pieces: PlacedTokens) -> tuple[int, int] | None:
    """See `QuestionWindows.answer`."""
    for answer in question.answers:
        if answer.start is not None:
            stop = answer.start + len(answer.text)
            inside = (pieces.end > answer.start) & (pieces.begin < stop) & (pieces.begin < pieces.end)
            places = np.flatnonzero(inside)
            if len(places):
                return int(places[0]), int(places[-1])
    return None


def examples(readings: Iterable[QuestionWindows], vocabulary: SubwordVocabulary, t_len: int) -> dict[str, np.ndarray]:
    """The windows of readings as features of examples, in order.

    tokens, int32 [n, T], with 0 as padding, segments, int8, and padding, bool, true where there is no token.
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
        if reading.answer and first <= reading.answer[0] and reading.answer[1] < first + size:
            start[row], end[row] = reading.answer[0] - first, reading.answer[1] - first
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


TIMED = ("tokens", "segments", "padding", "allowed")
_TOGETHER = 1024  # questions that are laid out in one call
_TARGETS = ("start", "end", "impossible", "learned")


@dataclasses.dataclass(frozen=True)
class QuestionExamples(ExampleSet):
    """The windows of questions; see `examples` for the features, `decode` for max_answer_len and n_best.

    `readings` gives the questions with their windows, in the order of the examples.
    """

    readings: Callable[[], Sequence[QuestionWindows]] = list
    max_answer_len: int = 64
    n_best: int = 5

    def answered(self, outputs: Mapping[str, np.ndarray]) -> list[Answered]:
        """The answers to the questions, in order, from a model's outputs [n, ..] by name; see `decode`."""
        readings, found = self.readings(), []
        limits = np.cumsum([0, *(len(reading.windows) for reading in readings)])
        for reading, (first, last) in zip(readings, itertools.pairwise(limits), strict=True):
            own = {name: array[first:last] for name, array in outputs.items()}
            found.append(decode(reading, own, self.max_answer_len, self.n_best))
        return found


def squad_examples(squad: Squad, plan: ExamplePlan) -> QuestionExamples:
    """Questions about texts as examples; those without labels lack the features that say where answers are.

    InputError if the vocabulary's tokens have no places in texts.
    """
    vocabulary, data, evaluation = plan.subwords(), plan.config.data, plan.config.eval
    squad, before = with_found(squad) if data.find_answers else squad, len(squad.misplaced)

    @functools.cache
    def readings() -> Sequence[QuestionWindows]:
        return tuple(read_windows(squad, vocabulary, data))

    def chunks() -> Iterator[Chunk]:
        found = iter(read_windows(squad, vocabulary, data))
        while group := list(itertools.islice(found, _TOGETHER)):
            features = examples(group, vocabulary, data.tgt_len)
            features["tokens"] = features["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            # Whether a question was cut is kept with the first of its windows.
            cut = [one.query_cut if i == 0 else None for one in group for i in range(len(one.windows))]
            yield {name: array for name, array in features.items() if plan.labelled or name not in _TARGETS}, cut

    content = hashlib.sha256(repr(tuple(squad)).encode("utf-8", "replace")).hexdigest()
    layout = {"t_len": data.tgt_len, "max_query_len": data.max_query_len, "doc_stride": data.doc_stride}
    about = {"sha256": content, "layout": layout, "labelled": plan.labelled}
    made = plan.make(chunks, len(squad.questions), about, timed=TIMED, padded="right")
    remarks = cut_remarks(
        [cut for cut in made.meta if cut is not None], data.max_query_len, "questions", "max_query_len"
    )
    misplaced = squad.misplaced
    if before > len(misplaced):
        by_text = "misplaced answer was found by its text", "misplaced answers were found by their texts"
        remarks += (counted(before - len(misplaced), *by_text),)
    if misplaced:
        advice = "" if data.find_answers else "; --find_answers finds those whose text occurs once in the context"
        remarks += (
            f"{counted(len(misplaced), 'answer is not', 'answers are not')} where the file says, such as "
            f"{misplaced[0]}: a question without any other answer is not learned{advice}",
        )
    limits = {"max_answer_len": evaluation.max_answer_len, "n_best": evaluation.n_best}
    return QuestionExamples(**vars(made) | limits | {"readings": readings, "remarks": remarks})


def with_found(squad: Squad) -> Squad:
    """With places for misplaced answers whose texts occur exactly once in their paragraphs."""
    found = Squad()
    for one in squad:
        questions = []
        for question in one.questions:
            answers = list(question.answers)
            for i, answer in enumerate(answers):
                start = one.text.find(answer.text)
                if answer.start is None and 0 <= start == one.text.rfind(answer.text):
                    answers[i] = Answer(answer.text, start)
            questions.append(dataclasses.replace(question, answers=tuple(answers)))
        found.append(Paragraph(one.text, tuple(questions)))
    return found

"""Questions in SQuAD's format as a set of examples, and a model's outputs for them as answers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.answers import Answered, decode
from txl_tf.data.tasks.examples import Chunk, ExampleSet, cut_remarks, make_examples
from txl_tf.data.tasks.squad import Answer, Paragraph, Squad
from txl_tf.data.tasks.windows import Layout, QuestionWindows, examples, read_windows
from txl_tf.data.vocabularies import SubwordVocabulary

TIMED = ("tokens", "segments", "padding", "allowed")
_AT_ONCE = 1024  # questions that are laid out in one call
_TARGETS = ("start", "end", "impossible", "learned")


@dataclasses.dataclass(frozen=True)
class QuestionExamples(ExampleSet):
    """The windows of questions; see `windows.examples` for the features.

    Attributes:
        readings: gives the questions with their windows, in the order of the examples.
        max_answer_len, n_best: see `answers.decode`.
    """

    readings: Callable[[], Sequence[QuestionWindows]] = list
    max_answer_len: int = 64
    n_best: int = 5

    def answered(self, outputs: Mapping[str, np.ndarray]) -> list[Answered]:
        """The answers to the questions, in order.

        Args:
            outputs: by name, arrays [n, ..]; see `answers.decode`.
        """
        readings = self.readings()
        limits = np.cumsum([0, *(len(reading.windows) for reading in readings)])
        return [
            decode(
                reading,
                {name: array[first:last] for name, array in outputs.items()},
                self.max_answer_len,
                self.n_best,
            )
            for reading, (first, last) in zip(readings, itertools.pairwise(limits), strict=True)
        ]


def squad_examples(
    squad: Squad,
    vocabulary: SubwordVocabulary,
    layout: Layout,
    origin: dict[str, Any],
    directory: str | None = None,
    labelled: bool = True,
    find_answers: bool = False,
    **about: Any,
) -> QuestionExamples:
    """Questions about texts as examples.

    Args:
        squad: the questions.
        vocabulary: with SEP and CLS.
        layout: how paragraphs are cut into windows.
        origin: identifies the vocabulary; the questions and the layout are added.
        directory: as for `make_examples`.
        labelled: whether the answers are known; if not, there are no features for their places.
        find_answers: whether to look for misplaced answers; see `with_found`.
        about: further attributes of the QuestionExamples.
    """
    squad, found = with_found(squad) if find_answers else (squad, 0)

    @functools.cache
    def readings() -> Sequence[QuestionWindows]:
        return tuple(read_windows(squad.paragraphs, vocabulary, layout))

    def chunks() -> Iterator[Chunk]:
        found = iter(read_windows(squad.paragraphs, vocabulary, layout))
        while group := list(itertools.islice(found, _AT_ONCE)):
            features = examples(group, vocabulary, layout.t_len)
            features["tokens"] = features["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            # Whether a question was cut is kept with the first of its windows.
            cut = [one.query_cut if i == 0 else None for one in group for i in range(len(one.windows))]
            yield {name: array for name, array in features.items() if labelled or name not in _TARGETS}, cut

    content = hashlib.sha256(repr(squad).encode("utf-8", "replace")).hexdigest()
    origin = origin | {"sha256": content, "layout": dataclasses.asdict(layout), "labelled": labelled}
    count = len(squad.questions)
    made = make_examples(chunks, count, origin, directory, timed=TIMED, padded="right")
    remarks = cut_remarks(
        [cut for cut in made.meta if cut is not None], layout.max_query_len, "questions", "max_query_len"
    )
    remarks += (counted(found, *_FOUND),) if found else ()
    if squad.misplaced:
        advice = "" if find_answers else "; --find_answers finds those whose text occurs once in the context"
        remarks += (
            f"{counted(len(squad.misplaced), *_MISPLACED)} where the file says, such as {squad.misplaced[0]}: a "
            f"question without any other answer is not learned{advice}",
        )
    return QuestionExamples(**vars(made) | about | {"readings": readings, "remarks": remarks})


_FOUND = "misplaced answer was found by its text", "misplaced answers were found by their texts"
_MISPLACED = "answer is not", "answers are not"


def with_found(squad: Squad) -> tuple[Squad, int]:
    """The questions with the places of misplaced answers whose texts occur exactly once in their paragraphs.

    Returns:
        The questions, whose `misplaced` keeps the answers without a place; and how many were found.
    """
    places, found = iter(squad.misplaced), 0
    left: list[str] = []

    def placed(answer: Answer, text: str) -> Answer:
        nonlocal found
        if answer.start is not None:
            return answer
        place, start = next(places), text.find(answer.text)
        if start < 0 or text.find(answer.text, start + 1) >= 0:
            left.append(place)
            return answer
        found += 1
        return Answer(answer.text, start)

    paragraphs = tuple(
        Paragraph(
            paragraph.text,
            tuple(
                dataclasses.replace(one, answers=tuple(placed(answer, paragraph.text) for answer in one.answers))
                for one in paragraph.questions
            ),
        )
        for paragraph in squad.paragraphs
    )
    return Squad(paragraphs, tuple(left)), found

"""Questions in SQuAD's format as a set of examples, and a model's outputs for them as answers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.examples.example_set import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.records import smallest_dtype
from txl_tf.tasks.answering.answers import Answered, decode
from txl_tf.tasks.answering.squad import Answer, Paragraph, Squad
from txl_tf.tasks.answering.windows import QuestionWindows, examples, read_windows

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
        """The answers to the questions, in order, from a model's outputs [n, ..] by name; see `answers.decode`."""
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
        while group := list(itertools.islice(found, _AT_ONCE)):
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
    remarks += (counted(before - len(misplaced), *_FOUND),) if before > len(misplaced) else ()
    if misplaced:
        advice = "" if data.find_answers else "; --find_answers finds those whose text occurs once in the context"
        remarks += (
            f"{counted(len(misplaced), *_MISPLACED)} where the file says, such as {misplaced[0]}: a "
            f"question without any other answer is not learned{advice}",
        )
    limits = {"max_answer_len": evaluation.max_answer_len, "n_best": evaluation.n_best}
    return QuestionExamples(**vars(made) | limits | {"readings": readings, "remarks": remarks})


_FOUND = "misplaced answer was found by its text", "misplaced answers were found by their texts"
_MISPLACED = "answer is not", "answers are not"


def with_found(squad: Squad) -> Squad:
    """With places for misplaced answers whose texts occur exactly once in their paragraphs."""

    def placed(answer: Answer, text: str) -> Answer:
        if answer.start is None and 0 <= (start := text.find(answer.text)) == text.rfind(answer.text):
            return Answer(answer.text, start)
        return answer

    found = Squad()
    for one in squad:
        questions = (
            dataclasses.replace(question, answers=tuple(placed(answer, one.text) for answer in question.answers))
            for question in one.questions
        )
        found.append(Paragraph(one.text, tuple(questions)))
    return found

"""Questions about texts, in the JSON format of SQuAD 1.1 and 2.0."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txl_tf.data.tasks.tables import read_file_text
from txl_tf.errors import InputError
from txl_tf.strict_json import Fields, check_record, parse_json

_REMEDY = "give a file in SQuAD's format"


class Answer(typing.NamedTuple):
    """A right answer.

    text: as the file has it.
    start: where it begins in the paragraph, in characters; None if the paragraph does not have the text where the file
        says so.
    """

    text: str
    start: int | None


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a paragraph.

    Attributes:
        id: different for all questions of a file.
        text: the question.
        answers: right answers by several people; () if there is none, or if they are not known.
        impossible: whether the paragraph is known to have no answer.
    """

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A text and the questions about it."""

    text: str
    questions: tuple[Question, ...]


@dataclasses.dataclass(frozen=True)
class Squad:
    """The paragraphs of a file.

    Attributes:
        paragraphs: in the file's order.
        misplaced: the answers that do not stand where the file says so, as "data[3].paragraphs[2].qas[0].answers[0]".
    """

    paragraphs: tuple[Paragraph, ...]
    misplaced: tuple[str, ...] = ()

    @property
    def questions(self) -> list[Question]:
        """All questions, in the file's order."""
        return [question for paragraph in self.paragraphs for question in paragraph.questions]


def read_squad(path: str, labelled: bool = True) -> Squad:
    """The questions of a file in the format of SQuAD 1.1 or 2.0.

    An answer that does not stand where the file says so is kept for scoring, without its place; see `Squad.misplaced`.

    Args:
        path: local or gs://; may end in .gz.
        labelled: whether each question must have an answer, or be marked as impossible. Otherwise answers may be
            missing.

    Raises:
        InputError: not JSON, or not of this format; names the place in the file.
    """
    reader = _Reader(path, labelled)
    top = reader.record(parse_json(read_file_text(path), path, _REMEDY), "", {"data": list})
    paragraphs = [
        reader.paragraph(paragraph, place)
        for article, place in reader.records(top, "data", "", {"paragraphs": list})
        for paragraph, place in reader.records(article, "paragraphs", f"{place}.", {"context": str, "qas": list})
    ]
    if not reader.places:
        raise InputError(f"{path}: there are no questions: {_REMEDY}")
    return Squad(tuple(paragraphs), tuple(reader.misplaced))


def asked(values: Sequence[Mapping[str, str]]) -> Squad:
    """Questions as dicts with question and context; their ids are their numbers from 1 on.

    Raises:
        InputError: one of them lacks something.
    """
    paragraphs = []
    for i, value in enumerate(values, 1):
        question, context = (
            value.get(name) if isinstance(value, Mapping) else None for name in ("question", "context")
        )
        if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
            raise InputError(f"question {i} must be a dict with the texts question and context, and not empty")
        paragraphs.append(Paragraph(context, (Question(str(i), question),)))
    return Squad(tuple(paragraphs))


class _Reader:
    """Reads the objects of a file. A place is where an object stands, such as "data[3].paragraphs[2]".

    Attributes:
        places: of the questions, by their ids.
        misplaced: the places of answers that do not stand where the file says so.
    """

    def __init__(self, path: str, labelled: bool):
        self._path, self._labelled = path, labelled
        self.places: dict[str, str] = {}
        self.misplaced: list[str] = []

    def record(self, value: Any, place: str, fields: Fields) -> dict[str, Any]:
        """`value`, checked to be an object with these fields."""
        return check_record(value, f"{self._path}: {place}" if place else self._path, fields, _REMEDY)

    def records(
        self, record: dict[str, Any], name: str, place: str, fields: Fields
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """The objects in a field, a list, and their places; `place` is what their places begin with."""
        for i, value in enumerate(record[name]):
            own = f"{place}{name}[{i}]"
            yield self.record(value, own, fields), own

    def paragraph(self, record: dict[str, Any], place: str) -> Paragraph:
        """One paragraph and its questions."""
        text = record["context"]
        if not text.strip():
            raise self._error(f"{place}.context must not be empty")
        questions = self.records(record, "qas", f"{place}.", {"id": str, "question": str})
        return Paragraph(text, tuple(self._question(own, where, text) for own, where in questions))

    def _question(self, record: dict[str, Any], place: str, text: str) -> Question:
        name = record["id"]
        if name in self.places:
            raise self._error(f"{place}.id is {name!r}, as is {self.places[name]}.id")
        self.places[name] = place
        known = {"answers": []} | record if not self._labelled or record.get("is_impossible") is True else record
        known = self.record({"is_impossible": False} | known, place, {"is_impossible": bool, "answers": list})
        impossible, answers = known["is_impossible"], []
        for answer, own in self.records(known, "answers", f"{place}.", {"text": str, "answer_start": int}):
            start = answer["answer_start"]
            if not answer["text"].strip():
                raise self._error(f"{own}.text must not be empty")
            if start < 0 or not text.startswith(answer["text"], start):
                start = None
                self.misplaced.append(own)
            answers.append(Answer(answer["text"], start))
        if impossible and answers:
            raise self._error(f"{place}.answers must be empty, since is_impossible is true")
        if self._labelled and not impossible and not answers:
            raise self._error(f"{place}.answers must not be empty, since is_impossible is not true")
        return Question(name, record["question"], tuple(answers), impossible)

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._path}: {what}: {_REMEDY}")

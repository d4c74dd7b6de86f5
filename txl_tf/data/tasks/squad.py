"""Questions about texts, in the JSON format of SQuAD 1.1 and 2.0, or as a flat list of questions with their contexts.

A flat list is what Hugging Face's datasets write: {"question": .., "context": .., "answers": {"text": [..],
"answer_start": [..]}}, where empty lists mean no answer. One error lists all faults of a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txl_tf.data.tasks.table_files import Columns, read_file_text
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import Fields, check_record, parse_json
from txl_tf.storage.surrogates import whole

_REMEDY = "give a file in SQuAD's format"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A right answer.

    Attributes:
        text: as the file has it.
        start: where it begins in the paragraph, in characters; None if it is misplaced: not where the file says.
        entry: its entry in the file, such as "data[3].paragraphs[2].qas[0].answers[0]", if it is misplaced.
    """

    text: str
    start: int | None
    entry: str = dataclasses.field(default="", compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """A question about a paragraph.

    Attributes:
        id: different for all questions of a file.
        text: the question.
        answers: right answers by several people; () if there is none, or if they are not known.
        impossible: whether it is known that the paragraph has no answer.
    """

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A text and the questions about it."""

    text: str
    questions: tuple[SquadQuestion, ...]


@dataclasses.dataclass(frozen=True)
class Squad:
    """The paragraphs of a file, in its order."""

    paragraphs: tuple[Paragraph, ...]

    @property
    def questions(self) -> list[SquadQuestion]:
        """All questions, in the file's order."""
        return [question for paragraph in self.paragraphs for question in paragraph.questions]

    @property
    def misplaced(self) -> tuple[str, ...]:
        """The entries of misplaced answers."""
        return tuple(one.entry for question in self.questions for one in question.answers if one.start is None)


def read_squad(path: str, columns: Columns | None = None, labelled: bool = True) -> Squad:
    """The questions of a file in the format of SQuAD 1.1 or 2.0, or of a flat list.

    An answer that is not where the file says is kept for scoring, without its place; see `Squad.misplaced`.
    An id may be a number; a question without one gets its number in the file, from 1 on.

    `columns` give the encoding; `labelled`: whether each question must have an answer, or be marked as impossible.

    Raises:
        InputError: columns of a table are named, not JSON, or not of this format; names the place in the file. If there
            are several faults, it is a FaultsError with all of them.
    """
    columns, faults = columns or Columns(), Faults(path)
    columns.require_no_table("files in SQuAD's format")
    reader = _SquadParser(path, labelled, faults)
    top = parse_json(read_file_text(path, columns.encoding), path, _REMEDY)
    top = {"data": top} if isinstance(top, list) else reader.record(top, "", {"data": list})
    paragraphs = []
    for article, place in reader.records(top, "data", "", {}):
        with faults.noted():
            if "context" in article:
                paragraphs.append(reader.flat(article, place))
            else:
                reader.record(article, place, {"paragraphs": list})
                fields: Fields = {"context": str, "qas": list}
                for paragraph, own in reader.records(article, "paragraphs", f"{place}.", fields):
                    with faults.noted():
                        paragraphs.append(reader.paragraph(paragraph, own))
    faults.raise_any()
    if not reader.places:
        raise InputError(f"{path}: there are no questions: {_REMEDY}")
    return Squad(tuple(paragraphs))


def asked(values: Sequence[Mapping[str, str]]) -> Squad:
    """Questions as dicts with question and context, or InputError; their ids are their numbers from 1 on."""
    paragraphs = []
    for i, value in enumerate(values, 1):
        question, context = (
            value.get(name) if isinstance(value, Mapping) else None for name in ("question", "context")
        )
        if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
            raise InputError(f"question {i} must be a dict with the texts question and context, and not empty")
        paragraphs.append(Paragraph(whole(context), (SquadQuestion(str(i), whole(question)),)))
    return Squad(tuple(paragraphs))


class _SquadParser:
    """Reads the objects of a file. An object's place is, for example, "data[3].paragraphs[2]".

    `places` has those of the questions, by their ids.
    """

    def __init__(self, path: str, labelled: bool, faults: Faults):
        self._path, self._labelled, self._faults = path, labelled, faults
        self.places: dict[str, str] = {}

    def record(self, value: Any, place: str, fields: Fields) -> dict[str, Any]:
        """`value`, checked to be an object with these fields."""
        return check_record(value, f"{self._path}: {place}" if place else self._path, fields, _REMEDY)

    def records(
        self, record: dict[str, Any], name: str, place: str, fields: Fields
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """The objects in a field, a list, and their places, which begin with `place`. Other items become faults."""
        for i, value in enumerate(record[name]):
            own = f"{place}{name}[{i}]"
            with self._faults.noted():
                self.record(value, own, fields)
                yield value, own

    def paragraph(self, record: dict[str, Any], place: str) -> Paragraph:
        """A paragraph and its questions."""
        text, questions = self._context(record, place), []
        for own, where in self.records(record, "qas", f"{place}.", {"question": str}):
            with self._faults.noted():
                questions.append(self._question(own, where, text))
        return Paragraph(text, tuple(questions))

    def flat(self, record: dict[str, Any], place: str) -> Paragraph:
        """One question of a flat list, with a paragraph of its own."""
        self.record(record, place, {"context": str, "question": str})
        known = dict(record)
        answers = record.get("answers")
        if isinstance(answers, dict):
            self.record(answers, f"{place}.answers", {"text": list, "answer_start": list})
            if len(answers["text"]) != len(answers["answer_start"]):
                raise self._error(f"{place}.answers has lists text and answer_start of different lengths")
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            known["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
            if not known["answers"]:
                known.setdefault("is_impossible", True)
        return Paragraph(self._context(record, place), (self._question(known, place, record["context"]),))

    def _context(self, record: dict[str, Any], place: str) -> str:
        if not record["context"].strip():
            raise self._error(f"{place}.context must not be empty")
        return str(record["context"])

    def _id(self, record: dict[str, Any], place: str) -> str:
        """The id of a question, as a text; its number if it has none."""
        name = record.get("id")
        if name is None:
            return str(len(self.places) + 1)
        if isinstance(name, bool) or not isinstance(name, (str, int)):
            self.record(record, place, {"id": (str, int)})
        return str(name)

    def _question(self, record: dict[str, Any], place: str, text: str) -> SquadQuestion:
        name = self._id(record, place)
        if name in self.places:
            raise self._error(f"{place}.id is {name!r}, the same as {self.places[name]}.id")
        self.places[name] = place
        known = {"answers": []} | record if not self._labelled or record.get("is_impossible") is True else record
        known = self.record({"is_impossible": False} | known, place, {"is_impossible": bool, "answers": list})
        impossible, answers = known["is_impossible"], []
        given = known["answers"]
        if given and all(_stands_for_none(answer) for answer in given):
            impossible, given = True, []
        fields: Fields = {"text": str, "answer_start": int}
        for i, answer in enumerate(given):
            own = f"{place}.answers[{i}]"
            start = self.record(answer, own, fields)["answer_start"]
            if not answer["text"].strip():
                raise self._error(f"{own}.text must not be empty")
            there = start >= 0 and text.startswith(answer["text"], start)
            answers.append(Answer(answer["text"], start) if there else Answer(answer["text"], None, own))
        if impossible and answers:
            raise self._error(f"{place}.answers must be empty, since is_impossible is true")
        if self._labelled and not impossible and not answers:
            raise self._error(f"{place}.answers must not be empty, since is_impossible is not true")
        return SquadQuestion(name, record["question"], tuple(answers), impossible)

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._path}: {what}: {_REMEDY}")


def _stands_for_none(answer: Any) -> bool:
    """Whether this answer is at -1 and without text, which in some files means that there is none."""
    return isinstance(answer, dict) and answer.get("answer_start") == -1 and answer.get("text") in ("", None)

"""Questions about texts, in the JSON format of SQuAD 1.1 and 2.0."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from txl_tf.data.tasks.tables import read_file_text
from txl_tf.errors import InputError

_KINDS = {str: "a string", list: "a list", dict: "an object", int: "a whole number", bool: "true or false"}
_REQUIRED: Any = object()


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
    try:
        value = json.loads(read_file_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON ({error}): give a file in SQuAD's format") from error
    top = _Node(value, path, "")
    places: dict[str, str] = {}
    misplaced: list[str] = []
    paragraphs = [
        _paragraph(paragraph, labelled, places, misplaced)
        for article in top.nodes("data")
        for paragraph in article.nodes("paragraphs")
    ]
    if not places:
        raise InputError(f"{path}: there are no questions: give a file in SQuAD's format")
    return Squad(tuple(paragraphs), tuple(misplaced))


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


class _Node:
    """An object in a JSON file, which knows its place."""

    def __init__(self, value: Any, path: str, place: str):
        self.path, self.place = path, place
        if not isinstance(value, dict):
            raise self.error(f"must be {_KINDS[dict]}")
        self.value = value

    def get(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """The value of a key, of a type among _KINDS."""
        value = self.value.get(key, default)
        if value is _REQUIRED:
            raise self.error("is missing", key)
        if type(value) is not kind:
            raise self.error(f"must be {_KINDS[kind]}", key)
        return value

    def nodes(self, key: str, default: Any = _REQUIRED) -> list[_Node]:
        """The objects in a key's list."""
        items = self.get(key, list, default)
        return [_Node(item, self.path, f"{self._at(key)}[{i}]") for i, item in enumerate(items)]

    def error(self, what: str, key: str = "") -> InputError:
        """InputError that names this place, or a key's."""
        return InputError(f"{self.path}: {self._at(key) or 'the whole'} {what}: it is not a file in SQuAD's format")

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}".strip(".")


def _paragraph(node: _Node, labelled: bool, places: dict[str, str], misplaced: list[str]) -> Paragraph:
    """One paragraph; adds the places of its questions by their ids, and of its misplaced answers."""
    text = node.get("context", str)
    if not text.strip():
        raise node.error("must not be empty", "context")
    questions = []
    for own in node.nodes("qas"):
        question = _question(own, text, labelled)
        if question.id in places:
            raise InputError(
                f"{own.path}: {own.place}.id is {question.id!r}, as is {places[question.id]}.id: each question must "
                "have an id of its own"
            )
        places[question.id] = own.place
        misplaced += [f"{own.place}.answers[{i}]" for i, answer in enumerate(question.answers) if answer.start is None]
        questions.append(question)
    return Paragraph(text, tuple(questions))


def _question(node: _Node, text: str, labelled: bool) -> Question:
    impossible = node.get("is_impossible", bool, False)
    answers = []
    for own in node.nodes("answers", _REQUIRED if labelled and not impossible else []):
        answer, start = own.get("text", str), own.get("answer_start", int)
        if not answer.strip():
            raise own.error("must not be empty", "text")
        answers.append(Answer(answer, start if start >= 0 and text.startswith(answer, start) else None))
    if impossible and answers:
        raise node.error("must be empty, since is_impossible is true", "answers")
    if labelled and not impossible and not answers:
        raise node.error("must not be empty, since is_impossible is not true", "answers")
    return Question(node.get("id", str), node.get("question", str), tuple(answers), impossible)

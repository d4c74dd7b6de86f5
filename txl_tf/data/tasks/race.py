"""Multiple choice: questions about an article, each with its options.

RACE has an object for each article: {"article": .., "questions": [..], "options": [[..], ..], "answers": ["A", ..]}.
Other rows have one question: {"article": .., "question": .., "options": [..], "answer": 0 or "A"}.
One error lists all faults of a file or folder.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from typing import Any

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.table import Table
from txl_tf.errors import Faults, InputError
from txl_tf.storage.surrogates import whole


@dataclasses.dataclass(frozen=True)
class RaceQuestion:
    """A question on an article, its options, and the number of the right one (-1: not known)."""

    article: str
    question: str
    options: tuple[str, ...]
    answer: int
    where: str

    def with_options(self) -> list[str]:
        """The question with each of its options: in place of the first "_", or after it."""
        if "_" in self.question:
            return [self.question.replace("_", option) for option in self.options]
        return [f"{self.question} {option}" for option in self.options]


class Questions(list[RaceQuestion]):
    """The questions of a file or folder; `understood` says what it was taken for."""

    understood: str = ""


def read_race(path: str | Table, columns: Columns | None = None, answered: bool = True) -> Questions:
    """The questions of a file, or of RACE's folders: rows with a question each, or with all questions of an article.

    `columns` say how the file is read; `answered`: whether every question must have an answer.

    Raises:
        InputError: columns of a table are named, nothing can be read, a question lacks something, or the numbers of
            options differ. If there are several faults, it is a FaultsError with all of them.
    """
    columns, faults, found = columns or Columns(), Faults(path if isinstance(path, str) else path.name), Questions()
    columns.refuse_names("multiple choice reads article, question, options and answer")
    table = read_rows(path, columns, faults, answered)
    for line, values in table.rows:
        where = table.where(line)
        with faults.noted(line):
            if "questions" not in values:
                found.append(_question(values, where, answered))
                continue
            for i, one in enumerate(_questions_of(values, where, answered), 1):
                with faults.noted(line):
                    found.append(_question(one, f"{where}, question {i}", answered))
    faults.raise_any(len(found))
    if not found:
        raise InputError(f"{table.name} has no questions: give RACE's folder (train, dev, test) or JSON lines")
    found.understood = table.understood(counted(len(found), "question"))
    _with_equal_options(found)
    return found


def question_rows(values: Sequence[dict[str, Any]]) -> list[RaceQuestion]:
    """Questions as dicts with article, question and options, without answers.

    InputError if one of them lacks something, or the numbers of options differ.
    """
    found = []
    for i, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise InputError(f"question {i} is not a dict with article, question and options")
        found.append(_question(value, f"question {i}", False))
    return _with_equal_options(found)


def _with_equal_options(found: list[RaceQuestion]) -> list[RaceQuestion]:
    for question in found:
        if len(question.options) != len(found[0].options):
            raise InputError(
                f"{question.where} has {counted(len(question.options), 'option')}, but {found[0].where} has "
                f"{len(found[0].options)}: all questions must have the same number"
            )
    return found


def _questions_of(value: dict[str, Any], file: str, answered: bool) -> list[dict[str, Any]]:
    """The questions of one of RACE's files, in the form of a line of JSON."""
    columns = {"question": "questions", "options": "options", "answer": "answers"}
    if not answered:
        del columns["answer"]
    lists: dict[str, list[Any]] = {}
    for name, key in columns.items():
        column = value.get(key)
        if not isinstance(column, list):
            raise InputError(f"{file} has no list {key!r}, as RACE's files have")
        lists[name] = column
    lengths = {len(column) for column in lists.values()}
    if len(lengths) > 1:
        raise InputError(f"{file}: its lists {', '.join(columns.values())} have different lengths")
    rows = zip(*lists.values(), strict=True)
    return [{"article": value.get("article")} | dict(zip(lists, row, strict=True)) for row in rows]


def _question(value: dict[str, Any], where: str, answered: bool) -> RaceQuestion:
    for name in ("article", "question"):
        if not isinstance(value.get(name), str):
            raise InputError(f"{where} has no text {name!r}: correct it")
    options = value.get("options")
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise InputError(f"{where} has no list of two or more texts as 'options': correct it")
    given = answer = value.get("answer")
    if isinstance(answer, str) and len(answer) == 1 and answer in string.ascii_uppercase:
        answer = string.ascii_uppercase.index(answer)
    if answer is None and not answered:
        answer = -1
    elif type(answer) is not int or not 0 <= answer < len(options):
        raise InputError(f"{where}: answer {given!r} is not the letter or the number (from 0) of one of its options")
    texts = whole(value["article"]), whole(value["question"]), tuple(map(whole, options))
    return RaceQuestion(*texts, answer, where)

"""Multiple choice: RACE's folders, or JSON lines.

RACE has a JSON file for each article: {"article": .., "questions": [..], "options": [[..], ..], "answers": ["A", ..]}.
A line of JSON has one question: {"article": .., "question": .., "options": [..], "answer": 0 or "A"}.
One error lists all faults of a file or folder.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterator, Sequence
from typing import Any

from txl_tf.counted import counted
from txl_tf.data.tasks.table_files import Columns, json_lines, read_file_text
from txl_tf.errors import Faults, InputError
from txl_tf.storage.local_files import functions_for
from txl_tf.storage.strict_json import check_record, parse_json
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


def read_race(path: str, columns: Columns | None = None, answered: bool = True) -> list[RaceQuestion]:
    """The questions of a folder and its sub-folders, or of a .jsonl or .jsonl.gz file, in the order of files' names.

    `columns` give the encoding; `answered`: whether every question must have an answer.

    Raises:
        InputError: columns of a table are named, nothing can be read, a question lacks something, or the numbers of
            options differ. If there are several faults, it is a FaultsError with all of them.
    """
    columns, faults, found = columns or Columns(), Faults(path), []
    columns.require_no_table("RACE's folders or JSON lines")
    if functions_for(path).isdir(path):
        questions = _folder(path, answered, columns.encoding, faults)
    else:
        lines = json_lines(path, read_file_text(path, columns.encoding), faults)
        questions = ((line, value, f"{path}, line {line}") for line, value in lines)
    for line, value, where in questions:
        with faults.noted(line):
            found.append(_question(value, where, answered))
    faults.raise_any()
    if not found:
        raise InputError(f"{path} has no questions: give RACE's folder (train, dev, test) or JSON lines")
    return _with_equal_options(found)


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


def _folder(path: str, answered: bool, encoding: str, faults: Faults) -> Iterator[tuple[int, dict[str, Any], str]]:
    """The questions of a folder, in its order, and their places."""
    for folder, files in sorted((folder.rstrip("/"), files) for folder, _, files in functions_for(path).walk(path)):
        for name in sorted((name for name in files if name.endswith((".txt", ".json"))), key=_numbered):
            file, questions = f"{folder}/{name}", []
            with faults.noted():
                value = parse_json(read_file_text(file, encoding), file, "copy it again")
                questions = _questions_of(check_record(value, file, {}, "copy it again"), file, answered)
            for i, one in enumerate(questions, 1):
                yield 0, one, f"{file}, question {i}"


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


def _numbered(name: str) -> tuple[int, str]:
    """RACE's files are named by numbers."""
    stem = name.rsplit(".", 1)[0]
    return (int(stem), name) if stem.isdecimal() else (-1, name)


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

"""Questions about texts: articles in SQuAD's format, paragraphs, or rows with a question and its context each.

Rows are what Hugging Face's datasets write: {"question": .., "context": .., "answers": {"text": [..], "answer_start":
[..]}}, where empty lists mean no answer; a table has the columns answer and answer_start. Null stands for a missing
value. One error lists all faults of a file.

Scores are in percent, by SQuAD's official evaluation. Answers are compared as normalised text: lower case, without
ASCII punctuation, the articles a, an and the, and extra white space. Exact match is whether they are equal. F1 is the
harmonic mean of precision and recall of words, where a word counts as often as it occurs. If there are several right
answers, the one with the best score counts. A question without an answer has the right answer "", for which F1 equals
exact match.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.table import Rows, Table
from txl_tf.data.tables.written import written_value
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import Fields, check_record
from txl_tf.storage.surrogates import whole

_REMEDY = "give a file in SQuAD's format"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A right answer, as the file has it.

    Attributes:
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
        answers: right answers by several people; () if there is none, or if they are not known.
        impossible: whether it is known that the paragraph has no answer.
    """

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A text and the questions about it; `where` is its file and line, if it has a row of its own."""

    text: str
    questions: tuple[SquadQuestion, ...]
    where: str = dataclasses.field(default="", compare=False, repr=False)


class Squad(Rows[Paragraph]):
    """The paragraphs of a file, in its order."""

    @property
    def questions(self) -> list[SquadQuestion]:
        """All questions, in the file's order."""
        return [question for paragraph in self for question in paragraph.questions]

    @property
    def misplaced(self) -> tuple[str, ...]:
        """The entries of misplaced answers."""
        return tuple(one.entry for question in self.questions for one in question.answers if one.start is None)


def read_squad(path: str | Table, columns: Columns | None = None, labelled: bool = True) -> Squad:
    """The questions of a file: of articles with paragraphs, of paragraphs with `qas`, or of rows with a question each.

    An answer that is not where the file says is kept for scoring, without its place; see `Squad.misplaced`. A question
    without an id gets its number in the file, from 1 on. `labelled`: whether each must have an answer, or be marked as
    impossible.

    Raises:
        InputError: columns of a table are named, the file cannot be read, or a row is not of this format; names the
            place in the file. If there are several faults, it is a FaultsError with all of them.
    """
    columns, faults = columns or Columns(), Faults(path if isinstance(path, str) else path.name)
    columns.refuse_names("answering reads question, context and answers")
    table = read_rows(path, columns, faults, labelled)
    reader, paragraphs = _SquadParser(table.name, labelled, faults), Squad()
    for line, row in table.rows:
        place = f"data[{line - 1}]" if table.unit == "entry" else f"{table.unit} {line}"
        values = {name: "" for name in ("answer", "answer_start") if name in row} | _without_nulls(row)
        with faults.noted(line):
            if "qas" in values:
                paragraphs.append(reader.paragraph(reader.record(values, place, _PARAGRAPH), place))
            elif "context" in values or "question" in values:
                paragraphs.append(dataclasses.replace(reader.flat(values, place), where=table.where(line)))
            else:
                if "paragraphs" not in values:
                    shown = ", ".join(map(repr, values))[:200]
                    raise InputError(f"{table.name}: {place} has no question and context but {shown}: {_REMEDY}")
                reader.record(values, place, {"paragraphs": list})
                for paragraph, own in reader.records(values, "paragraphs", f"{place}.", _PARAGRAPH):
                    with faults.noted(line):
                        paragraphs.append(reader.paragraph(paragraph, own))
    faults.raise_any(len(paragraphs))
    if not reader.places:
        raise InputError(f"{table.name}: there are no questions: {_REMEDY}")
    without = sum(question.impossible for question in paragraphs.questions)
    parts = [f"{without:,} without an answer"] if without else []
    parts += [counted(misplaced, "misplaced answer")] if (misplaced := len(paragraphs.misplaced)) else []
    paragraphs.table = table if all(paragraph.where for paragraph in paragraphs) else None
    paragraphs.understood = table.understood(counted(len(reader.places), "question"), *parts)
    return paragraphs


_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_PARAGRAPH: Fields = {"context": str, "qas": list}


def asked(values: Sequence[Mapping[str, str]]) -> Squad:
    """Questions as dicts with question and context, or InputError; their ids are their numbers from 1 on."""
    paragraphs = Squad()
    for i, value in enumerate(values, 1):
        about = value if isinstance(value, Mapping) else {}
        question, context = about.get("question"), about.get("context")
        if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
            raise InputError(f"question {i} must be a dict with the texts question and context, and not empty")
        paragraphs.append(Paragraph(whole(context), (SquadQuestion(str(i), whole(question)),)))
    return paragraphs


class _SquadParser:
    """Reads objects of a file, whose places are such as "data[3].paragraphs[2]"; `places`: of questions, by ids."""

    def __init__(self, path: str, labelled: bool, faults: Faults):
        self._path, self._labelled, self._faults = path, labelled, faults
        self.places: dict[str, str] = {}

    def record(self, value: Any, place: str, fields: Fields) -> dict[str, Any]:
        """`value`, checked to be an object with these fields."""
        return check_record(value, f"{self._path}: {place}", fields, _REMEDY)

    def records(
        self, record: dict[str, Any], name: str, place: str, fields: Fields
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """The objects in a field, a list, and their places, which begin with `place`. Other items become faults."""
        for i, value in enumerate(record[name]):
            own = f"{place}{name}[{i}]"
            with self._faults.noted():
                yield self.record(_without_nulls(value), own, fields), own

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
        written = _TRUTH.get(str(record.get("is_impossible")).strip().lower())
        known |= {} if written is None else {"is_impossible": written}  # a CSV's truth values are texts
        answers = record.get("answers")
        if isinstance(text := answers, str):
            known["answers"] = answers = written_value(text)
            if answers is None:
                raise self._error(
                    f"{place}.answers is the text {text[:40]!r}: give the columns answer and answer_start"
                )
        if "answer" in record or "answer_start" in record:
            known["answers"] = self._of_cells(record, place)
            known.setdefault("is_impossible", not known["answers"])
        if isinstance(answers, dict):
            self.record(answers, f"{place}.answers", {"text": list, "answer_start": list})
            if len(answers["text"]) != len(answers["answer_start"]):
                raise self._error(f"{place}.answers has lists text and answer_start of different lengths")
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            known["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
            if not known["answers"]:
                known.setdefault("is_impossible", True)
        return Paragraph(self._context(record, place), (self._question(known, place, record["context"]),))

    def _of_cells(self, record: dict[str, Any], place: str) -> list[dict[str, Any]]:
        """The answers in the columns answer and answer_start of a table; -1 for a start that is not known."""
        if "answer" not in record and self._labelled:
            raise self._error(f"{place} has answer_start, but no column 'answer'")
        text, start = record.get("answer", ""), record.get("answer_start", -1)
        if isinstance(text, dict):
            return [text]
        if isinstance(text, list):
            raise self._error(f"{place}.answer is a list, not a text")
        if not str(text).strip():
            return []
        try:
            number = float(-1 if start == "" else start)
        except (TypeError, ValueError):
            number = math.nan
        if not number.is_integer():
            raise self._error(f"{place}.answer_start is {start!r}, not a whole number")
        return [{"text": str(text), "answer_start": int(number)}]

    def _context(self, record: dict[str, Any], place: str) -> str:
        if not record["context"].strip():
            raise self._error(f"{place}.context must not be empty")
        return str(record["context"])

    def _question(self, record: dict[str, Any], place: str, text: str) -> SquadQuestion:
        name = str(self.record({"id": len(self.places) + 1} | record, place, {"id": (str, int)})["id"])
        if name in self.places:
            raise self._error(f"{place}.id is {name!r}, the same as {self.places[name]}.id")
        self.places[name] = place
        known = {"answers": []} | record if not self._labelled or record.get("is_impossible") is True else record
        known = self.record({"is_impossible": False} | known, place, {"is_impossible": bool, "answers": list})
        impossible, given, answers = known["is_impossible"], known["answers"], []
        places = [(one.get("answer_start"), one.get("text")) if isinstance(one, dict) else None for one in given]
        if given and all(one in ((-1, ""), (-1, None)) for one in places):  # so some files say that there is none
            impossible, given = True, []
        for i, answer in enumerate(given):
            own = f"{place}.answers[{i}]"
            start = self.record(_without_nulls(answer), own, {"text": str, "answer_start": int})["answer_start"]
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


def _without_nulls(value: Any) -> Any:
    """An object without the fields that are null or NaN."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if one is not None and one == one}


_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """A text as answers are compared; see the module."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(answer: str, right: str) -> float:
    """1 if two answers are equal when normalised, otherwise 0."""
    return float(normalised(answer) == normalised(right))


def word_f1(answer: str, right: str) -> float:
    """The F1 of an answer's words."""
    words, right_words = normalised(answer).split(), normalised(right).split()
    if not words or not right_words:
        return float(words == right_words)
    common = (collections.Counter(words) & collections.Counter(right_words)).total()
    return 2 * common / (len(words) + len(right_words))


def right_answers(question: SquadQuestion) -> list[str]:
    """The texts to compare with, but those that normalisation makes empty; [""] if there are none."""
    return [answer.text for answer in question.answers if normalised(answer.text)] or [""]


def answer_scores(
    questions: Sequence[SquadQuestion], answers: Sequence[str], null_scores: np.ndarray
) -> dict[str, float]:
    """The scores of the texts of answers to n questions, n > 0, in percent.

    `null_scores` are the logits that there is no answer, [n]. If some questions have no answer, as in SQuAD 2.0, an
    answer counts as "" if this is above 0.

    They are "exact", "f1" and "total", n. If some questions have no answer, the same with the prefixes "has_ans_" and
    "no_ans_", as far as there are such questions. "best_exact" and "best_f1" are the highest possible with any
    threshold in place of 0; "best_exact_threshold" and "best_f1_threshold" are these, if some questions have no answer.
    """
    has_answer = np.array([bool(question.answers) for question in questions])
    pairs = [(answer, right_answers(one)) for one, answer in zip(questions, answers, strict=True)]
    with_text = {
        name: np.array([max(measure(answer, text) for text in right) for answer, right in pairs])
        for name, measure in (("exact", exact_match), ("f1", word_f1))
    }
    parts, empty, without = {"": np.ones_like(has_answer)}, np.zeros_like(has_answer), (~has_answer).astype(float)
    if not has_answer.all():
        parts |= {"has_ans_": has_answer, "no_ans_": ~has_answer}
        empty = null_scores > 0
    scores: dict[str, float] = {}
    for prefix, part in parts.items():
        if part.any():
            for name, values in with_text.items():
                scores[prefix + name] = 100 * float(np.where(empty, without, values)[part].mean())
            scores[prefix + "total"] = int(part.sum())
    for name, values in with_text.items():
        if has_answer.all():
            scores[f"best_{name}"] = scores[name]
        else:
            scores[f"best_{name}"], scores[f"best_{name}_threshold"] = _best(values, without, null_scores)
    return scores


def _best(with_text: np.ndarray, without: np.ndarray, null_scores: np.ndarray) -> tuple[float, float]:
    """The highest mean score of all thresholds, in percent, and the lowest threshold that gives it.

    `with_text` and `without` are the questions' scores, [n], if the answer is the text, and if it is "". Questions with
    equal null_scores, [n], are on the same side of every threshold.
    """
    order = np.argsort(null_scores, kind="stable")
    null_scores = null_scores[order]
    totals = without.sum() + np.concatenate([[0], np.cumsum((with_text - without)[order])])
    thresholds = np.concatenate([null_scores[:1] - 1, null_scores])
    possible = np.append(thresholds[:-1] < thresholds[1:], True)  # the last of equal thresholds
    best = np.where(possible, totals, -1).argmax()
    return 100 * float(totals[best]) / len(order), float(thresholds[best])

"""Multiple choice: RACE's folders, or JSON lines.

RACE has a JSON file for each article: {"article": .., "questions": [..], "options": [[..], ..], "answers": ["A", ..]}.
A line of JSON has one question: {"article": .., "question": .., "options": [..], "answer": 0 or "A"}.
A question becomes one sequence for each option, article SEP question and option SEP CLS, as in the official code, but
without its fault: there, where nothing is cut, the article of an option also holds the options before it.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.examples import Chunk, ExampleSet, make_examples
from txl_tf.data.tasks.layout import cut, encode, join, pad_left
from txl_tf.data.tasks.tables import digest_of, json_lines, read_file_text
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.strict_json import check_record, parse_json

MAX_QA = 128
"""Of a question with an option the last so many tokens are read, as in the official code."""

CHUNK = 100  # questions that are encoded at once


@dataclasses.dataclass(frozen=True)
class Question:
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


def read_race(path: str, answered: bool = True) -> list[Question]:
    """The questions of a folder, with its folders, or of a .jsonl or .jsonl.gz file, in the order of the files' names.

    Args:
        path: local or gs://.
        answered: whether every question must have an answer.

    Raises:
        InputError: nothing can be read, a question lacks something, or the numbers of options differ.
    """
    if tf.io.gfile.isdir(path):
        found = list(_folder(path, answered))
    else:
        lines = json_lines(path, read_file_text(path))
        found = [_question(value, f"{path}, line {i}", answered) for i, value in lines]
    if not found:
        raise InputError(f"{path} has no questions: give RACE's folder (train, dev, test) or JSON lines")
    return _with_equal_options(found)


def question_rows(values: Sequence[dict[str, Any]]) -> list[Question]:
    """Questions as dicts with article, question and options, without answers.

    Raises:
        InputError: one of them lacks something, or the numbers of options differ.
    """
    found = []
    for i, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise InputError(f"question {i} is not a dict with article, question and options")
        found.append(_question(value, f"question {i}", False))
    return _with_equal_options(found)


def _with_equal_options(found: list[Question]) -> list[Question]:
    for question in found:
        if len(question.options) != len(found[0].options):
            raise InputError(
                f"{question.where} has {len(question.options)} options, but {found[0].where} has "
                f"{len(found[0].options)}: all questions must have the same number"
            )
    return found


def question_examples(
    questions: Sequence[Question],
    vocabulary: Vocabulary,
    t_len: int,
    origin: dict[str, Any],
    directory: str | None = None,
    labelled: bool = True,
) -> ExampleSet:
    """Questions as examples: features tokens, segments, padding [n, C, T] and, if `labelled`, label [n].

    Args:
        questions: of `read_race`, with C options each.
        vocabulary: with SEP and CLS.
        t_len: T.
        origin: what identifies the vocabulary; the questions and T are added.
        directory: as for `make_examples`.
        labelled: whether there are labels; then all answers must be known.
    """
    label = np.array([question.answer for question in questions], np.int32)
    count = len(questions[0].options)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(questions), CHUNK):
            some = questions[start : start + CHUNK]
            articles = encode(vocabulary, tf.constant([question.article for question in some]))
            articles = tf.gather(articles, np.repeat(np.arange(len(some)), count))
            texts = encode(vocabulary, tf.constant([text for question in some for text in question.with_options()]))
            features = pad_left(*join(vocabulary, *cut_article(articles, texts, t_len)), t_len)._asdict()
            arrays = {name: feature.numpy().reshape(len(some), count, t_len) for name, feature in features.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            yield arrays | ({"label": label[start : start + CHUNK]} if labelled else {}), ()

    origin = origin | {"rows": digest_of(questions, label), "tgt_len": t_len, "labelled": labelled}
    return make_examples(chunks, len(questions), origin, directory)


def cut_article(
    articles: tf.RaggedTensor, texts: tf.RaggedTensor, t_len: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts articles and questions with options so that they fit into T tokens with SEP, SEP and CLS.

    Of a question with its option the last MAX_QA tokens are kept, and the first of the article for which there is room.
    """
    room = t_len - 3
    texts = texts[:, -min(MAX_QA, room) :]
    articles = cut(articles, tf.minimum(articles.row_lengths(), room - texts.row_lengths()), t_len)
    return articles, texts


def _folder(path: str, answered: bool) -> Iterator[Question]:
    for folder, _, files in tf.io.gfile.walk(path):
        for name in sorted(files, key=_numbered):
            if not name.endswith((".txt", ".json")):
                continue
            file = tf.io.gfile.join(folder, name)
            value = check_record(parse_json(read_file_text(file), file, "copy it again"), file, {}, "copy it again")
            for i, one in enumerate(_questions_of(value, file, answered), 1):
                yield _question(one, f"{file}, question {i}", answered)


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
        raise InputError(f"{file}: its lists {', '.join(columns.values())} are not of one length")
    rows = zip(*lists.values(), strict=True)
    return [{"article": value.get("article")} | dict(zip(lists, row, strict=True)) for row in rows]


def _numbered(name: str) -> tuple[int, str]:
    """RACE's files are named by numbers."""
    stem = name.rsplit(".", 1)[0]
    return (int(stem), name) if stem.isdigit() else (-1, name)


def _question(value: dict[str, Any], where: str, answered: bool) -> Question:
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
    return Question(value["article"], value["question"], tuple(options), answer, where)

"""Tables of labelled texts: TSV, CSV and JSON lines, gzipped or not.

The first line of a TSV or CSV file names the columns. TSV has no quotes, as in GLUE's files: a quotation mark is a
character of the text. A row that cannot be used raises InputError with the file and the line.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import gzip
import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.archives import named_damage
from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.examples import Chunk, ExampleSet, make_examples
from txl_tf.data.tasks.layout import lay_out, pad_left
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.files import read_bytes
from txl_tf.settings import Group, setting
from txl_tf.strict_json import check_record, parse_json

CHUNK = 1_000  # texts that are encoded at once


@dataclasses.dataclass(frozen=True)
class Columns(Group):
    """The names of a table's columns."""

    text_column: str = setting("text", "the column of the text, or of the first text of a pair")
    text_b_column: str = setting("text_b", "the column of the second text; the texts are no pairs if there is none")
    label_column: str = setting("label", "the column of the label: a class, or a number for regression")


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: one or two texts ("": there is no second) and a label. `where` is its file and line."""

    text: str
    text_b: str
    label: str
    where: str


def read_table(path: str, columns: Columns, labelled: bool = True) -> list[Row]:
    """The rows of a file whose name ends in .tsv, .csv or .jsonl, or in one of these and .gz.

    Args:
        path: local or gs://.
        columns: the names of its columns.
        labelled: whether every row must have a label; if not, labels are "" where there is none.

    Raises:
        InputError: the file cannot be read, lacks a column, has no rows, or has a row without text or label.
    """
    kind = path.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if kind not in _READERS:
        raise InputError(f"{path}: give a table whose name ends in .tsv, .csv or .jsonl (or in one of these and .gz)")
    rows = []
    for line, values in _READERS[kind](path, read_file_text(path)):
        where = f"{path}, line {line}"
        text = _value(values, columns.text_column, where, True)
        if not text.strip():
            raise InputError(f"{where} has no text in column {columns.text_column!r}: remove the row or correct it")
        label = _value(values, columns.label_column, where, labelled).strip()
        if labelled and not label:
            raise InputError(f"{where} has no label in column {columns.label_column!r}: remove the row or correct it")
        rows.append(Row(text, _value(values, columns.text_b_column, where, False), label, where))
    if not rows:
        raise InputError(f"{path} has no rows")
    return rows


def text_rows(texts: Sequence[str | tuple[str, str]]) -> list[Row]:
    """Texts and pairs of texts as rows without labels.

    Raises:
        InputError: something else than these, or a text that is empty.
    """
    rows = []
    for i, text in enumerate(texts, 1):
        pair = (text, "") if isinstance(text, str) else tuple(text) if isinstance(text, (tuple, list)) else ()
        if len(pair) != 2 or not all(isinstance(side, str) for side in pair) or not pair[0].strip():
            raise InputError(f"text {i} must be a text or a pair of texts, and not empty; it is {str(text)[:40]!r}")
        rows.append(Row(*pair, "", f"text {i}"))
    return rows


def read_file_text(path: str) -> str:
    """The text of a UTF-8 file, which is unpacked if its name ends in .gz.

    Raises:
        InputError: it cannot be read, unpacked or decoded.
    """
    data = read_bytes(path)
    if path.endswith(".gz"):
        with named_damage(path):
            data = gzip.decompress(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1 if not path.endswith(".gz") else None
        raise InputError(
            f"{path}{f', line {line}' if line else ''} is not UTF-8 text ({error.reason}): convert the file to UTF-8"
        ) from error


def json_lines(path: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines with the numbers of their lines; lines without text are left out.

    Raises:
        InputError: a line is not a JSON object.
    """
    for i, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {i}"
            yield i, check_record(parse_json(line, where, "correct the line"), where, {}, "correct the line")


def label_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur, in order: as integers if all of them are integers, otherwise as text."""
    names = {row.label for row in rows}
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(sorted(names))


def class_numbers(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """The number of each row's class, int32 [n].

    Raises:
        InputError: a label is not among `labels`.
    """
    numbers = {name: i for i, name in enumerate(labels)}
    for row in rows:
        if row.label not in numbers:
            shown = ", ".join(labels[:10]) + (", .." if len(labels) > 10 else "")
            raise InputError(f"{row.where} has the label {row.label!r}, which the model does not know: it has {shown}")
    return np.array([numbers[row.label] for row in rows], np.int32)


def scores(rows: Sequence[Row]) -> np.ndarray:
    """The labels as numbers, float32 [n].

    Raises:
        InputError: a label is not a finite number.
    """
    found = np.zeros(len(rows), np.float32)
    for i, row in enumerate(rows):
        try:
            found[i] = float(row.label)
        except ValueError:
            found[i] = math.nan
        if not np.isfinite(found[i]):
            raise InputError(f"{row.where} has the label {row.label!r}, which is not a finite number")
    return found


def imbalance(labels: tuple[str, ...], numbers: np.ndarray) -> str:
    """How often each class occurs, in one line; of many classes the three largest and the two smallest."""
    counts = np.bincount(numbers, minlength=len(labels))
    order = np.argsort(-counts, kind="stable")
    shown = [f"{labels[i]} {counts[i] / len(numbers):.1%}" for i in order]
    shown = shown if len(shown) <= 6 else [*shown[:3], "..", *shown[-2:]]
    ratio = counts.max() / max(counts.min(), 1)
    return f"{len(labels)} classes: {', '.join(shown)}; the largest is {ratio:.1f} times the smallest"


def class_weights(numbers: np.ndarray, classes: int) -> np.ndarray:
    """The weight of each example, [n], with which all classes that occur count the same; their mean is 1."""
    counts = np.bincount(numbers, minlength=classes)
    return (len(numbers) / (np.count_nonzero(counts) * np.maximum(counts, 1)))[numbers]


def table_examples(
    rows: Sequence[Row],
    vocabulary: Vocabulary,
    t_len: int,
    label: np.ndarray | None,
    origin: dict[str, Any],
    directory: str | None = None,
    max_segments: int = 1,
    **about: Any,
) -> ExampleSet:
    """Texts and pairs as examples: features tokens, segments, padding [n, S T] and, if there is one, label [n].

    Args:
        rows: of `read_table`.
        vocabulary: with SEP and CLS.
        t_len: T.
        label: [n] or None.
        origin: what identifies the vocabulary; the texts, labels and T are added.
        directory: as for `make_examples`.
        max_segments: S.
        about: further attributes of the ExampleSet.
    """

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            texts, second = (tf.constant([getattr(row, name) for row in some]) for name in ("text", "text_b"))
            ids, segments = lay_out(vocabulary, texts, second, t_len, max_segments)
            features = pad_left(ids, segments, t_len * max_segments)._asdict()
            arrays = {name: feature.numpy() for name, feature in features.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            yield arrays | ({} if label is None else {"label": label[start : start + CHUNK]}), ()

    origin = origin | {"rows": digest_of(rows, label), "tgt_len": t_len, "max_segments": max_segments}
    return make_examples(chunks, len(rows), origin, directory, **about)


def digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` does not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    for row in rows:
        found.update(json.dumps([value for name, value in vars(row).items() if name != "where"]).encode())
    return found.hexdigest()


def _value(values: dict[str, Any], column: str, where: str, needed: bool) -> str:
    if column not in values:
        if not needed:
            return ""
        shown = ", ".join(map(repr, values))
        raise InputError(f"{where} has no column {column!r} but {shown}: name the columns (--text_column, ..)")
    value = values[column]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"{where}: {column!r} must be a text or a number, not {json.dumps(value)[:40]}")
    return str(value)


def _tsv(path: str, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return _named(path, ((i, line.split("\t")) for i, line in enumerate(lines, 1) if line))


def _csv(path: str, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(1 << 30)  # a text may be long
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        while True:
            first = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(f"{path}, line {first} is not CSV ({error}): correct its quotes") from error
            if row:
                yield first, row

    return _named(path, rows())


def _named(path: str, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, dict[str, str]]]:
    """The values of each line by their column's name, which the first line has."""
    _, header = next(rows, (0, []))
    twice = [name for name, count in collections.Counter(header).items() if count > 1]
    if twice:
        raise InputError(f"{path}, line 1 names the column {twice[0]!r} twice: rename one")
    for line, values in rows:
        if len(values) != len(header):
            raise InputError(
                f"{path}, line {line} has {len(values)} columns, but line 1 has {len(header)}: correct the row"
            )
        yield line, dict(zip(header, values, strict=True))


_READERS = {"tsv": _tsv, "csv": _csv, "jsonl": json_lines}

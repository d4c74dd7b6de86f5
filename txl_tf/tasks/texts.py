"""Texts and pairs of texts in tables, each with a label: what the tasks that read them share.

Labels are read from cells, and numbered. A row that cannot be used is a fault, with file and line. One error lists all
faults of a file.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import COLUMN_NAMES, Columns, near_name
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.results import KINDS
from txl_tf.data.tables.table import Rows, Table
from txl_tf.data.tables.workbooks import BadCell
from txl_tf.data.tables.written import written_list
from txl_tf.errors import Faults, InputError
from txl_tf.storage.surrogates import whole
from txl_tf.tasks.base import SequenceTask, Served, Signatures
from txl_tf.tasks.remarks import MISSING, odd_texts, unread_text

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet, Pair


LabelReader = Callable[[dict[str, Any], str], str]
"""(values of a row, where it stands) -> its label."""


def refuse_bad_cell(value: Any, where: str) -> None:
    """Raises InputError if a value is a cell that cannot be used."""
    if isinstance(value, BadCell):
        raise InputError(f"{where}: {value.fault}")


def text_in(values: dict[str, Any], column: str, where: str, needed: bool = False) -> str:
    """The text in a column; "" if there is none: it is null or NaN, or the column is missing and not needed."""
    if needed and column not in values:
        shown = ", ".join(map(repr, values))
        raise InputError(f"{where} has no column {column!r} but {shown}: correct the line")
    value = values.get(column)
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    refuse_bad_cell(value, where)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{where}: {column!r} must be a text or a number, not {json.dumps(value, default=str)[:40]}")
    return str(value)


def one_label(table: Table, columns: Columns) -> LabelReader:
    """The reader of the one label of a row, true and false by these names."""
    names, column = columns.named_labels, columns.label_column

    def read(values: dict[str, Any], where: str) -> str:
        value = values.get(column)
        refuse_bad_cell(value, where)
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
            values = values | {column: value}
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            raise InputError(
                f"{where} has a list of labels, and a text has one class here: give one, or --task=multi_label"
            )
        refuse_missing(str(value).strip(), where)
        label = text_in(values, column, where, True).strip()
        if not label:
            raise InputError(f"{where} has no label in column {column!r}: remove the row or correct it")
        return name_of(label, names, where) if names else label

    return read


def refuse_missing(label: str, where: str) -> None:
    """Raises InputError for a label such as nan."""
    if label.lower() in MISSING:
        remedy = "correct it or remove the row"
        raise InputError(f"{where} has the label {label!r}, which stands for a missing value: {remedy}")


def name_of(number: Any, names: Sequence[str], where: str) -> str:
    """The name of a label or tag that is a number, or is a name itself; InputError if there is none."""
    with contextlib.suppress(TypeError, ValueError, IndexError, OverflowError):
        place = float(number)
        if place >= 0 and place.is_integer():
            return names[int(place)]
    if number in names:
        return str(number)
    raise InputError(
        f"{where} has the label {str(number)[:40]!r}, but --label_names has the names of 0 to {len(names) - 1}"
    )


def label_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur, in order: as integers if all of them are integers, otherwise as text."""
    names = {row.label for row in rows}
    try:
        return tuple(sorted(names, key=lambda name: (int(name), name)))  # 1 and 01 are two labels
    except ValueError:
        return tuple(sorted(names))


def class_numbers(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """The number of each row's class, int32 [n]; InputError if a label is not among `labels`."""
    numbers = {name: i for i, name in enumerate(labels)}
    unknown = [f"{row.where} has the label {row.label!r}" for row in rows if row.label not in numbers]
    refuse_unknown(unknown, labels, rows)
    return np.array([numbers[row.label] for row in rows], np.int32)


def refuse_unknown(unknown: Sequence[str], labels: tuple[str, ...], rows: Sequence[Any]) -> None:
    """Raises InputError if rows have unknown labels: `unknown` has the beginning of a sentence for each such row."""
    shown, faults = ", ".join(labels[:10]) + (", .." if len(labels) > 10 else ""), Faults(file_of(rows))
    for begin in unknown:
        faults.add(f"{begin}, which the model does not know: it has {shown}")
    faults.raise_any()


def file_of(rows: Sequence[Any]) -> str:
    """The file of rows with `where`, its name and a line; "" if there are none."""
    return rows[0].where.rpartition(", ")[0] if rows else ""


def imbalance(labels: tuple[str, ...], numbers: np.ndarray) -> str:
    """How often each class occurs, in one line; if there are many, the three largest and the two smallest."""
    counts = np.bincount(numbers, minlength=len(labels))
    order = np.argsort(-counts, kind="stable")
    shown = [f"{labels[i]} {counts[i] / len(numbers):.1%}" for i in order]
    shown = shown if len(shown) <= 6 else [*shown[:3], "..", *shown[-2:]]
    ratio = counts.max() / max(counts.min(), 1)
    return f"{len(labels)} classes: {', '.join(shown)}; the largest is {ratio:.1f} times the smallest"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: one or two texts ("": there is no second) and a label.

    `where` is its file and line, `cells` the whole row by the names of columns.
    """

    text: str
    text_b: str
    label: str
    where: str
    cells: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def place(self) -> str:
        """`where` without the file, such as "line 7"; or the name of a file in a folder."""
        return self.where.rpartition(", ")[2]


def read_table(
    path: str | Table,
    columns: Columns,
    labelled: bool = True,
    label_reader: Callable[[Table, Columns], LabelReader] = one_label,
) -> Rows[Row]:
    """The rows of a file that `read_rows` can read, or of a Table; those without any content are skipped and counted.

    `labelled`: whether every row must have a label; if not, labels are not read. `label_reader` makes their reader for
    the whole table; by default a label is one class or number.

    Raises:
        InputError: the file cannot be read, lacks a column, or has no rows; or a row lacks a text or a label. If
            several rows do, it is a FaultsError with all of them.
    """
    faults = Faults(path if isinstance(path, str) else path.name)
    table = read_rows(path, columns, faults, labelled)
    read_label = label_reader(table, columns) if labelled else None
    _require_columns(table, columns, labelled)
    rows, without_text = Rows[Row](), []
    for line, values in table.rows:
        where = table.where(line)
        with faults.noted(line):
            text = text_in(values, columns.text_column, where, not columns.skip_empty)
            if not text.strip():
                if columns.skip_empty:
                    without_text.append(line)
                    continue
                raise InputError(
                    f"{where} has no text in column {columns.text_column!r}: correct the row, remove it, or give "
                    "--skip_empty"
                )
            second = text_in(values, columns.text_b_column, where)
            label = read_label(values, where) if read_label else ""
            rows.append(Row(text, second, label, where, values))
    faults.raise_any(len(rows) + len(without_text))
    if not rows:
        raise InputError(f"{table.name} has no rows")
    rows.table = table
    for lines, what in ((table.empty, "any content"), (without_text, "text")):
        if lines:
            shown = ", ".join(map(str, lines[:5])) + (", .." if len(lines) > 5 else "")
            places = f"{'line' if len(lines) == 1 else 'lines'} {shown}"
            rows.remarks += (f"{counted(len(lines), 'row')} without {what} left out ({places})",)
    rows.remarks += odd_texts(rows)
    if labelled:
        rows.remarks += unread_text(columns, table.names)
    if all(written_list(row.text) is not None for row in rows):
        rows.remarks += (f"texts such as {rows[0].text[:40]!r} are read as they stand, not as lists",)
    texts = [f"text in {columns.text_column!r}"]
    texts += [f"second text in {columns.text_b_column!r}"] if columns.text_b_column in table.names else []
    named = columns.label_columns or columns.label_column
    labels = [f"label in {named!r}"] if labelled else []
    rows.understood = f"{', '.join([table.form, *texts, *labels, *table.remarks])}: {counted(len(rows), 'row')}"
    return rows


def _require_columns(table: Table, columns: Columns, labelled: bool) -> None:
    needed = {"text_column": True, "text_b_column": False, "label_column": labelled and not columns.label_columns}
    for name, always in needed.items():
        column = getattr(columns, name)
        if not table.names or column in table.names or not (always or columns.named(name)):
            continue
        if columns.no_header:
            raise InputError(
                f"{table.header} has {counted(len(table.names), 'column')}: --{name} must be a number "
                f"from 1 to {len(table.names)}, not {column!r}"
            )
        near = near_name(column, table.names)
        shown = ", ".join(name if len(name) <= 60 else name[:57] + ".." for name in map(repr, table.names[:20]))
        remedy = f"give --{name}={near!r}" if near else f"name one of them with --{name}"
        if not near and not columns.named(name) and table.header.rpartition(", ")[2].startswith("line "):
            remedy += ", or, if this line is not a header, give --no_header and the columns' numbers (--text_column=1)"
        alone = table.rows[0][1] if len(table.rows) == 1 else {}
        if inside := [name for name, own in alone.items() if isinstance(own, list) and isinstance((*own, "")[0], dict)]:
            remedy = f"if its rows are in {inside[0]!r}, give that list alone"
        if {"data", "annotations"} <= set(table.names):
            remedy = "these are tasks of Label Studio: export them as JSON-MIN, which has a column for each field"
        other = f" ({', '.join(table.remarks)})" if table.remarks else ""  # such as further sheets
        raise InputError(f"{table.header} has no column {column!r} but {shown}{other}: {remedy}")


def table_examples(
    rows: Sequence[Row],
    plan: ExamplePlan,
    label: np.ndarray | None,
    labels: tuple[str, ...] = (),
    remarks: Sequence[str] = (),
) -> ExampleSet:
    """Texts and pairs as examples: features tokens, segments, padding [n, S T] and, if there is one, label [n, ..].

    Remarks are those of the rows, the given ones, and how many were cut. The plan's settings say S, max_segments.
    """
    import tensorflow as tf

    from txl_tf.data.examples.example_set import pair_examples
    from txl_tf.data.examples.layout import cut_longer, encode

    t_len, max_segments = plan.config.data.tgt_len, plan.config.data.max_segments

    def encoded(some: Sequence[Row]) -> tuple[Pair, Pair]:
        texts = encode(plan.vocabulary, tf.constant([row.text for row in some]))
        second = encode(plan.vocabulary, tf.constant([row.text_b for row in some]))
        return (texts, second), cut_longer(texts, second, t_len, max_segments)

    layout = {"tgt_len": t_len, "max_segments": max_segments}
    made = pair_examples(rows, plan, label, encoded, [t_len * max_segments], layout, labels)
    return dataclasses.replace(made, remarks=(*getattr(rows, "remarks", ()), *remarks, *made.remarks))


class TextTask(SequenceTask):
    """A task of texts and pairs of texts."""

    tables, table_kinds = True, KINDS

    def rows(self, values: Sequence[Any], columns: Columns) -> list[Row]:
        rows = []
        for i, text in enumerate(values, 1):
            pair = (text, "") if isinstance(text, str) else tuple(text) if isinstance(text, (tuple, list)) else ()
            if len(pair) != 2 or not all(isinstance(side, str) for side in pair) or not pair[0].strip():
                raise InputError(f"text {i} must be a text or a pair of texts, and not empty; it is {str(text)[:40]!r}")
            rows.append(Row(whole(pair[0]), whole(pair[1]), "", f"text {i}"))
        return rows

    def needs(self, columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
        return (columns.text_column,)

    def group(self, item: Row) -> Hashable:
        return item.text, item.text_b

    def source(self, rows: Sequence[Row], number: int, columns: Columns) -> dict[str, Any]:
        row = rows[number]
        line, texts = row.place.rpartition(" ")[2], {"text": row.text} | ({"text_b": row.text_b} if row.text_b else {})
        own = {getattr(columns, name) for name in COLUMN_NAMES}
        cells = {name: value for name, value in row.cells.items() if name not in own}
        return {"row": int(line) if line.isdecimal() else row.place, "cells": cells} | texts

    def signature_inputs(self, items: Sequence[Row]) -> dict[str, Any]:
        return super().signature_inputs(items) | {"second": [item.text_b for item in items]}

    def levels(self, rows: Sequence[Row], count: int) -> list[Hashable]:
        """The labels. If they are numbers, nearly all different, each `count` neighbours by size are one class."""
        labels = [row.label for row in rows]
        if len(set(labels)) <= len(rows) / 2:
            return list(labels)
        try:
            ascending = sorted(range(len(rows)), key=lambda i: float(labels[i]))
        except ValueError:  # many classes, and not numbers
            return list(labels)
        levels: list[Hashable] = [0] * len(rows)
        for place, i in enumerate(ascending):
            levels[i] = place // count
        return levels

    def facts(self, served: Served) -> dict[str, Any]:
        return {"long": " " + served.filled("long_texts").rstrip() if served.config.max_segments > 1 else ""}

    @abc.abstractmethod
    def served_results(self, found: dict[str, tf.Tensor], served: Served) -> dict[str, tf.Tensor]:
        """The outputs of the signature, from the `predictions` for its texts."""

    def signatures(self, served: Served) -> Signatures:
        """For texts [B] and the second text of each pair, "" where there is none; see README."""
        import tensorflow as tf

        from txl_tf.data.examples.layout import lay_out

        data, spec = served.config.data, tf.TensorSpec([None], tf.string)

        def predict(texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
            texts = checked(texts, tf.size(texts), tf.size(second), 'give a second text, or "", for each text')
            laid_out = lay_out(served.vocabulary, texts, second, data.tgt_len, data.max_segments)
            return self.served_results(served.outputs(*laid_out), served)

        predict.__name__ = self.signature
        return {predict: {"texts": spec, "second": spec}}


INPUTS = '["A text.", ("The first of a pair.", "The second.")]'
"""Texts for `Predictor.predict`, in Python."""


def checked(given: tf.Tensor, size: tf.Tensor, other: tf.Tensor, remedy: str) -> tf.Tensor:
    """`given`, with an error at run time unless two sizes are equal."""
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.assert_equal(size, other, remedy)]):
        return tf.identity(given)

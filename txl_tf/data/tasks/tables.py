"""Tables of labelled texts as rows with labels.

A row that cannot be used is a fault, with file and line. One error lists all faults of a file.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import json
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns, near_name
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.table import Table
from txl_tf.data.tables.workbooks import BadCell
from txl_tf.errors import Faults, InputError
from txl_tf.storage.surrogates import whole


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: one or two texts ("": there is no second) and a label. `where` is its file and line."""

    text: str
    text_b: str
    label: str
    where: str

    @property
    def line(self) -> int:
        """The number of its line or row."""
        return int(self.where.rpartition(" ")[2])


class TableRows(list[Row]):
    """The rows of a file.

    Attributes:
        remarks: notes about them for the user, as sentences.
        understood: what the file was taken for.
        label_sets: whether a label is a JSON list of labels.
        table: from which they were read.
    """

    remarks: tuple[str, ...] = ()
    understood: str = ""
    label_sets: bool = False
    table: Table | None = None


LabelReader = Callable[[dict[str, Any], str], str]
"""(values of a row, where it stands) -> its label."""


def read_table(
    path: str | Table,
    columns: Columns,
    labelled: bool = True,
    label_reader: Callable[[Table, Columns, bool], LabelReader] | None = None,
) -> TableRows:
    """The rows of a file that `read_rows` can read, or of a Table.

    Rows without any content are skipped, and the remarks count them.

    Args:
        labelled: whether every row must have a label; if not, a missing label is "".
        label_reader: what reads a label, made for the whole table; None: a label is one class or number.

    Raises:
        InputError: the file cannot be read, lacks a column, or has no rows; or a row lacks a text or a label. If
            several rows do, it is a FaultsError with all of them.
    """
    faults = Faults(path if isinstance(path, str) else path.name)
    table = read_rows(path, columns, faults, labelled)
    read_label = (label_reader or _one_label)(table, columns, labelled)
    _require_columns(table, columns, labelled)
    rows, without_text = TableRows(), []
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
            rows.append(Row(text, text_in(values, columns.text_b_column, where), read_label(values, where), where))
    faults.raise_any(len(rows) + len(without_text))
    if not rows:
        raise InputError(f"{table.name} has no rows")
    rows.table = table
    found = ((table.empty, "any content"), (without_text, "text"))
    rows.remarks = tuple(_left_out(lines, what) for lines, what in found if lines)
    texts = [f"text in {columns.text_column!r}"]
    texts += [f"second text in {columns.text_b_column!r}"] if columns.text_b_column in table.names else []
    named = columns.label_columns or columns.label_column
    labels = [f"label in {named!r}"] if labelled else []
    rows.understood = f"{', '.join([table.form, *texts, *labels, *table.remarks])}: {counted(len(rows), 'row')}"
    return rows


def read_classes(path: str | Table, columns: Columns, labelled: bool = True) -> TableRows:
    """A table whose labels are classes, as `read_table`."""
    rows = read_table(path, columns, labelled)
    if labelled:
        rows.understood += f", {counted(len(label_names(rows)), 'class', 'classes')}"
    return rows


def read_scored(path: str | Table, columns: Columns, labelled: bool = True) -> TableRows:
    """A table whose labels are numbers, as `read_table`; a label that is none raises InputError, too."""
    rows = read_table(path, columns, labelled)
    if labelled:
        found = scores(rows)
        rows.understood += f", scores from {found.min():g} to {found.max():g}"
    return rows


def _left_out(lines: Sequence[int], what: str) -> str:
    shown = ", ".join(map(str, lines[:5])) + (", .." if len(lines) > 5 else "")
    one = len(lines) == 1
    return f"{counted(len(lines), 'row')} without {what} left out ({'line' if one else 'lines'} {shown})"


def _require_columns(table: Table, columns: Columns, labelled: bool) -> None:
    """Raises InputError if the table lacks a column that is needed, or that the user named."""
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
        other = f" ({', '.join(table.remarks)})" if table.remarks else ""  # such as further sheets
        raise InputError(f"{table.header} has no column {column!r} but {shown}{other}: {remedy}")


def text_rows(texts: Sequence[str | tuple[str, str]]) -> list[Row]:
    """Texts and pairs of texts as rows without labels; InputError if it is something else, or a text is empty."""
    rows = []
    for i, text in enumerate(texts, 1):
        pair = (text, "") if isinstance(text, str) else tuple(text) if isinstance(text, (tuple, list)) else ()
        if len(pair) != 2 or not all(isinstance(side, str) for side in pair) or not pair[0].strip():
            raise InputError(f"text {i} must be a text or a pair of texts, and not empty; it is {str(text)[:40]!r}")
        rows.append(Row(whole(pair[0]), whole(pair[1]), "", f"text {i}"))
    return rows


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
    refuse_unknown(unknown, labels, file_of(rows))
    return np.array([numbers[row.label] for row in rows], np.int32)


def scores(rows: Sequence[Row]) -> np.ndarray:
    """The labels as numbers, float32 [n]; InputError if one is not a finite number."""
    found = np.zeros(len(rows), np.float32)
    faults = Faults(file_of(rows))
    for i, row in enumerate(rows):
        try:
            found[i] = float(row.label)
        except ValueError:
            found[i] = math.nan
        if not np.isfinite(found[i]):
            faults.add(f"{row.where} has the label {row.label!r}, which is not a finite number")
    faults.raise_any()
    return found


def refuse_unknown(unknown: Sequence[str], labels: tuple[str, ...], file: str) -> None:
    """Raises InputError for the rows of a file with labels that are not among those of the model, if there are any.

    `unknown` has the beginning of a sentence for each row, which names the label.
    """
    shown, faults = ", ".join(labels[:10]) + (", .." if len(labels) > 10 else ""), Faults(file)
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


def set_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur in sets of labels, in order."""
    return tuple(sorted({label for row in rows for label in json.loads(row.label)}))


def label_matrix(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """Which labels each row has, uint8 [n, C]; InputError if one is not among `labels`."""
    owned = [(i, label) for i, row in enumerate(rows) for label in json.loads(row.label)]
    single = [Row(rows[i].text, "", label, rows[i].where) for i, label in owned]
    found = np.zeros([len(rows), len(labels)], np.uint8)
    found[[i for i, _ in owned], class_numbers(single, labels)] = 1
    return found


def frequencies(labels: tuple[str, ...], matrix: np.ndarray) -> str:
    """How often each label occurs, in one line: the most frequent, and how many labels a text has."""
    counts = collections.Counter(dict(zip(labels, matrix.sum(axis=0).tolist(), strict=True)))
    shown = [f"{name} {count / len(matrix):.1%}" for name, count in counts.most_common(6)]
    more = ", .." if len(labels) > 6 else ""
    return f"{len(labels)} labels: {', '.join(shown)}{more}; a text has {matrix.sum(axis=1).mean():.2f} of them"


def class_weights(numbers: np.ndarray, classes: int) -> np.ndarray:
    """The weight of each example, [n], so that all classes that occur count alike; the mean is 1."""
    counts = np.bincount(numbers, minlength=classes)
    return (len(numbers) / (np.count_nonzero(counts) * np.maximum(counts, 1)))[numbers]


def twins(labels: Sequence[str]) -> list[str]:
    """A sentence for each group of labels that are one number, or differ only by case or spaces."""
    groups: dict[Hashable, list[str]] = {}
    for label in labels:
        groups.setdefault(_likeness(label), []).append(label)
    said = []
    for like, group in groups.items():
        if len(group) > 1:
            how = "differ only by case or spaces" if isinstance(like, str) else "are one number"
            said.append(
                f"the labels {', '.join(map(repr, group))} {how}, and are {len(group)} classes: if one is meant, "
                "correct the file"
            )
    return said


def _likeness(label: str) -> Hashable:
    """What labels have in common that are one number, or differ only by case or spaces."""
    plain = "".join(label.split()).casefold()
    with contextlib.suppress(decimal.InvalidOperation):
        number = decimal.Decimal(plain)  # exact: as floats two long ids may be equal
        return number if number.is_finite() else plain
    return plain


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


def _one_label(table: Table, columns: Columns, labelled: bool) -> LabelReader:
    """What reads the one label of a row, true and false by these names; "" if there is none, and none is needed."""
    names, column = columns.named_labels, columns.label_column

    def read(values: dict[str, Any], where: str) -> str:
        value = values.get(column)
        if labelled:
            refuse_bad_cell(value, where)
        else:
            return str(value).strip() if isinstance(value, (str, int, float)) else ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            raise InputError(
                f"{where} has a list of labels, and a text has one class here: give one, or --task=multi_label"
            )
        if str(value).strip().lower() == "nan":
            raise InputError(
                f"{where} has the label {str(value).strip()!r}, which stands for a missing value: correct it or remove "
                "the row"
            )
        label = text_in(values, column, where, True).strip()
        if not label:
            raise InputError(f"{where} has no label in column {column!r}: remove the row or correct it")
        return name_of(label, names, where) if names else label

    return read


def name_of(number: Any, names: Sequence[str], where: str) -> str:
    """The name of a label or tag that is a number; InputError if there is none."""
    try:
        place = float(number)
        if place >= 0 and place.is_integer():
            return names[int(place)]
    except (TypeError, ValueError, IndexError, OverflowError):
        pass
    raise InputError(
        f"{where} has the label {str(number)[:40]!r}, but --label_names has the names of 0 to {len(names) - 1}"
    )

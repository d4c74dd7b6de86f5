"""Labels of rows: read from the cells of a table, numbered, and what may be wrong with them."""

from __future__ import annotations

import contextlib
import decimal
import json
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Table
from txl_tf.data.tables.workbooks import BadCell
from txl_tf.errors import Faults, InputError

if TYPE_CHECKING:
    from txl_tf.tasks.texts import Row

MISSING = {"nan", "<na>", "#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"}
"""What pandas and spreadsheet programs write for a missing value or an error, in small letters."""

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


def one_label(table: Table, columns: Columns, labelled: bool) -> LabelReader:
    """The reader of the one label of a row, true and false by these names; "" if there is none, and none is needed."""
    names, column = columns.named_labels, columns.label_column

    def read(values: dict[str, Any], where: str) -> str:
        value = values.get(column)
        if labelled:
            refuse_bad_cell(value, where)
        else:
            return str(value).strip() if isinstance(value, (str, int, float)) else ""
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
            values = values | {column: value}
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            raise InputError(
                f"{where} has a list of labels, and a text has one class here: give one, or --task=multi_label"
            )
        if str(value).strip().lower() in MISSING:
            raise missing_value(str(value).strip(), where)
        label = text_in(values, column, where, True).strip()
        if not label:
            raise InputError(f"{where} has no label in column {column!r}: remove the row or correct it")
        return name_of(label, names, where) if names else label

    return read


def missing_value(label: str, where: str) -> InputError:
    """The error for a label such as nan."""
    return InputError(
        f"{where} has the label {label!r}, which stands for a missing value: correct it or remove the row"
    )


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
    """Raises InputError if some rows of a file have labels that are not among those of the model.

    `unknown` has the beginning of a sentence for each such row, which names the label.
    """
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
    """The form that labels share that are one number, or differ only by case or spaces."""
    plain = "".join(label.split()).casefold()
    with contextlib.suppress(decimal.InvalidOperation):
        number = decimal.Decimal(plain)  # exact: as floats two long ids may be equal
        return number if number.is_finite() else plain
    return plain

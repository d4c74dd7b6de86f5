"""The labels of texts that may have several: lists, cells with a separator, columns of 0 and 1, or numbers."""

from __future__ import annotations

import collections
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows, Table, content
from txl_tf.data.tables.written import written_nested
from txl_tf.errors import InputError
from txl_tf.tasks import texts
from txl_tf.tasks.texts import LabelReader, Row, refuse_bad_cell

OTHER_SEPARATORS = (",", ";", "#", "\n", "|", "\t")
"""Signs that may separate labels if the given separator does not."""
SIGNS_IN_NAMES = ("/", "&", "+", " and ", " ")
"""Signs that may, too, but stand in names of single labels as well."""
_BARE = re.compile(r"""\[[^]["']*\]|\{[^{}':]*\}|(<[^<>]+>)+""")
_BARE_ITEM = re.compile('"[^"]*"|[^,"]*[^," ]')


def of_one_column(table: Table, columns: Columns) -> LabelReader:
    """The reader of the labels in a cell, as a JSON list, in order and without repetitions."""
    column, names = columns.label_column, columns.named_labels
    if table.names and column not in table.names and not columns.named("label_column"):
        bits = [name for name in table.names if all(_bit(values.get(name)) is not None for _, values in table.rows)]
        if len(bits) > 1:
            raise InputError(
                f"{table.header} has no column 'label', and columns of only 0 and 1: give "
                f"--label_columns={','.join(bits)} if each stands for a label, or name the column of labels with "
                "--label_column"
            )
    bare = bool(without_quotes(table, column))
    lists = [_as_list(values.get(column), columns, bare) for _, values in table.rows] if names else []
    # With names, numbers are 0 or 1 for each name, or the numbers of the names: the whole column decides.
    in_bits = all(len(one) == len(names) and all(_bit(number) is not None for number in one) for one in lists if one)

    def read(values: dict[str, Any], where: str) -> str:
        refuse_bad_cell(values.get(column), where)
        found = _as_list(values[column], columns, bare) if column in values else None
        shown = f"{where} has {json.dumps(values.get(column), default=str)[:40]} in column {column!r}"
        if found is None:
            raise InputError(
                f"{shown}: give its labels as a list of texts, or as one text with {columns.between_labels!r} between "
                "them"
            )
        if names and in_bits:
            found = [name for name, number in zip(names, found, strict=False) if _bit(number)]
        elif names:
            found = [texts.name_of(number, names, where) for number in found]
        elif not all(isinstance(label, str) for label in found):
            raise InputError(
                f"{shown}: give its labels as a list of texts, or with --label_names=FIRST,SECOND,.. the names of 0, "
                "1 and so on"
            )
        return _kept(found, columns, where)

    return read


def of_columns(table: Table, columns: Columns) -> LabelReader:
    """The reader of labels in columns of 0 and 1."""
    wanted: list[str] = []
    for part in columns.label_columns.split(","):
        first, dots, last = part.partition("..")
        ends = [part] if part in table.names or not dots else [first, last]
        if missing := [name for name in ends if name not in table.names]:
            raise InputError(
                f"{table.header} has no column {missing[0]!r} but {', '.join(map(repr, table.names))}: correct "
                f"--label_columns={columns.label_columns}"
            )
        span = [table.names.index(name) for name in ends]
        if span[0] > span[-1]:
            raise InputError(f"--label_columns={part}: {last!r} stands before {first!r}, so give {last}..{first}")
        wanted += table.names[span[0] : span[-1] + 1]

    def read(values: dict[str, Any], where: str) -> str:
        for name in wanted:
            refuse_bad_cell(values.get(name), where)
            if _bit(values.get(name)) is None:
                raise InputError(
                    f"{where} has {json.dumps(values.get(name), default=str)[:40]} in column {name!r}, one of "
                    "--label_columns: each needs 0 or 1"
                )
        return _kept([name for name in wanted if _bit(values[name])], columns, where)

    return read


def _bit(value: Any) -> int | None:
    """0 or 1, if a value stands for one of them."""
    if isinstance(value, str):
        value = {"true": 1, "false": 0}.get(value.strip().lower(), value)
        try:
            value = float(value)
        except ValueError:
            return None
    return int(value) if isinstance(value, (int, float)) and value in (0, 1) else None


def without_quotes(table: Table, column: str) -> list[str]:
    """The cells of a column if all are lists in writing without quotes, such as [a, b], or as {"a",b} or <a><b>.

    Otherwise []; lists with 0 or 1 for each label, such as [1, 0, 0], are none of these.
    """
    found: list[Any] = [cell for _, values in table.rows if content(cell := values.get(column))]
    if not all(isinstance(cell, str) and _BARE.fullmatch(cell.strip()) for cell in found):
        return []
    items = list(map(_bare_items, found))
    if all(len(one) == len(items[0]) and None not in map(_bit, one) for one in items):
        return []
    return found if any(len(one) > 1 for one in items) else []


def _bare_items(cell: str) -> list[str]:
    return [item.strip('"') for item in _BARE_ITEM.findall(cell.strip()[1:-1].replace("><", ","))]


def _as_list(value: Any, columns: Columns, bare: bool) -> list[Any] | None:
    """The labels in a cell: a list, a list in writing, or texts with the separator between them; None: none of these.

    An empty cell has no labels. `bare`: lists in writing have no quotes.
    """
    if value is None or value != value:
        return []
    if isinstance(value, str) and bare and content(value):
        return _bare_items(value)
    if isinstance(value, str):
        found = written_nested(value)
        value = value.split(columns.between_labels) if found is None else found
    if isinstance(value, dict) and value.keys() == {"choices"}:  # of Label Studio
        value = value["choices"]
    elif isinstance(value, dict) and None not in map(_bit, value.values()):  # of spaCy: {label: 0 or 1}
        value = [label for label, bit in value.items() if _bit(bit)]
    return value if isinstance(value, list) else None


def _kept(labels: Sequence[str], columns: Columns, where: str) -> str:
    """Labels as a row keeps them; InputError if a table as output could not be read again."""
    found = sorted({label.strip() for label in labels} - {""})
    for label in found:
        texts.refuse_missing(label, where)
    if holding := [label for label in found if columns.between_labels in label]:
        raise InputError(
            f"{where} has the label {holding[0]!r}, which holds what separates labels in a cell: give another "
            f"--label_separator than {columns.between_labels!r}"
        )
    return json.dumps(found, ensure_ascii=False)


def other_separator(rows: Rows[Row], columns: Columns) -> tuple[str, ...]:
    """A remark on labels that look like several labels with another separator than the given one.

    InputError if no separator was given, and the sign is not usual in names.
    """
    cells = [json.loads(row.label) for row in rows]
    every, labels = {label for cell in cells for label in cell}, [cell[0] for cell in cells if len(cell) == 1]
    single, several = set(labels), any(len(cell) > 1 for cell in cells)
    for separator in OTHER_SEPARATORS + SIGNS_IN_NAMES:
        joined = {label for label in single if separator in label}
        parts = collections.Counter(part.strip() for label in joined | every for part in label.split(separator))
        of_joined = {part.strip() for label in joined for part in label.split(separator)}
        # Labels that recur in other cells, not commas inside of names.
        if len(joined) > 1 and (1 if several else 2) * sum(parts[part] > 1 for part in of_joined) >= len(of_joined):
            count = sum(separator in label for label in labels)
            if several:
                remedy = "give all rows one separator if it separates labels"
                return (f"{count:,} of {len(rows):,} rows have {separator!r} between labels of other rows: {remedy}",)
            given = shlex.quote(separator.replace("\n", "\\n").replace("\t", "\\t"))
            said = (
                f"no cell has {columns.between_labels!r}, {count:,} of {len(rows):,} have {separator!r}: give "
                f"--label_separator={given} if it separates labels"
            )
            if columns.label_separator or separator in SIGNS_IN_NAMES:
                return (said,)
            raise InputError(f"{texts.file_of(rows)}: {said}, or --label_separator='|' if each cell is one label")
    return ()


def in_several_rows(rows: Rows[Row]) -> tuple[str, ...]:
    """A remark if a tenth of the texts stand in several rows, each with one label of its own."""
    if any(len(json.loads(row.label)) > 1 for row in rows):
        return ()
    labels: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for row in rows:
        labels[row.text, row.text_b].add(row.label)
    count = sum(len(own) > 1 for own in labels.values())
    said = "with another label in each: give each text one row with all its labels if they belong together"
    found = 1 < len(labels) <= 10 * count
    return (f"{counted(count, 'text')} in several rows, {said}",) if found else ()


def set_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur in sets of labels, in order."""
    return tuple(sorted({label for row in rows for label in json.loads(row.label)}))


def label_matrix(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """Which labels each row has, uint8 [n, C]; InputError if one is not among `labels`."""
    owned = [(i, label) for i, row in enumerate(rows) for label in json.loads(row.label)]
    single = [Row(rows[i].text, "", label, rows[i].where) for i, label in owned]
    found = np.zeros([len(rows), len(labels)], np.uint8)
    found[[i for i, _ in owned], texts.class_numbers(single, labels)] = 1
    return found


def frequencies(labels: tuple[str, ...], matrix: np.ndarray) -> str:
    """How often each label occurs, in one line: the most frequent, and how many labels a text has."""
    counts = collections.Counter(dict(zip(labels, matrix.sum(axis=0).tolist(), strict=True)))
    shown = [f"{name} {count / len(matrix):.1%}" for name, count in counts.most_common(6)]
    more = ", .." if len(labels) > 6 else ""
    return f"{len(labels)} labels: {', '.join(shown)}{more}; a text has {matrix.sum(axis=1).mean():.2f} of them"

"""Tables whose rows have any number of labels: a list in JSON lines, or a cell with a separator.

A row keeps its labels as a JSON list, in order and without repetitions.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from txl_tf.data.tasks.table_files import Columns
from txl_tf.data.tasks.tables import Row, TableRows, class_numbers, read_table
from txl_tf.errors import InputError


def read_label_sets(path: str, columns: Columns, labelled: bool = True) -> TableRows:
    """The rows of a file with their labels; arguments and errors as for `read_table`."""

    def labels(values: dict[str, Any], column: str, where: str, labelled: bool) -> str:
        found = values.get(column, [] if not labelled else None)
        if isinstance(found, str):
            found = found.split(columns.label_separator)
        elif column in values and (found is None or found != found):  # an empty cell of a table: no labels
            found = []
        if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
            if not labelled:
                return "[]"
            raise InputError(
                f"{where} has {json.dumps(found)[:40]} in column {column!r}: give its labels as a list of texts, or as "
                f"one text with {columns.label_separator!r} between them"
            )
        return json.dumps(sorted({label.strip() for label in found} - {""}), ensure_ascii=False)

    return read_table(path, columns, labelled, labels)


def label_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur, in order."""
    return tuple(sorted({label for row in rows for label in json.loads(row.label)}))


def label_matrix(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """Which labels each row has, uint8 [n, C]; InputError if one is not among `labels`."""
    single = [Row(row.text, "", label, row.where) for row in rows for label in json.loads(row.label)]
    owners = [i for i, row in enumerate(rows) for _ in json.loads(row.label)]
    found = np.zeros([len(rows), len(labels)], np.uint8)
    found[owners, class_numbers(single, labels)] = 1
    return found


def frequencies(labels: tuple[str, ...], matrix: np.ndarray) -> str:
    """How often each label occurs, in one line: the most frequent, and how many labels a text has."""
    counts = collections.Counter(dict(zip(labels, matrix.sum(axis=0).tolist(), strict=True)))
    shown = [f"{name} {count / len(matrix):.1%}" for name, count in counts.most_common(6)]
    more = ", .." if len(labels) > 6 else ""
    return f"{len(labels)} labels: {', '.join(shown)}{more}; a text has {matrix.sum(axis=1).mean():.2f} of them"

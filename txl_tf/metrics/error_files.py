"""A model's errors as files: a confusion matrix, precision, recall and F1 by class, and the worst errors.

Where a text may have any number of labels, each label is a class, and there is no matrix.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.data.tables.results import cell, new_names
from txl_tf.errors import InputError
from txl_tf.metrics.labelling import rates
from txl_tf.metrics.task_results import ByLabel, Confusion, Panel, Worst, heading

CONFUSION_FILE, CLASSES_FILE, WORST_FILE = "confusion.csv", "classes.csv", "worst.csv"
NAMES = (CONFUSION_FILE, CLASSES_FILE, WORST_FILE)
CLASSES_HEADER = ("class", "examples", "predicted", "precision", "recall", "f1")

OF_A_TEXT, TEXTS = ("row", "label", "prediction", "probability", "loss"), ("text", "text_b")
"""Columns of worst.csv that have no other use; those of the table stand after the first."""

MOST_CLASSES, MOST_ERRORS, MOST_CHARACTERS = 12, 5, 300
"""Limits of a model card: classes of the matrix, errors, and characters of a text."""


def by_class(right: np.ndarray, label: np.ndarray, predicted: np.ndarray) -> list[tuple[int, int, float, float, float]]:
    """For each class its numbers of examples and predictions, precision, recall and F1; arguments as of `rates`."""
    columns = (label, predicted, *rates(right, label, predicted))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def error_files(
    panels: Sequence[Panel], source: Callable[[int], dict[str, Any]] = lambda _: {}, separator: str = "|"
) -> dict[str, str]:
    """The content of each file by its name; `source` as `FineTuning.source`, `separator` of labels in a cell."""
    files = {}
    for panel in panels:
        if isinstance(panel, Confusion):
            table = [("label / prediction", *panel.labels)]
            table += [(name, *row) for name, row in zip(panel.labels, panel.counts.tolist(), strict=True)]
            files[CONFUSION_FILE] = _text(table)
            counts = np.diag(panel.counts), panel.counts.sum(axis=1), panel.counts.sum(axis=0)
            files[CLASSES_FILE] = _classes(panel.labels, *counts)
        elif isinstance(panel, ByLabel):
            files[CLASSES_FILE] = _classes(*panel)
        elif isinstance(panel, Worst):
            files[WORST_FILE] = _worst(panel, source, separator)
    return files


def in_a_card(files: Mapping[str, str]) -> Iterator[str]:
    """The same as lines of Markdown, if the files exist and are short enough; InputError if one is not such a table."""
    tables = {name: _rows(name, text) for name, text in files.items()}
    for name, title in ((CLASSES_FILE, "By class"), (CONFUSION_FILE, "Labels in rows, predictions in columns")):
        table = tables.get(name, [])
        if len(table) > 1 and (name == CLASSES_FILE or len(table) <= MOST_CLASSES + 1):
            yield f"{title} (`{name}`):\n"
            head, *body = ([_plain(_rounded(cell)) for cell in row] for row in table)
            yield from (f"| {' | '.join(row)} |" for row in (head, ["---", *["--:"] * (len(head) - 1)], *body))
            yield ""
    worst = tables.get(WORST_FILE, [])[1 : MOST_ERRORS + 1]
    if worst:
        yield f"The surest errors (`{WORST_FILE}` has more):\n"
        for row in worst:
            columns = dict(zip(tables[WORST_FILE][0], row, strict=True))
            try:
                yield f"- {_plain(heading(columns))}: {_plain(columns['text'])}"
            except (KeyError, ValueError) as error:
                raise InputError(f"{WORST_FILE} is damaged ({error}): remove it") from error


def _classes(names: Sequence[str], *counts: np.ndarray) -> str:
    rows = zip(names, by_class(*counts), strict=True)
    return _text([CLASSES_HEADER, *((name, *row) for name, row in rows)])


def _worst(worst: Worst, source: Callable[[int], dict[str, Any]], separator: str) -> str:
    found = []
    for one in worst.rows:
        about = {"text": one.text} | source(one.number)
        texts = {name: about.pop(name) for name in TEXTS if name in about}
        cells = about.pop("cells", {})
        names = new_names((*OF_A_TEXT, *TEXTS, "error"), list(cells))
        found.append(about | {names[name]: value for name, value in cells.items()} | dict(one.columns) | texts)
    header = list(dict.fromkeys(name for row in found for name in row)) or [*OF_A_TEXT, "text"]
    header.sort(key=lambda name: name in TEXTS)  # where the rows of a file differ, some columns come later
    return _text([header, *([cell(row.get(name), separator) for name in header] for row in found)])


def _text(rows: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _rows(name: str, text: str) -> list[list[str]]:
    csv.field_size_limit(1 << 30)  # a text may be long
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InputError(f"{name} is not CSV ({error}): remove it") from error
    own = len(rows[0]) if rows else 0
    width = {CLASSES_FILE: len(CLASSES_HEADER), WORST_FILE: own, CONFUSION_FILE: len(rows)}[name]
    if not rows or any(len(row) != width for row in rows):
        raise InputError(f"{name} is damaged, its rows do not have {width} columns: remove it")
    return rows


def _plain(text: str) -> str:
    """A text in one line of Markdown."""
    text = " ".join(text.split())
    text = text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + ".."
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text).replace("<", "&lt;")


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.3f}" if "." in cell else cell
    except ValueError:
        return cell

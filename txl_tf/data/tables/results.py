"""A table with results in new columns, after all columns and rows of the file that was read."""

from __future__ import annotations

import collections
import csv
import io
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txl_tf.data.tables import arrow, workbooks
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import kind_of, read_rows, unpacked
from txl_tf.data.tables.table import Table, required
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import json_line

KINDS = ("csv", "tsv", "jsonl", "xlsx", "parquet")
"""The ends of the names of tables that can be written."""
WITH_CELLS = tuple(kind for kind in KINDS if kind != "jsonl")
"""Those that have cells. Lines of JSON can have all fields of a prediction instead."""


def is_table(path: str) -> bool:
    """Whether a name is that of a table. InputError if such a table cannot be written, such as .csv.gz."""
    kind = kind_of(path)
    if kind in ("xls", "ods"):
        raise InputError(f"{path}: such a table cannot be written: give a name that ends in .xlsx")
    if kind in KINDS and not path.lower().endswith(f".{kind}"):
        raise InputError(
            f"{path}: such a table cannot be written: give a name that ends in .csv, .tsv, .jsonl, .xlsx or .parquet"
        )
    if package := {"xlsx": "openpyxl", "parquet": "pyarrow"}.get(kind):
        required(package, path)
    return kind in KINDS


def require_room(output: str, path: str | Table, columns: Columns, new: int) -> None:
    """Raises InputError if `output` is a workbook that has no room for a table and this number of new columns."""
    if kind_of(output) == "xlsx":
        table = read_rows(path, columns, Faults(output))
        rows = len(table.rows) + len(table.empty) + (not columns.no_header)
        workbooks.require_room(output, rows, len(table.names) + new)


def write_results(output: str, path: str | Table, columns: Columns, results: Mapping[int, Mapping[str, Any]]) -> None:
    """Writes a table `with_results`, local or gs://.

    InputError if the file cannot be written. The results then stand elsewhere, see `kept_elsewhere`: the table as CSV,
    or a line of JSON for each result if the table cannot be read any more.
    """
    from txl_tf.storage.files import kept_elsewhere, write_atomically  # here: it loads TensorFlow

    try:
        write_atomically(output, with_results(output, path, columns, results))
    except Exception as error:  # of openpyxl or the system, of any kind: the results must not be lost
        try:
            content, end = with_results(".csv", path, columns, results), ".csv"
        except Exception:
            content, end = "".join(json_line({"line": line} | dict(one)) for line, one in results.items()), ".jsonl"
        raise kept_elsewhere(output, content, end, error) from error


def with_results(
    output: str, path: str | Table, columns: Columns, results: Mapping[int, Mapping[str, Any]]
) -> str | bytes:
    """The content of a table with further columns. A new column whose name is taken gets a name with _2.

    `output` is the name of the new file, `path` the file that was read, or its Table. `results` are {number of a line:
    {name of a column: value}}; other rows get none.
    """
    table = read_rows(path, columns, Faults(output))
    path = table.name
    names = new_names(table.names, list(next(iter(results.values()), {})))
    rows: dict[int, dict[str, Any]] = {line: {} for line in table.empty} | dict(table.rows)
    found = {line: {names[name]: value for name, value in results.get(line, {}).items()} for line in sorted(rows)}
    kind = kind_of(output)
    if kind == "parquet":
        return arrow.parquet_of(output, [rows[line] | found[line] for line in found], [*table.names, *names.values()])
    if kind == "jsonl":
        lines = ({name: rows[line].get(name) for name in rows[line] or table.names} | found[line] for line in found)
        return "".join(json_line(one, default=str) for one in lines)
    shown = _shown_as_in(table, columns)
    if kind == "xlsx" and kind_of(path) == "xlsx":
        added = {} if columns.no_header else {table.header_line: list(names.values())}
        added |= {line: [shown(found[line].get(name)) for name in names.values()] for line in results}
        return workbooks.with_columns(output, unpacked(path), columns.sheet, added)
    every = [*table.names, *names.values()]
    whole = [] if columns.no_header else [every]
    whole += [[shown((rows[line] | found[line]).get(name)) for name in every] for line in found]
    return (
        workbooks.new_workbook(output, whole, len(table.names))
        if kind == "xlsx"
        else _text(whole, kind, kind_of(path), table)
    )


def as_columns(prediction: Mapping[str, Any], all_probabilities: bool = False) -> dict[str, Any]:
    """A prediction as the columns that it adds to a table: prediction, probability, unsure, and one for each class."""
    columns = {"prediction": next(iter(prediction.values()))}
    columns |= {name: prediction[name] for name in ("probability", "unsure") if name in prediction}
    every = prediction.get("probabilities", {}) if all_probabilities else {}
    return columns | {f"probability {name}": value for name, value in every.items()}


def new_names(there: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """The wanted names for new columns, with _2 and so on if a column has that name already; all differ."""
    names: dict[str, str] = {}
    for name in wanted:
        new, number = name, 1
        while new in there or (number > 1 and new in wanted):
            number += 1
            new = f"{name}_{number}"
        names[name] = new
    return names


def _shown_as_in(table: Table, columns: Columns) -> Callable[[Any], Any]:
    """A function that makes cells of values: labels in the order and with the separator of the table's cells."""
    between, places = columns.between_labels, collections.defaultdict(list)
    cells = [value for _, values in table.rows if isinstance(value := values.get(columns.label_column), str)]
    lists = (
        [columns.label_columns.split(","), table.names]
        if columns.label_columns
        else [[label.strip() for label in value.split(between)] for value in cells]
    )
    for labels in lists:
        for i, label in enumerate(labels):
            places[label].append(i)
    order = {label: statistics.fmean(found) for label, found in places.items()}
    spaced = between + " " if any(between + " " in value for value in cells) else between

    def shown(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = sorted(value, key=lambda label: order.get(label, len(order)))
        return cell(value, spaced)

    return shown


def cell(value: Any, separator: str) -> Any:
    """A value for a cell: texts with the separator between them; other nested JSON becomes text."""
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return separator.join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, dict)) else value


def _text(rows: Sequence[Sequence[Any]], kind: str, kind_read: str, table: Table) -> bytes:
    """A .csv or .tsv, with the separator and encoding of the file that was read if that is of the same kind.

    A .tsv has no quotes, so tabs and line breaks in it become spaces.
    """
    same = kind == kind_read
    separator = table.separator if same else {"csv": ",", "tsv": "\t"}[kind]
    rows = [["" if value is None else value for value in row] for row in rows]
    if separator == "\t":
        text = "".join("\t".join(re.sub(r"[\t\r\n]+", " ", str(value)) for value in row) + "\n" for row in rows)
    else:
        file = io.StringIO()
        csv.writer(file, delimiter=separator, lineterminator="\n").writerows(rows)
        text = file.getvalue()
    encoding = table.encoding if same else "utf-8-sig" if kind_read == "xlsx" else "utf-8"
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:  # a class's name, which was learned from another table
        return text.encode("utf-8-sig")

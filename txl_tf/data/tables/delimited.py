"""Tables as text: CSV, TSV and files with other separators."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator

from txl_tf.data.tables.columns import Columns, near_name
from txl_tf.data.tables.table import Table, of_cells
from txl_tf.errors import Faults

SEPARATORS = (",", ";", "\t", "|")
"""The separators that are tried for a file if none is given."""


def read_delimited(path: str, text: str, usual: str, columns: Columns, faults: Faults) -> Table:
    """The rows of a file whose usual separator is a comma or a tab; with a tab there are no quotes, as in GLUE's files.

    Spreadsheet programs may name the separator in a line before the header, such as "sep=;".
    """
    first, named = 1, re.match('"?sep=(.)"?(\r\n|\r|\n)', text)
    if named:
        first, text = 2, text[named.end() :]
    separator = columns.separator or (named[1] if named else _separator(text, columns, usual))
    if usual == separator == "\t":
        cells = _cells_without_quotes(text, first)
    else:
        cells = _cells(path, text, first, separator, faults)
    form = "TSV" if separator == "\t" else "CSV" if separator == "," else f"CSV with {separator!r}"
    return dataclasses.replace(of_cells(path, cells, columns, faults), separator=separator, unit="line", form=form)


def separator_of(line: str) -> str:
    """The separator that a header has most often."""
    return max(SEPARATORS, key=line.count)


def _cells_without_quotes(text: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a TSV file, whose first line has the number `first`, with the number of its line."""
    ends = "\n" if "\n" in text else "\r"
    for i, row in enumerate(text.removesuffix(ends).split(ends), first):
        yield i, row.removesuffix("\r").split("\t")


def _cells(path: str, text: str, first: int, separator: str, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a CSV file, with the number of its first line."""
    csv.field_size_limit(1 << 30)  # a text may be long
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + first
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # after it the rows are not certain
            faults.add(f"{path}, line {line} is not CSV ({error}): correct its quotes", line)
            return


def _separator(text: str, columns: Columns, usual: str) -> str:
    """The separator of columns: the usual one, unless line 1 (without a header: the first lines) shows another."""
    lines = text[: 1 << 20].splitlines()[: 20 if columns.no_header else 1]
    counts = {}
    for separator in (usual, *(other for other in SEPARATORS if other != usual)):
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        counts[separator] = len(rows[0]) if rows and len({len(row) for row in rows}) == 1 else 0
        if counts[separator] > 1 and (columns.no_header or near_name(columns.text_column, rows[0])):
            return separator
    return usual if counts[usual] > 1 else max(counts, key=lambda separator: counts[separator])

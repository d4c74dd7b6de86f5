"""Tables as text: CSV, TSV and files with other separators."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Iterator

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns, near_name
from txl_tf.data.tables.table import Source, Table, of_cells
from txl_tf.errors import Faults

SEPARATORS = (",", ";", "\t", "|")
"""The separators that are tried for a file if none is given."""
SEPARATOR_LINE = re.compile('"?sep=(.)"?(\r\n|\r|\n)')
"""A line before the header that names the separator, as spreadsheet programs write it."""
QUOTED_HEADER = re.compile(r'("[^"\t\r\n]*"(\t|(?=[\r\n]|$))){2,}(?=[\r\n]|$)')
_QUOTED = re.compile(r'(?<![^\t\r\n])"([^"\t\r\n]|"")*"(?![^\t\r\n])')
"""A header, and a cell of a TSV file, with quotes as in CSV."""


def read_delimited(source: Source, usual: str) -> Table:
    """The rows of a file whose usual separator is a comma or a tab.

    With a tab quotes are letters, as in GLUE's files, unless all names in the first line have them.

    Spreadsheet programs may name the separator in a line before the header, such as "sep=;".
    """
    path, text, columns, faults = source.path, source.text, source.columns, source.faults
    first, named = 1, SEPARATOR_LINE.match(text)
    if named:
        first, text = 2, text[named.end() :]
    separator = columns.separator or (named[1] if named else _separator(text, columns, usual))
    remarks = []
    if usual == separator == "\t" and not QUOTED_HEADER.match(text):
        ends = "\n" if "\n" in text else "\r"
        cells = cells_without_quotes(text.removesuffix(ends).split(ends), first)
        if quoted := sum(1 for _ in _QUOTED.finditer(text)) if '"' in text else 0:
            remarks = [f"the quotes around {counted(quoted, 'cell')} kept (they go if the file's name ends in .csv)"]
    else:
        cells = cells_of(path, io.StringIO(text, newline=""), first, separator, faults)
    form = "TSV" if separator == "\t" else "CSV" if separator == "," else f"CSV with {separator!r}"
    table = of_cells(path, cells, columns, faults)
    return dataclasses.replace(
        table, separator=separator, encoding=source.encoding, unit="line", form=form, remarks=tuple(remarks)
    )


def cells_without_quotes(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line of a TSV file, with its number; the number of the first line is `first`."""
    for i, line in enumerate(lines, first):
        yield i, line.rstrip("\r\n").split("\t")


def cells_of(
    path: str, lines: Iterable[str], first: int, separator: str, faults: Faults
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a CSV file, with the number of its first line; lines have their ends."""
    csv.field_size_limit(1 << 30)  # a text may be long
    reader = csv.reader(lines, delimiter=separator, strict=True)
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

"""Workbooks (.xlsx) as rows of cells, and written again with further columns.

openpyxl is needed: requirements-tables.txt. The first sheet is read. All of this works without TensorFlow.
"""

from __future__ import annotations

import io
import typing
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from txl_tf.errors import InputError, one_line

if typing.TYPE_CHECKING:
    from openpyxl import Workbook

MOST_BYTES = 1 << 30
"""Workbooks that hold more, unpacked, are refused: they would fill the memory."""

MOST_CELLS = 50_000_000
"""Sheets that reach further are refused: a single cell in the last row makes a sheet of a million rows."""

MOST_CHARACTERS = 32_767
"""The longest text of a cell."""


def read_cells(path: str, data: bytes) -> Iterator[tuple[int, list[Any]]]:
    """The cells of each row, with its number: texts, numbers, truth values, dates or None.

    Empty cells at the end of a row are left out beyond the width of the first row that is not empty.

    Raises:
        InputError: the file is not a workbook, is damaged, or holds more than MOST_BYTES.
    """
    width = 0
    for number, row in enumerate(_opened(path, data, data_only=True).worksheets[0].iter_rows(values_only=True), 1):
        cells = list(row)
        while len(cells) > width and cells[-1] is None:
            cells.pop()
        width = width or len(cells)
        yield number, cells + [None] * (width - len(cells))


def with_columns(path: str, data: bytes, width: int, added: Sequence[tuple[int, Sequence[Any]]]) -> bytes:
    """A workbook with further columns in its first sheet, of `width`; its formats, formulas and other sheets stay.

    `added` has pairs of a row's number and the cells to add to it; `path` is for messages.
    """
    return _written(path, _opened(path, data), ((number, width, cells) for number, cells in added))


def new_workbook(path: str, rows: Sequence[Sequence[Any]]) -> bytes:
    """A workbook with these rows of cells; InputError, with `path`, if a text is longer than a cell can hold."""
    return _written(path, require_openpyxl(path).Workbook(), ((i, 0, cells) for i, cells in enumerate(rows, 1)))


def _written(path: str, book: Workbook, rows: Iterator[tuple[int, int, Sequence[Any]]]) -> bytes:
    """The file of a workbook after cells are written into some rows, from a column on."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    sheet = book.worksheets[0]
    for number, first, cells in rows:
        for column, value in enumerate(cells, first + 1):
            if isinstance(value, str):
                if len(value) > MOST_CHARACTERS:
                    raise InputError(
                        f"{path}: row {number} has a text of {len(value):,} characters, and a cell of .xlsx holds "
                        f"{MOST_CHARACTERS:,}: give a name that ends in .csv"
                    )
                value = ILLEGAL_CHARACTERS_RE.sub(" ", value)
            cell = sheet.cell(number, column, value)
            if isinstance(value, str):
                cell.data_type = "s"  # "=1+1" is a text, not a formula
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def require_openpyxl(path: str) -> Any:
    """The package for .xlsx, which is an extra; InputError if it is missing."""
    try:
        import openpyxl
    except ImportError as error:
        raise InputError(
            f"{path} needs the package openpyxl: run python -m pip install -r requirements-tables.txt, or save the "
            "table as CSV (UTF-8)"
        ) from error
    return openpyxl


def _opened(path: str, data: bytes, **options: Any) -> Workbook:
    openpyxl = require_openpyxl(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size <= MOST_BYTES:
            book = openpyxl.load_workbook(io.BytesIO(data), **options)
            size = book.worksheets[0].max_row * book.worksheets[0].max_column
            if size <= MOST_CELLS:
                return book
    except Exception as error:  # openpyxl and its XML reader raise errors of many kinds
        raise InputError(
            f"{path} is not a workbook that can be read ({one_line(error)}): save it again, or as CSV (UTF-8)"
        ) from error
    raise InputError(f"{path} is too large for a workbook to read ({size:,} bytes or cells): save it as CSV (UTF-8)")

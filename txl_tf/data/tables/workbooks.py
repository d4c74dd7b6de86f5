"""Workbooks (.xlsx) as rows of cells, and written again with further columns.

openpyxl is needed: the extra `tables`. One sheet is read: the first that is not hidden, or the one that is named.
All of this works without TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import typing
import warnings
import xml.sax
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txl_tf.counted import counted
from txl_tf.data.tables.table import required
from txl_tf.errors import InputError, one_line

if typing.TYPE_CHECKING:
    from openpyxl import Workbook

MOST_BYTES = 1 << 30
"""Workbooks that hold more, unpacked, are refused: they would fill the memory."""

MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 1_048_576, 16_384, 32_767
"""The rows and columns that a sheet can have, and the characters of a cell."""

STYLES = "xl/styles.xml"
"""Where a workbook keeps its styles."""


@dataclasses.dataclass(frozen=True)
class BadCell:
    """A cell that cannot be used: `fault` says where it stands and why; `shown` is what a table shows there."""

    fault: str
    shown: str = ""

    def __str__(self) -> str:
        return self.shown


def read_cells(path: str, data: bytes, name: str, header: bool) -> tuple[Iterator[tuple[int, list[Any]]], list[str]]:
    """The cells of each row of a sheet, with the row's number; and remarks on what is read.

    A cell is a text, a number, a truth value, a date, a BadCell or None. Empty cells at the end of a row are left out
    beyond the width of the first row that is not empty; so are BadCells there. Rows of a merged range have the value of
    its first cell.

    `name` is the sheet's; "": the first that is not hidden. With a `header` the first row names the columns; it is no
    example, even if its cells are merged with others.
    InputError if `data` is not a workbook, is damaged, holds more than MOST_BYTES, or has no such sheet.
    """
    with _opened(path, data) as book:
        from txl_tf.data.tables.sheets import SheetReader

        sheet = _sheet(path, book, name)
        found = SheetReader(sheet)
        found.spread_merged(header)
        others = [one for one in book.worksheets if one is not sheet]
        remarks = [f"sheet {sheet.title!r} is read, for {_listed(others)} give --sheet"] if others else []
        if hidden := found.hidden:
            shown = ", ".join(map(str, hidden[:5])) + (", .." if len(hidden) > 5 else "")
            remarks.append(f"{counted(len(hidden), 'hidden row')} read, too ({shown})")
        return _padded(found.rows), remarks


def _padded(rows: Mapping[int, Mapping[int, Any]]) -> Iterator[tuple[int, list[Any]]]:
    width = 0
    for number in range(1, max(rows, default=0) + 1):
        row = rows.get(number, {})
        cells = [row.get(column) for column in range(1, max(row, default=0) + 1)]
        while len(cells) > width and (cells[-1] in (None, "") or (width and isinstance(cells[-1], BadCell))):
            cells.pop()
        width = width or len(cells)
        yield number, cells + [None] * (width - len(cells))


def with_columns(path: str, data: bytes, name: str, added: Mapping[int, Sequence[Any]], own: int = 0) -> bytes:
    """A workbook with further columns in a sheet, after all its columns. All else stays as it is.

    `path`, `data` and `name` are those of `read_cells`, `added` {number of a row: the cells to add to it}. Numbers with
    a fraction are shown with two digits after the point, but for the first `own` of the columns; cells hold them
    exactly. InputError if a text is longer than a cell can hold, or the sheet has no room.
    """
    with _opened(path, data) as book:
        from txl_tf.data.tables.sheets import SheetReader, SheetWriter, StyleWriter

        sheet = _sheet(path, book, name)
        found = SheetReader(sheet)
        place = sheet._worksheet_path
    first = max((max(row) for row in found.rows.values()), default=0) + 1
    require_room(path, max(added, default=0), first - 1 + max(map(len, added.values()), default=0))
    for number, values in added.items():
        for value in values:
            if isinstance(value, str) and len(value) > MOST_CHARACTERS:
                raise InputError(
                    f"{path}: row {number} has a text of {len(value):,} characters, and a cell of .xlsx holds "
                    f"{MOST_CHARACTERS:,}: give a name that ends in .csv"
                )
    merged = [one.ref for one in found.merged_cells.mergeCell] if found.merged_cells else []
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        rewritten, style = {}, None
        if STYLES in old.namelist():
            writer = StyleWriter(styles := io.StringIO())
            xml.sax.parse(io.BytesIO(old.read(STYLES)), writer)
            rewritten, style = {STYLES: styles.getvalue()}, (writer.number, first + own)
        for member in old.infolist():
            if member.filename == place:
                with old.open(member) as source, new.open(place, "w") as target:
                    text = io.TextIOWrapper(target, "utf-8", newline="")
                    xml.sax.parse(source, SheetWriter(text, first, added, merged, style))
                    text.close()
            else:
                new.writestr(member, rewritten.get(member.filename) or old.read(member))
    return file.getvalue()


def new_workbook(path: str, rows: Sequence[Sequence[Any]], own: int = 0) -> bytes:
    """A workbook with these rows of cells; `own`, and InputError with `path`, as `with_columns`."""
    empty = io.BytesIO()
    required("openpyxl", path).Workbook().save(empty)
    return with_columns(path, empty.getvalue(), "", dict(enumerate(rows, 1)), own)


def require_room(path: str, rows: int, columns: int) -> None:
    """Raises InputError if a sheet has no room for this number of rows, its first one included, or columns."""
    for count, most, unit in ((rows, MOST_ROWS, "row"), (columns, MOST_COLUMNS, "column")):
        if count > most:
            raise InputError(
                f"{path} would have {counted(count, unit)}, and a sheet of .xlsx has at most {most:,}: give a name "
                "that ends in .csv"
            )


@contextlib.contextmanager
def _opened(path: str, data: bytes) -> Iterator[Workbook]:
    """A workbook for reading. Its errors become InputErrors, also in the block."""
    openpyxl = required("openpyxl", path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MOST_BYTES:
            raise InputError(f"{path} is too large for a workbook to read ({size:,} bytes): save it as CSV (UTF-8)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what openpyxl leaves out
            yield openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except InputError:
        raise
    except Exception as error:  # openpyxl and its XML reader raise errors of many kinds
        raise InputError(
            f"{path} is not a workbook that can be read ({one_line(error)}): save it again, or as CSV (UTF-8)"
        ) from error


def _sheet(path: str, book: Workbook, name: str) -> Any:
    """The sheet of a name, or the first that is not hidden."""
    for sheet in book.worksheets:
        if sheet.title.casefold() == name.casefold() if name else sheet.sheet_state == "visible":
            return sheet
    there = _listed(book.worksheets)
    raise InputError(
        f"{path} has no sheet {name!r} but {there}: correct --sheet"
        if name
        else f"{path} has only hidden sheets, {there}: name one with --sheet"
    )


def _listed(sheets: Sequence[Any]) -> str:
    names = [repr(one.title) + (" (hidden)" if one.sheet_state != "visible" else "") for one in sheets]
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")

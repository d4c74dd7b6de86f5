"""The XML of a workbook's sheet: its cells, and the same XML with further cells. It needs openpyxl."""

from __future__ import annotations

import io
import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import XMLGenerator, escape
from xml.sax.xmlreader import AttributesImpl

from openpyxl.utils.cell import coordinate_to_tuple, get_column_letter, range_boundaries
from openpyxl.utils.escape import unescape
from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

from txl_tf.data.tables.workbooks import MOST_COLUMNS, MOST_ROWS, BadCell

_NEEDS_ESCAPE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


class SheetReader(WorkSheetParser):
    """The cells that hold anything in a sheet of a workbook, which was opened with read_only=True, data_only=True.

    Attributes:
        rows: {number of a row: {number of a column: value}}, in order. A value is a text, a number, a truth value, a
            date or a BadCell.
    """

    def __init__(self, sheet: Any):
        book = sheet.parent
        with sheet._get_source() as source:
            super().__init__(
                source, sheet._shared_strings, True, book.epoch, book._date_formats, book._timedelta_formats
            )
            self.rows: dict[int, dict[int, Any]] = {}
            for number, cells in self.parse():
                found = {cell["column"]: cell["value"] for cell in cells if cell["value"] is not None}
                if found:
                    self.rows.setdefault(number, {}).update(found)

    def parse_cell(self, element: Any) -> dict[str, Any]:
        """openpyxl's cell, with a BadCell as the value of an error and of a formula whose value is not stored."""
        cell = super().parse_cell(element)
        value = cell["value"]
        if cell["data_type"] == "e":
            cell["value"] = BadCell(f"{_place(cell)} has the error {value}: correct the cell", str(value))
        elif isinstance(value, str):
            cell["value"] = unescape(value)
        elif value is None and element.find(FORMULA_TAG) is not None:
            remedy = "open the workbook in a spreadsheet program and save it"
            lost = BadCell(f"{_place(cell)} has a formula without a stored value: {remedy}")
            cell["value"] = "" if cell["data_type"] == "str" else lost
        return cell

    def spread_merged(self, header: bool) -> None:
        """Gives each row of a merged range the value of its first cell, in the first column.

        Rows without content of their own stay so. With a header, ranges that begin in the first row stay as they are.
        """
        numbers, spread = sorted(self.rows), []
        for merged in self.merged_cells.mergeCell if self.merged_cells else ():
            left, top, right, bottom = range_boundaries(merged.ref)
            value = self.rows.get(top, {}).get(left)
            for number in numbers[bisect_left(numbers, top) : bisect_right(numbers, bottom)]:
                row = self.rows[number]
                for column in [column for column in row if left <= column <= right]:
                    if (number, column) != (top, left):
                        del row[column]  # a cell that is covered
                if number > top and value is not None and not (header and top == numbers[0]):
                    spread.append((number, left, value))
        own = {number for number, row in self.rows.items() if row}
        for number, column, value in spread:
            if number in own:
                self.rows[number][column] = value
        self.rows = {number: self.rows[number] for number in numbers if self.rows[number]}

    @property
    def hidden(self) -> list[int]:
        """The numbers of the rows with content that are hidden."""
        hidden = {int(number) for number, row in self.row_dimensions.items() if row.get("hidden") in ("1", "true")}
        return sorted(hidden & self.rows.keys())


def _place(cell: Mapping[str, Any]) -> str:
    return f"{get_column_letter(cell['column'])}{cell['row']}"


class StyleWriter(XMLGenerator):
    """A handler for `xml.sax` that copies the XML of a workbook's styles, with one more: numbers shown as 0.90.

    Attributes:
        number: of that style.
    """

    def __init__(self, file: io.TextIOBase):
        super().__init__(file, "utf-8", short_empty_elements=True)
        self.number, self._inside = 0, False

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        """Copies the start of an element, and counts the styles of cells."""
        kind, given = name.rpartition(":")[2], dict(attrs)
        self.number += self._inside and kind == "xf"
        if kind == "cellXfs":
            self._inside = True
            given.pop("count", None)
        super().startElement(name, AttributesImpl(given))

    def endElement(self, name: str) -> None:
        """Copies the end of an element, after the new style, which stands last."""
        if name.rpartition(":")[2] == "cellXfs":
            self._inside, xf = False, f"{name.removesuffix('cellXfs')}xf"
            first = dict.fromkeys(("fontId", "fillId", "borderId", "xfId"), "0")
            super().startElement(xf, AttributesImpl({"numFmtId": "2", "applyNumberFormat": "1"} | first))  # 2 is 0.00
            super().endElement(xf)
        super().endElement(name)


class SheetWriter(XMLGenerator):
    """A handler for `xml.sax` that copies the XML of a sheet, with further cells in its rows.

    Merged ranges that cover columns of the new cells are merged no longer.

    Args:
        file: gets the XML.
        first: the number of the new cells' first column.
        rows: {number of a row: the values of its new cells; None: the cell stays as it is}.
        merged: the merged ranges of the sheet, such as "B2:C4".
        style: (number, column): the style of new numbers with a fraction from this column on; None: no style.
    """

    def __init__(
        self,
        file: io.TextIOBase,
        first: int,
        rows: Mapping[int, Sequence[Any]],
        merged: Sequence[str],
        style: tuple[int, int] | None,
    ):
        super().__init__(file, "utf-8", short_empty_elements=True)
        cells = {number: dict(enumerate(values, first)) for number, values in sorted(rows.items())}
        self._rows = {n: {c: value for c, value in row.items() if value is not None} for n, row in cells.items()}
        last = max((column for row in cells.values() for column in row), default=0)
        bounds = {ref: range_boundaries(ref) for ref in merged}
        self._split = {ref for ref, (left, _, right, _) in bounds.items() if right >= first and left <= last}
        self._style = style
        self._all_split = len(self._split) == len(bounds)
        self._row = self._column = 0
        self._in_rows = False
        self._left_out = 0  # how many elements are open, from the one on that is left out

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        """Copies the start of an element, after the new rows and cells that stand before it."""
        kind = name.rpartition(":")[2]
        given = dict(attrs)
        if self._in_rows and kind == "row":
            self._row, self._column = int(given.get("r", self._row + 1)), 0
            self._write_rows(name, self._row)
            if self._row in self._rows:
                given.pop("spans", None)  # the columns that it has, for faster reading
        elif self._in_rows and kind == "c":
            self._column = coordinate_to_tuple(given["r"])[1] if "r" in given else self._column + 1
            self._write_cells(name, self._column)
            if self._column in (row := self._rows.get(self._row, {})):
                self._write_cell(name, self._row, self._column, row.pop(self._column), given.get("s"))
                self._left_out += 1
                return
        if (
            self._left_out
            or kind == "dimension"  # it may be missing, and would be wrong
            or (kind == "mergeCells" and self._all_split)
            or (kind == "mergeCell" and given["ref"] in self._split)
        ):
            self._left_out += 1
            return
        if kind == "mergeCells":
            given.pop("count", None)
        self._in_rows |= kind == "sheetData"
        super().startElement(name, AttributesImpl(given))

    def endElement(self, name: str) -> None:
        """Copies the end of an element, after the new cells that stand last."""
        if self._left_out:
            self._left_out -= 1
            return
        prefix, _, kind = name.rpartition(":")
        prefix += ":" if prefix else ""
        if self._in_rows and kind == "row":
            self._write_cells(f"{prefix}c", MOST_COLUMNS + 1)
            self._rows.pop(self._row, None)
        elif kind == "sheetData":
            self._write_rows(f"{prefix}row", MOST_ROWS + 1)
            self._in_rows = False
        super().endElement(name)

    def characters(self, content: str) -> None:
        """Copies text. A carriage return as it stands would be read as a line feed."""
        if not self._left_out:
            super().ignorableWhitespace(escape(content, {"\r": "&#13;"}))

    def _write_rows(self, name: str, before: int) -> None:
        """Writes the new rows that the sheet does not have, before the row of a number."""
        for number in list(itertools.takewhile(lambda number: number < before, self._rows)):
            super().startElement(name, AttributesImpl({"r": str(number)}))
            cell = name.removesuffix("row") + "c"
            for column, value in self._rows.pop(number).items():
                self._write_cell(cell, number, column, value)
            super().endElement(name)

    def _write_cells(self, name: str, before: int) -> None:
        """Writes the new cells of this row before a column."""
        row = self._rows.get(self._row, {})
        for column in [column for column in row if column < before]:
            self._write_cell(name, self._row, column, row.pop(column))

    def _write_cell(self, name: str, row: int, column: int, value: Any, style: str | None = None) -> None:
        """Writes a cell; a text stays a text, even "=1+1"."""
        kind, prefix = "n", name.removesuffix("c")
        if isinstance(value, bool):
            kind, value = "b", int(value)
        elif not isinstance(value, (int, float)) or not math.isfinite(value):
            kind = "inlineStr"
            value = _NEEDS_ESCAPE.sub(lambda found: f"_x{ord(found[0]):04X}_", str(value))
        elif self._style and isinstance(value, float) and column >= self._style[1]:
            style = style or str(self._style[0])
        attributes = {"r": f"{get_column_letter(column)}{row}", "t": kind} | ({"s": style} if style else {})
        super().startElement(name, AttributesImpl(attributes))
        inner = [("v", {})] if kind != "inlineStr" else [("is", {}), ("t", {"xml:space": "preserve"})]
        for tag, found in inner:
            super().startElement(prefix + tag, AttributesImpl(found))
        super().characters(str(value))
        for tag, _ in reversed(inner):
            super().endElement(prefix + tag)
        super().endElement(name)

"""The XML of a workbook's sheet: its cells, and the same XML with further cells. It needs openpyxl."""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from openpyxl.utils.cell import coordinate_to_tuple, get_column_letter, range_boundaries
from openpyxl.utils.escape import unescape
from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

from txl_tf.data.tables.workbooks import BadCell

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


def with_style(styles: bytes) -> tuple[bytes, int]:
    """The XML of a workbook's styles with one more, which shows numbers as 0.90; and the number of that style."""
    text = styles.decode("latin-1")  # all bytes as they are
    found = re.search(r"<((?:\w+:)?)cellXfs\b[^>]*>(.*?)(?=</\1cellXfs>)", text, re.DOTALL)
    if not found:
        return styles, 0
    prefix, there = found.groups()
    new = f'<{prefix}xf numFmtId="2" applyNumberFormat="1" fontId="0" fillId="0" borderId="0" xfId="0"/>'  # 2 is 0.00
    text = f"{text[: found.start()]}<{prefix}cellXfs>{there}{new}{text[found.end() :]}"
    return text.encode("latin-1"), len(re.findall(rf"<{prefix}xf\b", there))


def with_cells(sheet: bytes, first: int, rows: Mapping[int, Sequence[Any]], style: int, own: int) -> bytes:
    """The XML of a sheet with further cells in its rows. Merged ranges across their columns are merged no longer.

    Args:
        first: the number of the new cells' first column.
        rows: {number of a row: the values of its new cells; None: the cell stays as it is}.
        style: the number of the style of new numbers with a fraction, but for the first `own` of the columns; 0: none.
    """
    text = sheet.decode("latin-1")  # all bytes as they are; new cells have references in place of other letters
    head, prefix, is_empty, rest = re.split(r"<((?:\w+:)?)sheetData\b[^>]*?(/?)>", text, maxsplit=1)
    inner, rest = ("", rest) if is_empty else re.split(rf"</{prefix}sheetData\s*>", rest, maxsplit=1)
    new = {n: {c: value for c, value in enumerate(cells, first) if value is not None} for n, cells in rows.items()}
    last = max((column for cells in new.values() for column in cells), default=0)

    def with_new(number: int, attributes: str, content: str) -> tuple[int, str]:
        cells, column = dict[int, str](), 0
        for cell in _elements(prefix, "c").finditer(content):
            place = _attribute(cell[0], "r")
            column = coordinate_to_tuple(place)[1] if place else column + 1
            cells[column] = cell[0]
        for column, value in new.pop(number).items():
            usual = str(style) if style and isinstance(value, float) and column >= first + own else ""
            place = f"{get_column_letter(column)}{number}"
            cells[column] = _cell(prefix, place, value, _attribute(cells.get(column, ""), "s") or usual)
        more = _elements(prefix, "c").sub("", content)
        return number, f"<{prefix}row{attributes}>{''.join(cells[c] for c in sorted(cells))}{more}</{prefix}row>"

    found, number = list[tuple[int, str]](), 0
    for row in _elements(prefix, "row").finditer(inner):
        number = int(_attribute(row[0], "r") or number + 1)
        attributes = re.sub(r"\sspans=[\"'][^\"']*[\"']", "", row[1])  # the columns that it has, for faster reading
        found.append(with_new(number, attributes, row[2] or "") if new.get(number) else (number, row[0]))
    found += [with_new(number, f' r="{number}"', "") for number, cells in list(new.items()) if cells]
    inner = "".join(row for _, row in sorted(found, key=lambda one: one[0]))

    def still_merged(ranges: re.Match[str]) -> str:
        kept = ""
        for one in _elements(prefix, "mergeCell").finditer(ranges[2]):
            left, _, right, _ = range_boundaries(_attribute(one[0], "ref"))
            kept += "" if right >= first and left <= last else one[0]
        return kept and f"<{prefix}mergeCells>{kept}</{prefix}mergeCells>"

    head = _elements(prefix, "dimension").sub("", head)  # it would be wrong
    rest = _elements(prefix, "mergeCells").sub(still_merged, rest, count=1)
    return f"{head}<{prefix}sheetData>{inner}</{prefix}sheetData>{rest}".encode("latin-1")


@functools.cache
def _elements(prefix: str, name: str) -> re.Pattern[str]:
    """Finds XML elements that are not inside one another; groups are their attributes and content."""
    return re.compile(rf"<{prefix}{name}((?:\s[^>]*?)?)(?:/>|>(.*?)</{prefix}{name}\s*>)", re.DOTALL)


def _attribute(element: str, name: str) -> str:
    found = re.match(rf"<[^>]*?\s{name}\s*=\s*[\"']([^\"'>]*)", element)
    return found[1] if found else ""


def _cell(prefix: str, place: str, value: Any, style: str) -> str:
    """A cell as XML; a text stays a text, even "=1+1"."""
    kind = "n"
    if isinstance(value, bool):
        kind, value = "b", int(value)
    elif not isinstance(value, (int, float)) or not math.isfinite(value):
        kind = "inlineStr"
        text = escape(_NEEDS_ESCAPE.sub(lambda found: f"_x{ord(found[0]):04X}_", str(value)))
        value = f'<{prefix}t xml:space="preserve">{text.encode("ascii", "xmlcharrefreplace").decode()}</{prefix}t>'
    inner = f"{prefix}is" if kind == "inlineStr" else f"{prefix}v"
    style = f' s="{style}"' if style else ""
    return f'<{prefix}c r="{place}"{style} t="{kind}"><{inner}>{value}</{inner}></{prefix}c>'

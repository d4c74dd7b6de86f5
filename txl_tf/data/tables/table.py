"""A table: rows of named values, whatever file or value of Python they come from."""

from __future__ import annotations

import collections
import dataclasses
import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.errors import Faults, InputError

_ACCEPTED = (None, "accept")
_ANSWERS = (*_ACCEPTED, "reject", "ignore")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as its file has it.

    Attributes:
        names: of the columns.
        rows: the number of each row's line, and its values by the names of columns.
        empty: the lines of rows without any content, which are not among `rows`.
        header: how messages name the place of the columns' names.
        header_line: the number of the line with the columns' names; 0: there is none.
        separator: of the columns of a CSV or TSV file.
        encoding: of the file, by Python's name.
        name: of the file.
        unit: what its rows are called: line, row or entry.
        places: where rows stand that are not told by their number, such as the names of files in a folder.
        form: what kind of file it is, in words.
        remarks: what the user should know of how it was read, such as "200 comments left out".
    """

    names: list[str]
    rows: list[tuple[int, dict[str, Any]]]
    empty: list[int]
    header: str
    header_line: int = 0
    separator: str = ","
    encoding: str = "utf-8"
    name: str = "the table"
    unit: str = "row"
    places: dict[int, str] = dataclasses.field(default_factory=dict)
    form: str = "table"
    remarks: tuple[str, ...] = ()

    def accepted(self) -> Table:
        """The table without the rows that a person rejected or ignored, as Prodigy's `answer` says."""
        if "answer" not in self.names or not all(values.get("answer") in _ANSWERS for _, values in self.rows):
            return self
        rows = [row for row in self.rows if row[1].get("answer") in _ACCEPTED]
        if len(rows) == len(self.rows):
            return self
        said = f"{counted(len(self.rows) - len(rows), 'row')} left out, which nobody accepted"
        return dataclasses.replace(self, rows=rows, remarks=(*self.remarks, said))

    def where(self, line: int) -> str:
        """The file and place of a row, for messages."""
        return self.places.get(line, f"{self.name}, {self.unit} {line}")

    def understood(self, *parts: str) -> str:
        """A line for users: the file's form, remarks, and further parts, which say what its rows hold."""
        return ", ".join([self.form, *self.remarks]) + ": " + ", ".join(parts)


def line_of(where: str) -> int:
    """The number of a row's line, from its place as `Table.where` says it."""
    return int(where.rpartition(" ")[2])


Item = TypeVar("Item")


class Rows(list[Item]):
    """The rows, texts or questions that a task reads from a table.

    Attributes:
        understood: what the file was taken for.
        remarks: notes for the user, as sentences.
        table: the table; None: one of its rows has several items.
        columns: how it was read, with the scheme of tags that was found; None: as it was to be read.
    """

    understood: str = ""
    remarks: tuple[str, ...] = ()
    table: Table | None = None
    columns: Columns | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A file to read as a table.

    Attributes:
        path, data: its name, and its content, unpacked; a folder has none.
        end: the end of its name in small letters.
        columns: how it is read.
        faults: gets the faults of single rows, which are skipped.
        labelled: whether rows must have labels.
        tags: the tags that are known, if rows of words are wanted; None: rows of texts are.
        text, encoding: its content as text, and the encoding; "" for other files.
    """

    path: str
    end: str
    data: bytes
    columns: Columns
    faults: Faults
    labelled: bool = True
    tags: Collection[str] | None = None
    text: str = ""
    encoding: str = ""


def content(value: Any) -> bool:
    """Whether a cell holds anything but spaces."""
    return value is not None and (not isinstance(value, str) or bool(value.strip()))


def of_records(path: str, records: list[tuple[int, dict[str, Any]]]) -> Table:
    """A table of objects, each with its line; the names are those of all objects."""
    names = list(dict.fromkeys(name for _, values in records for name in values))
    empty = {line for line, values in records if not any(map(content, values.values()))}
    rows = [(line, values) for line, values in records if line not in empty] if empty else records
    return Table(names, rows, sorted(empty), path, name=path)


def joined(path: str, tables: Sequence[Table]) -> Table:
    """The rows of several tables as those of one, counted from 1 on."""
    names = list(dict.fromkeys(name for table in tables for name in table.names))
    rows: list[tuple[int, dict[str, Any]]] = []
    empty: list[int] = []
    before = 0
    for table in tables:
        rows += [(before + line, values) for line, values in table.rows]
        empty += [before + line for line in table.empty]
        before = max([before, *(line for line, _ in rows[-1:]), *empty[-1:]])
    return dataclasses.replace(tables[0], names=names, rows=rows, empty=empty, header=path, name=path)


def required(package: str, path: str) -> Any:
    """A package of the extra `tables`, openpyxl or pyarrow, which a file needs; InputError if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        instead = "JSON lines" if package == "pyarrow" else "CSV (UTF-8)"
        raise InputError(
            f"{path} needs the package {package}: run python -m pip install 'txl_tf[tables]', or save the table as "
            f"{instead}"
        ) from error


def refuse_twice(names: Sequence[str], header: str) -> None:
    """Raises InputError if two columns have one name."""
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if "" in twice:
        raise InputError(f"{header} has several columns without a name: name them, or remove them if they are empty")
    if twice:
        raise InputError(f"{header} names the column {twice[0]!r} twice: rename one")


def has_names(row: Mapping[str, Any]) -> bool:
    """Whether a row holds the columns' names, as in files that were joined. In a single column they may be a text."""
    return len(row) > 1 and all(isinstance(one, str) and one.strip("\ufeff") == name for name, one in row.items())


def other_width(where: str, values: Sequence[Any], names: Sequence[str], has: str) -> str:
    """The fault of a row that has more or fewer cells than there are names; `has` says where these are."""
    remedy = "correct the row"
    if len(values) == len(names) + 1 and str(values[0]).isdecimal():
        remedy = "if its first column has the rows' numbers, as R writes them, name that column, too"
    return f"{where} has {counted(len(values), 'column')}, but {has}: {remedy}"


def of_cells(path: str, cells: Iterator[tuple[int, list[Any]]], columns: Columns, faults: Faults) -> Table:
    """The values of each row by their column's name, which the first row has, or their number."""
    empty: list[int] = []
    names: list[str] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    header, header_line, width = "", 0, 0
    for line, values in cells:
        if not any(map(content, values)):
            empty.append(line)
            continue
        if not header:
            empty.clear()
            header = f"{path}, line {line}"
            named = range(1, len(values) + 1) if columns.no_header else values
            names = ["" if name is None else str(name) for name in named]  # a workbook's may be numbers or dates
            if not "".join(names[-2:]).strip():  # empty columns, as spreadsheet programs add them
                width = len(names)
                while not names[-1].strip():
                    names.pop()
            refuse_twice(names, header)
            if not columns.no_header:
                header_line = line
                continue
        if len(values) == width and not any(map(content, values[len(names) :])):
            values = values[: len(names)]
        if len(values) != len(names):
            has = f"{header.rpartition(', ')[2]} has {len(names)}{' with names' if width else ''}"
            faults.add(other_width(f"{path}, line {line}", values, names, has), line)
        else:
            rows.append((line, dict(zip(names, values, strict=True))))
    last = rows[-1][0] if rows else 0
    return Table(names, rows, [line for line in empty if line < last], header, header_line, name=path)

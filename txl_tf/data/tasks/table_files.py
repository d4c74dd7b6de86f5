"""The files that hold tables and questions: their text, and their rows by the names of columns.

The first line of a TSV or CSV file names the columns, unless `Columns.no_header`. TSV has no quotes, as in GLUE's
files: a quotation mark is a character of the text. Local files need no TensorFlow, so a command can report faults
before it loads.
"""

from __future__ import annotations

import codecs
import collections
import csv
import dataclasses
import gzip
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from txl_tf.counted import counted
from txl_tf.data.tables.workbooks import read_cells
from txl_tf.data.text.archives import named_damage
from txl_tf.errors import Faults, InputError, one_line
from txl_tf.settings.groups import Group, setting
from txl_tf.storage.local_files import check_encoding, functions_for, read_local
from txl_tf.storage.strict_json import Fields, check_record, parse_json

COLUMNS_FILE = "columns.json"
"""The file of a model_dir that has the columns of the table that the model learned from."""

SEPARATORS = (",", ";", "\t", "|")
"""The separators that are tried for a file if none is given."""


@dataclasses.dataclass(frozen=True)
class Columns(Group):
    """How a table is read: its columns, and the form of its file."""

    heading: ClassVar[str] = "data"

    text_column: str = setting("text", "the table's column of the text, or of the first text of a pair")
    text_b_column: str = setting("text_b", "its column of the second text, for pairs of texts")
    label_column: str = setting("label", "its column of the label: a class, or a number for regression")
    label_separator: str = setting("|", "separates the labels of a text in one cell, for --task=multi_label")
    sheet: str = setting("", "the sheet of a workbook; empty: the first that is not hidden")
    no_header: bool = setting(False, "line 1 has no names: columns have numbers, such as --text_column=4")
    delimiter: str = setting("", "separates the columns, one character or tab; empty: found from line 1")
    encoding: str = setting("", "of the file, such as cp1252; empty: UTF-8, or UTF-16 if the file begins like one")
    skip_empty: bool = setting(False, "skip rows without text, and count them")

    def __post_init__(self) -> None:
        """Refuses one column for two uses, and unknown forms."""
        super().__post_init__()
        names = ("text_column", "text_b_column", "label_column")
        for i, name in enumerate(names):
            for other in names[:i]:
                if getattr(self, name) == getattr(self, other):
                    raise InputError(
                        f"--{name} and --{other} are both {getattr(self, name)!r}: name a different column for each"
                    )
        if len(self.separator) > 1:
            raise InputError(f"--delimiter={self.delimiter} must be one character, or tab")
        if not self.label_separator:
            raise InputError("--label_separator must not be empty: give what separates the labels of a cell, such as |")
        if self.encoding:
            check_encoding(self.encoding)
        if self.no_header:
            for name in names:
                if self.named(name) and not re.fullmatch("[1-9][0-9]*", getattr(self, name)):
                    raise InputError(
                        f"--{name}={getattr(self, name)} must be a number from 1 on, since there is --no_header"
                    )
            if not self.named("text_column"):
                raise InputError("--no_header needs the numbers of the columns: give --text_column=1 or the like")

    @classmethod
    def of(cls, given: Columns | Mapping[str, Any] | None) -> Columns:
        """Columns from a dict of its fields, or InputError; text, text_b and label stand for text_column and so on."""
        return given if isinstance(given, Columns) else cls(**cls.fields_of(given or {}))

    @classmethod
    def fields_of(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """A dict as for `of`, with the fields' full names."""
        known = [field.name for field in dataclasses.fields(cls)]
        found = {f"{name}_column" if f"{name}_column" in known else name: value for name, value in given.items()}
        if unknown := sorted(set(found) - set(known)):
            raise InputError(f"columns has no {unknown[0]!r}: give text, text_b or label, or {', '.join(known)}")
        return found

    @property
    def names(self) -> dict[str, Any]:
        """The fields that files of one kind share: columns, and how they are named and filled."""
        names = ("text_column", "text_b_column", "label_column", "label_separator", "no_header")
        return {name: getattr(self, name) for name in names}

    @property
    def separator(self) -> str:
        """The character of `delimiter`; "" if it is to be found."""
        return "\t" if self.delimiter in ("tab", "\\t") else self.delimiter

    def named(self, name: str) -> bool:
        """Whether a field differs from its default."""
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)

    def require_no_table(self, what: str) -> None:
        """Raises InputError if a field for tables was set, since `what` is read instead."""
        for field in dataclasses.fields(self):
            if field.name != "encoding" and self.named(field.name):
                raise InputError(f"--{field.name} is for tables, and this task reads {what}: omit it")


def table_columns(model_dir: str, given: Columns | Mapping[str, Any] | None, labelled: bool) -> Columns:
    """How a table is read: with the given columns, and otherwise those of the table that a model learned from.

    `given` is Columns with nothing left open, or a dict as for `Columns.of`. Only a `labelled` table needs the label's
    column.

    Raises:
        InputError: a field is unknown or not possible, or the model's columns cannot be read.
    """
    if isinstance(given, Columns):
        return given
    path, remedy = os.path.join(model_dir, COLUMNS_FILE), "copy the model_dir again"
    own = Columns.fields_of(given or {})
    known: dict[str, Any] = {}
    fields: Fields = {name: type(value) for name, value in Columns().names.items()}
    if functions_for(path).exists(path):
        found = check_record(parse_json(read_data(path), path, remedy), path, fields, remedy)
        known = {name: found[name] for name in fields}  # a newer version's file may have more
    if not labelled and Columns().label_column not in (known | own).values():
        known.pop("label_column", None)
    return Columns(**known | own)


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
        remarks: what the user should know of how it was read, such as the sheet of a workbook.
    """

    names: list[str]
    rows: list[tuple[int, dict[str, Any]]]
    empty: list[int]
    header: str
    header_line: int = 0
    separator: str = ","
    encoding: str = "utf-8"
    remarks: tuple[str, ...] = ()


def kind_of(path: str) -> str:
    """The end of a table's name in small letters, without .gz: csv, tsv, jsonl, xlsx or another."""
    return path.lower().removesuffix(".gz").rpartition(".")[2]


def read_data(path: str) -> bytes:
    """The bytes of a file, local or gs://, unpacked if its name ends in .gz; InputError if that is not possible."""
    if "://" in path:
        from txl_tf.storage.files import read_bytes  # here: it loads TensorFlow

        data = read_bytes(path)
    else:
        data = read_local(path)
    if path.endswith(".gz"):
        with named_damage(path):
            data = gzip.decompress(data)
    return data


def read_file_text(path: str, encoding: str = "") -> str:
    """The text of a file, local or gs://, unpacked if its name ends in .gz; InputError if that is not possible.

    Without an encoding it is UTF-8, or UTF-16 or UTF-32 if the file begins with its byte order mark.
    """
    return _decoded(path, read_data(path), encoding, "convert the file to UTF-8")[0]


def _decoded(path: str, data: bytes, encoding: str, remedy: str) -> tuple[str, str]:
    """The text of a file's bytes, and its encoding; as `read_file_text`."""
    for begin, kind in _OTHER_KINDS.items():
        if data.startswith(begin):
            raise InputError(f"{path} {kind}")
    if not encoding:
        encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding).removeprefix("\ufeff"), encoding
    except UnicodeError as error:
        where, reason = path, one_line(error)
        if isinstance(error, UnicodeDecodeError):  # some of Python's codecs do not say where
            reason = error.reason
            if not path.endswith(".gz"):
                line = data[: error.start].count(b"\n") + 1
                where += f", line {line}"
        raise InputError(f"{where} is not {encoding.upper()} text ({reason}): {remedy}") from error


_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # first: the one of UTF-16 begins alike
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
_SHEET = "is a spreadsheet program's own file: save it there as CSV (UTF-8), and give that file"
_PARQUET = (
    "is a Parquet file: convert it to JSON lines, in Python with "
    "pandas.read_parquet(OLD).to_json(NEW, orient='records', lines=True)"
)
_OTHER_NAMES = {"xls": _SHEET, "ods": _SHEET, "parquet": _PARQUET}
_OTHER_KINDS = {b"PK\x03\x04": _SHEET, b"\xd0\xcf\x11\xe0": _SHEET, b"PAR1": _PARQUET}
"""Messages about files of other kinds, by the ends of their names and by their first bytes."""


def read_rows(path: str | Table, columns: Columns, faults: Faults) -> Table:
    """The rows of a file whose name ends in .tsv, .csv, .jsonl or .xlsx, or in one of these and .gz; or of a Table.

    `faults` gets the faults of single rows, which are skipped. InputError if the file cannot be read.
    """
    if isinstance(path, Table):
        return path
    kind = kind_of(path)
    if kind in _OTHER_NAMES:
        raise InputError(f"{path} {_OTHER_NAMES[kind]}")
    if kind == "xlsx":
        cells, remarks = read_cells(path, read_data(path), columns.sheet, not columns.no_header)
        return dataclasses.replace(_named(path, cells, columns, faults), remarks=tuple(remarks))
    if kind not in ("tsv", "csv", "jsonl"):
        raise InputError(
            f"{path}: give a table whose name ends in .tsv, .csv, .jsonl or .xlsx (or in one of these and .gz)"
        )
    remedy = "name its encoding, such as --encoding=cp1252 for many spreadsheet programs, or convert the file to UTF-8"
    text, encoding = _decoded(path, read_data(path), columns.encoding, remedy)
    if kind == "jsonl":
        if columns.no_header:
            raise InputError(f"{path} has names in every line, as JSON has: omit --no_header")
        found = list(json_lines(path, text, faults))
        names = list(dict.fromkeys(name for _, values in found for name in values))
        empty = {line for line, values in found if not any(_content(value) for value in values.values())}
        rows = [(line, values) for line, values in found if line not in empty] if empty else found
        return Table(names, rows, sorted(empty), path)
    first, named = 1, re.match('"?sep=(.)"?(\r\n|\r|\n)', text)  # spreadsheet programs name their separator so
    if named:
        first, text = 2, text[named.end() :]
    usual = "\t" if kind == "tsv" else ","
    separator = columns.separator or (named[1] if named else _separator(text, columns, usual))
    if kind == "tsv" and separator == "\t":
        cells = _cells_without_quotes(text, first)
    else:
        cells = _cells(path, text, first, separator, faults)
    return dataclasses.replace(_named(path, cells, columns, faults), separator=separator, encoding=encoding)


def json_lines(path: str, text: str, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their lines' numbers. Empty lines are skipped; others are faults."""
    for i, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {i}"
            with faults.noted(i):
                found = check_record(parse_json(line, where, "correct the line"), where, {}, "correct the line")
                yield i, found


def refuse_twice(names: Sequence[str], header: str) -> None:
    """Raises InputError if two columns have one name."""
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{header} names the column {twice[0]!r} twice: rename one")


def near_name(name: str, names: list[str]) -> str:
    """The one of `names` that differs from `name` only by case or spaces; "" if there is none."""
    return next((other for other in names if _plain(other) == _plain(name)), "")


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()


def _content(value: Any) -> bool:
    return value is not None and (not isinstance(value, str) or bool(value.strip()))


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


def _named(path: str, cells: Iterator[tuple[int, list[Any]]], columns: Columns, faults: Faults) -> Table:
    """The values of each row by their column's name, which the first row has, or their number."""
    empty: list[int] = []
    names: list[str] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    header, header_line, width = "", 0, 0
    for line, values in cells:
        if not any(map(_content, values)):
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
        if len(values) == width and not any(map(_content, values[len(names) :])):
            values = values[: len(names)]
        if len(values) != len(names):
            faults.add(
                f"{path}, line {line} has {counted(len(values), 'column')}, but {header.rpartition(', ')[2]} has "
                f"{len(names)}{' with names' if width else ''}: correct the row",
                line,
            )
        else:
            rows.append((line, dict(zip(names, values, strict=True))))
    last = rows[-1][0] if rows else 0
    return Table(names, rows, [line for line in empty if line < last], header, header_line)

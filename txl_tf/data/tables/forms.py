"""The forms of files: how each is told from the others, and its reader or the line that refuses it.

A file's first bytes tell its form, then its content, and its name last. All commands and Python read what is listed
here. Local files need no TensorFlow.
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import gc
import gzip
import io
import lzma
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from txl_tf.data.tables import arrow, conll, json_records
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.dataset_folders import local, part_files
from txl_tf.data.tables.delimited import read_delimited
from txl_tf.data.tables.encodings import decoded, read_data
from txl_tf.data.tables.table import Source, Table, has_names, joined, of_cells
from txl_tf.data.tables.workbooks import read_cells
from txl_tf.data.text.archives import named_damage
from txl_tf.errors import Faults, InputError
from txl_tf.storage.local_files import functions_for
from txl_tf.storage.strict_json import check_record, parse_json


class Form(NamedTuple):
    """A form of files.

    Attributes:
        name: for messages, such as "a PDF".
        begins: its first bytes; (): they do not tell it, since it is text.
        holds: bytes that a file with these first bytes also has.
        ends: of names that say it, where content does not.
        looks: whether a file of text is of this form, by its content.
        opens: opens a packed file.
        reads: its reader.
        remedy: what to do instead, where it is not read.
        help: what it holds, for the documentation.
    """

    name: str
    begins: tuple[bytes, ...] = ()
    holds: bytes = b""
    ends: tuple[str, ...] = ()
    looks: Callable[[Source], bool] | None = None
    opens: Callable[..., Any] = open
    reads: Callable[[Source], Table] | None = None
    remedy: str = ""
    help: str = ""


def _workbook(source: Source) -> Table:
    columns = source.columns
    cells, remarks = read_cells(source.path, source.data, columns.sheet, not columns.no_header)
    table = of_cells(source.path, cells, columns, source.faults)
    return dataclasses.replace(table, form="workbook", unit="line", remarks=tuple(remarks))


def _lines(source: Source) -> Table:
    lines = conll.lines_of(source.text)
    rows: list[tuple[int, dict[str, Any]]] = [(i, {"text": line}) for i, line in enumerate(lines, 1) if line.strip()]
    if source.tags:
        conll.refuse_joined(source.path, [(i, row["text"].split()) for i, row in rows[: conll.SOME]], source.tags)
    return Table(["text"], rows, [], source.path, name=source.path, unit="line", form="a text in each line")


def _is_annotated(source: Source) -> bool:
    found = _ANNOTATIONS.search(source.text[: 1 << 16])
    is_of_columns = found is not None and found[0].startswith("#")  # WebAnno's are a table, if one is named
    return found is not None and not (is_of_columns and source.columns.named("text_column"))


PACKED = (
    Form("gzip", (b"\x1f\x8b",), ends=("gz",), opens=gzip.open),
    Form("bzip2", (b"BZh",), ends=("bz2",), opens=bz2.open),
    Form("xz", (b"\xfd7zXZ\0",), ends=("xz",), opens=lzma.open),
)
"""Packed files, which are unpacked and then read."""

ARCHIVES = (
    Form("zstd", (b"\x28\xb5\x2f\xfd",)),
    Form("lz4", (b"\x04\x22\x4d\x18",)),
    Form("compress (.Z)", (b"\x1f\x9d",)),
    Form("7z", (b"7z\xbc\xaf\x27\x1c",)),
    Form("rar", (b"Rar!",)),
)
"""Archives that are not read."""

NOT_TEXT = (
    Form("a PDF", (b"%PDF",), remedy="save its text or table in a form that is read, such as CSV (UTF-8)"),
    Form("an image", (b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), remedy="give a file of text"),
    Form("PostScript", (b"%!PS",), remedy="save its text as plain text (UTF-8)"),
    Form("RTF", (b"{\\rtf",), remedy="save it as plain text (UTF-8)"),
    Form("a pickle", tuple(b"\x80" + bytes([n]) for n in range(2, 6)), remedy="save it as Parquet or JSON lines"),
    Form("a NumPy array", (b"\x93NUMPY",), remedy="save it as Parquet or JSON lines"),
    Form("a database of SQLite", (b"SQLite format 3",), remedy="save its table as CSV (UTF-8)"),
    Form("a pointer of Git LFS", (b"version https://git-lfs",), remedy="fetch the file itself with git lfs pull"),
)
"""Files of other programs."""
_ANNOTATIONS = re.compile(r'(?m)^(T\d+\t\S+ \d+ \d+[\t;]|\d+\|t\|.*\n\d+\|a\||#FORMAT=WebAnno|c=".*" \d+:\d+ .*\|\|t=)')
_PK, _OLE = (b"PK\x03\x04",), (b"\xd0\xcf\x11\xe0",)
_SHEET = "save it in the spreadsheet program as .xlsx or as CSV (UTF-8), and give that file"
_ZIP = Form("a zip archive or a document of an office program", _PK, remedy="unpack it, or save it as CSV (UTF-8)")
_NAMED = ("tsv", "tab", "csv", *json_records.ENDS)

TABLES = (
    Form("a workbook", _PK, b"xl/", ("xlsx",), reads=_workbook, help="rows of a sheet; row 1 has the columns' names"),
    Form("a document with a password", _OLE, "EncryptedPackage".encode("utf-16-le"), remedy="save it without one"),
    Form("an old workbook", _OLE, ends=("xls",), remedy=_SHEET),
    Form("an OpenDocument sheet", _PK, b"opendocument.spreadsheet", ("ods",), remedy=_SHEET),
    _ZIP,
    Form(
        "Parquet", arrow.PARQUET, ends=("parquet",), reads=arrow.read_arrow, help="columns with names; lists are lists"
    ),
    Form("Arrow", arrow.ARROW, ends=("arrow", "feather"), reads=arrow.read_arrow, help="the same; also Feather"),
    Form(
        "JSON",
        ends=json_records.ENDS,
        looks=lambda source: json_records.is_json(source.text),
        reads=json_records.read_json,
        help="an object in each line, one list of objects, or an object whose `data` is such a list",
    ),
    Form(
        "a file of annotations of brat, PubTator, WebAnno or i2b2",
        looks=_is_annotated,
        remedy="give the text with its spans as JSON lines, or its words and tags in CoNLL's format",
    ),
    Form(
        "fastText's lines",
        looks=lambda source: re.match(r"__label__[^\s,;]+[ \t]", source.text) is not None,
        remedy="give a table with the columns text and label, such as CSV",
    ),
    Form(
        conll.FORM,
        ends=conll.ENDS,
        looks=lambda source: source.end not in json_records.ENDS and conll.is_conll(source),
        reads=conll.read_conll,
        help="for tagging: a word and its tag in each line, in columns between tabs or spaces; an empty line after "
        "each text",
    ),
    Form(
        "TSV",
        ends=("tsv", "tab"),
        reads=lambda source: read_delimited(source, "\t"),
        help="columns between tabs, where quotes are letters; line 1 has their names",
    ),
    Form(
        "CSV",
        ends=("csv",),
        reads=lambda source: read_delimited(source, ","),
        help="columns between commas, semicolons, tabs or bars, with quotes; line 1 has their names",
    ),
    Form(
        "lines",
        looks=lambda source: source.tags is not None and not source.labelled and source.end not in _NAMED,
        reads=_lines,
        help="for predictions of tags: a text in each line",
    ),
)
"""Files of rows, in the order in which their content is tried."""
ENDS = tuple(end for form in TABLES if form.reads for end in form.ends)
"""The ends of the names of tables that are read."""


def kind_of(path: str) -> str:
    """The end of a file's name in small letters, without the end of a packed file: csv, tsv, jsonl, xlsx or another."""
    name = path.lower()
    for form in PACKED:
        name = name.removesuffix(f".{form.ends[0]}")
    return name.rpartition(".")[2]


def begins_like(data: bytes, *groups: tuple[Form, ...]) -> Form | None:
    """The form among these that a file's first bytes tell."""
    forms = (form for group in groups for form in group)
    return next((form for form in forms if form.begins and data.startswith(form.begins) and form.holds in data), None)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Python's collector of garbage stands still in the block or function, which makes many objects that stay."""
    runs = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if runs:
            gc.enable()


@without_collection()
def read_rows(
    path: str | Table, columns: Columns, faults: Faults, labelled: bool = True, tags: Collection[str] | None = None
) -> Table:
    """The rows of a file or folder, or of a Table.

    `path` is local, gs:// or hf://datasets/.., packed or not; or FOLDER/PART, see `dataset_folders`. Other arguments
    are those of Source. InputError if the file cannot be read, or has a form that is not read.
    """
    if isinstance(path, Table):
        return path.accepted() if labelled else path
    path = local(path)
    if files := part_files(path):
        return joined(path, [read_rows(file, columns, faults, labelled, tags) for file in files])
    if functions_for(path).isdir(path):
        return _read_folder(path, columns, faults)
    data = unpacked(path)
    form, source = _form_of(Source(path, kind_of(path), data, columns, faults, labelled, tags))
    if form is None:
        ends = ", ".join(f".{end}" for end in ENDS[:-1])
        raise InputError(f"{path}: give a table whose name ends in {ends} or .{ENDS[-1]} (or in one of these and .gz)")
    if form.reads is None:
        raise InputError(f"{path} is {form.name}: {form.remedy or 'unpack it'}")
    table = form.reads(source)
    if not columns.no_header and len(table.names) > 1:
        _refuse_headers_inside(table, faults)
    return table.accepted() if labelled else table


def _refuse_headers_inside(table: Table, faults: Faults) -> None:
    """Adds a fault for each row that holds the columns' names, as in files that were joined."""
    last = table.names[-1]
    for line, row in table.rows:
        if row.get(last) == last and has_names(row):
            faults.add(f"{table.where(line)} has the names of the columns again: remove it", line)


def read_text(path: str, encoding: str = "") -> str:
    """The text of a file, local or gs://, packed or not; InputError if that is not possible.

    Without an encoding it is UTF-8, or UTF-16 or UTF-32 if the file begins with its byte order mark.
    """
    data = unpacked(path)
    if form := begins_like(data, ARCHIVES, NOT_TEXT, TABLES):
        raise InputError(f"{path} is {form.name}, not text: {form.remedy or 'save it as plain text (UTF-8)'}")
    return decoded(path, data, encoding, "convert the file to UTF-8")[0]


def unpacked(path: str) -> bytes:
    """The content of a file, packed or not."""
    data = read_data(path)
    for _ in range(3):  # packed more often, it is an attack
        if form := begins_like(data, PACKED):
            with named_damage(path), form.opens(io.BytesIO(data)) as file:
                data = file.read()
    return data


def _form_of(source: Source) -> tuple[Form | None, Source]:
    """The form of a file, None if it is not known; and the Source with its text, if it is one."""
    named = next((form for form in TABLES if source.end in form.ends), None)
    told = begins_like(source.data, ARCHIVES, NOT_TEXT, TABLES)
    if told and not (told is _ZIP and named and named.begins):
        return told, source
    if named and named.begins:
        return named, source
    remedy = "name its encoding, such as --encoding={}, or convert the file to UTF-8"
    text, encoding = decoded(source.path, source.data, source.columns.encoding, remedy)
    source = dataclasses.replace(source, text=text, encoding=encoding)
    return next((form for form in TABLES if form.looks and form.looks(source)), named), source


def _read_folder(path: str, columns: Columns, faults: Faults) -> Table:
    """A row for each .txt or .json file of a folder and its sub-folders, in the order of RACE's numbers."""
    files, remedy = [], "a folder holds Parquet, Arrow or RACE's JSON; give other texts as one table, with their labels"
    for folder, names in sorted((folder.rstrip("/"), names) for folder, _, names in functions_for(path).walk(path)):
        own = (name for name in names if name.endswith((".txt", ".json")))
        files += [f"{folder}/{name}" for name in sorted(own, key=_numbered)]
    if not files:
        raise InputError(f"{path} has no file that is read: {remedy}")
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, file in enumerate(files, 1):
        with faults.noted():
            value = parse_json(decoded(file, read_data(file), columns.encoding, remedy)[0], file, remedy)
            rows.append((number, check_record(value, file, {}, remedy)))
    places = dict(enumerate(files, 1))
    return Table([], rows, [], path, name=path, places=places, form="RACE's folder", unit="file")


def _numbered(name: str) -> tuple[int, str]:
    """RACE's files are named by numbers."""
    stem = name.rsplit(".", 1)[0]
    return (int(stem), name) if stem.isdecimal() and stem.isascii() else (-1, name)

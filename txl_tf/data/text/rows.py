"""Texts in the rows of tables, read by groups of rows, so that memory does not grow with a file's size.

Parquet and Arrow files are read where they are. The texts of JSON lines, CSV and TSV are first extracted into files.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data.tables import json_records
from txl_tf.data.tables.arrow import Groups
from txl_tf.data.tables.dataset_folders import ENDS
from txl_tf.data.tables.delimited import QUOTED_HEADER, SEPARATOR_LINE, SEPARATORS, cells_of, cells_without_quotes
from txl_tf.data.tables.json_records import is_json, json_entries, json_lines
from txl_tf.data.tables.table import has_names, other_width, refuse_twice
from txl_tf.data.text.blocks import Piece, TextRules, by_split
from txl_tf.data.text.own_files import File
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import parse_json

USUAL = ("text", "sentence")
"""The columns of the text if none is named."""
END = ".rows"
"""The end of the names of files with a JSON string for each text."""
_NAMED = {"csv": "CSV", "tsv": "TSV", "tab": "TSV", "ipynb": ""}
_FIRST = 20  # rows that show which columns hold texts
_MARK = b"\xef\xbb\xbf"


def form_of(file: File) -> str:
    """ "CSV" or "TSV" by a file's name, "JSON lines" or "JSON" by its content; "": it is no table."""
    end = file.name.lower().rpartition(".")[2]
    if end in _NAMED:
        return _NAMED[end]
    with tf.io.gfile.GFile(file.path, "rb") as opened:
        begin = opened.read(1 << 12).removeprefix(_MARK).lstrip()
        if begin[:1] == b"[":
            if begin[1:].lstrip()[:1] != b"{":
                return ""
            opened.seek(0)
            return "JSON" if end in json_records.ENDS or is_json(opened.read().decode("utf-8-sig", "replace")) else ""
        if begin[:1] != b"{":
            return ""
        opened.seek(0)
        line = next((line for line in opened if line.removeprefix(_MARK).strip()), b"")
    return "JSON lines" if is_json(line.decode("utf-8-sig", "replace")) else ""


def forms_of(files: Sequence[File]) -> list[str]:
    """The forms of files that are tables; [] if none is. InputError if some are, and others are not."""
    found = [form_of(file) for file in files]
    if not any(found):
        return []
    if not all(found):
        table, other = (files[[bool(form) for form in found].index(are)].shown for are in (True, False))
        raise InputError(
            f"{table} is {next(filter(None, found))}, and {other} is text: give files of one kind, or --as_is to read "
            "the letters of all"
        )
    return found


def extracted(file: File, form: str, column: str | None, folder: str) -> tuple[File, str]:
    """A file with a JSON string for each text of a table, in a new folder; and what was understood, for the user.

    `column` has the texts; None: see `column_of`. InputError if there is no such column, or a row is malformed; a
    FaultsError if several are.
    """
    faults, count, without, quoted = Faults(file.shown), 0, 0, 0
    if form == "JSON":
        rows = json_entries(file.shown, parse_json("".join(_lines(file, faults)), file.shown), faults)
    else:
        is_json = form == "JSON lines"
        rows = json_lines(file.shown, _lines(file, faults), faults) if is_json else _cells(file, form, faults)
    first = list(itertools.islice(rows, _FIRST))
    if not first:
        faults.raise_any(0)
    names = list(dict.fromkeys(name for _, values in first for name in values))
    texts = [name for name in names if any(_is_text(values.get(name)) for _, values in first)]
    lists = [value for _, values in first for value in values.values() if isinstance(value, list)]
    if any(isinstance(one, dict) for value in lists for one in value):  # the texts are in conversations
        texts = []
    name = column_of(file.shown, names, texts, column, ", or give --as_is to read its letters")
    os.makedirs(folder)
    path = os.path.join(folder, os.path.basename(file.name) + END)
    with open(path, "w", encoding="utf-8") as target:
        for line, values in itertools.chain(first, rows):
            value = values.get(name)
            if value is not None and not isinstance(value, str):
                faults.add(f"{file.shown}, line {line}: {name!r} must be a text, not {str(value)[:40]}", line)
            else:
                target.write(json.dumps(value or "", ensure_ascii=False) + "\n")
                count += 1
                without += name not in values
                quoted += form == "TSV" and value is not None and value[:1] == value[-1:] == '"'
    faults.raise_any(count)
    notes = [counted(count, "row"), *([f"{without:,} without it"] if without else [])]
    notes += [f"the quotes around {counted(quoted, 'text')} kept"] if quoted else []
    return File(path, file.name, temporary=True), f"{file.shown}: {form}, text in {name!r}: {', '.join(notes)}"


def unread_json(files: Sequence[File]) -> list[str]:
    """A remark on files that are named as JSON, and have no rows."""
    count = sum(file.name.lower().rpartition(".")[2] in json_records.ENDS for file in files)
    return [f"{counted(count, 'file')} of JSON without an object in each line, read with all marks"] if count else []


def column_of(shown: str, names: Sequence[str], texts: Sequence[str], given: str | None, more: str = "") -> str:
    """The column of the texts among `names`: `given`, "text", "sentence", or the only one of `texts`.

    InputError, with `more` at its end, if there is none.
    """
    for name in [given] if given else [*USUAL, *(texts if len(texts) == 1 else ())]:
        if name in names:
            return name
    lacks = f"no column {given!r}" if given else "no column text or sentence, and not one of texts alone"
    there = ", ".join(map(repr, names)) or "no rows"
    raise InputError(f"{shown} has {lacks}, but {there}: name the column with --text_column{more}")


def _is_text(value: Any) -> bool:
    try:
        float(value)
        return False
    except (ValueError, TypeError):
        return isinstance(value, str) and bool(value.strip())


def _lines(file: File, faults: Faults) -> Iterator[str]:
    with tf.io.gfile.GFile(file.path, "rb") as opened:
        for number, line in enumerate(opened, 1):
            try:
                yield (line.removeprefix(_MARK) if number == 1 else line).decode()
            except UnicodeDecodeError as error:
                faults.add(
                    f"{file.shown}, line {number} is not UTF-8 text ({error.reason}): give its --encoding", number
                )
                return


def _cells(file: File, form: str, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _lines(file, faults)
    first, head = 1, next(lines, "")
    if named := SEPARATOR_LINE.match(head):
        first, head = 2, next(lines, "")
    lines = itertools.chain([head], lines)
    if form == "TSV" and not named and not QUOTED_HEADER.match(head):
        rows = cells_without_quotes(lines)
    else:
        separator = named[1] if named else "\t" if form == "TSV" else max(SEPARATORS, key=head.count)
        rows = cells_of(file.shown, lines, first, separator, faults)
    _, names = next(rows, (1, []))
    refuse_twice(list(filter(None, names)), f"{file.shown}, line {first}")
    for line, values in rows:
        if len(values) != len(names):
            if values:
                has = f"line {first} has {len(names)}"
                faults.add(other_width(f"{file.shown}, line {line}", values, names, has), line)
        elif has_names(row := dict(zip(names, values, strict=True))):
            faults.add(f"{file.shown}, line {line} has the names of the columns again: remove it", line)
        else:
            yield line, row


class RowTexts:
    """A file that `extracted` wrote, by groups of about GROUP_BYTES, as `arrow.Groups` has them.

    Attributes:
        rows, sizes: the number of texts in each group, and their bytes.
    """

    GROUP_BYTES = 1 << 20

    def __init__(self, path: str):
        self._path = path
        self.rows, self.sizes = [0], [0]
        with open(path, "rb") as file:
            for line in file:
                if self.sizes[-1] >= self.GROUP_BYTES:
                    self.rows.append(0)
                    self.sizes.append(0)
                self.rows[-1] += 1
                self.sizes[-1] += len(line)

    def read(self, group: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """{column: the texts of a group}, whatever the name of the column."""
        with open(self._path, "rb") as file:
            file.seek(sum(self.sizes[:group]))
            texts = [json.loads(line) for line in file.read(self.sizes[group]).splitlines()]
        return dict.fromkeys(names, texts)


_ABOUT = ("README.md", "dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")


def files_of_rows(paths: Sequence[str]) -> list[str]:
    """The files that are Parquet or Arrow by their names, without what `datasets` writes about them.

    InputError if some are and others are not.
    """
    found = [path for path in paths if path.endswith(ENDS)]
    others = [path for path in paths if not path.endswith(ENDS) and path.rpartition("/")[2] not in _ABOUT]
    if found and others:
        raise InputError(f"{others[0]} is no Parquet or Arrow file, but {found[0]} is: give one kind of files")
    return found


def _opened(path: str) -> Groups | RowTexts:
    return _opened_once(path, tf.io.gfile.stat(path).mtime_nsec)


@functools.lru_cache(maxsize=64)
def _opened_once(path: str, changed: int) -> Groups | RowTexts:
    if path.endswith(END):
        return RowTexts(path)
    return Groups(path, path if "://" not in path else RemoteFile(path, "rb"))


class RemoteFile(tf.io.gfile.GFile):
    """A file that TensorFlow opens, as pyarrow reads files."""

    closed = False


def text_column(path: str, given: str | None) -> str:
    """The column of a file's texts, as `column_of` finds it. InputError if there is none, or if it has bytes."""
    groups = _opened(path)
    if isinstance(groups, RowTexts):
        return USUAL[0]
    conversations = any("list<" in kind and "struct<" in kind for kind in map(str, groups.schema.types))
    found = column_of(path, groups.names, [] if conversations else groups.texts, given)
    if found not in groups.texts:
        groups.require_text("text_column", found)
        raise InputError(f"{path} has no texts in the column {found!r}: name another one with --text_column")
    return found


def pieces(split: str | None, path: str, name: str, column: str) -> Iterator[Piece]:
    """A Piece for each group of rows of a file."""
    start = 0
    for group, rows in enumerate(_opened(path).rows):
        if rows:
            yield Piece(split, path, start, None, name, column, group)
        start += rows


def size_of(piece: Piece) -> int:
    """About the bytes of a piece's texts."""
    return _opened(piece.path).sizes[piece.group]


def texts_of(piece: Piece) -> list[str]:
    """The texts of a piece's rows; null is an empty text."""
    return [text or "" for text in _opened(piece.path).read(piece.group, [piece.column])[piece.column]]


def documents(piece: Piece, reading: TextRules) -> tuple[list[tuple[str, bytes]], int]:
    """The text of a piece by split, and its number of documents, as `PieceBlocks.texts`: a row is a document."""
    found = [text.replace("\r\n", "\n").strip("\n").encode() for text in texts_of(piece)]
    return by_split(piece, found, piece.start, reading), sum(map(bool, found))


def write_lines(paths: Sequence[str], column: str | None, line_of: Callable[[str], str], target: str) -> int:
    """Writes the rows of files as the lines of a new text file; returns the number of words and lines' ends in it."""
    words = 0
    with open(target, "w", encoding="utf-8", newline="") as file:
        for path in paths:
            for piece in pieces(None, path, path, text_column(path, column)):
                lines = list(map(line_of, texts_of(piece)))
                words += sum(len(line.split()) + 1 for line in lines)
                file.writelines(lines)
    return words

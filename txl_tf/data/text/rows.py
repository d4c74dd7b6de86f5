"""Texts in a column of Parquet and Arrow files, read by groups of rows."""

from __future__ import annotations

import bisect
import functools
import io
import itertools
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from txl_tf.data.tables.arrow import Groups
from txl_tf.data.tables.dataset_folders import ENDS
from txl_tf.data.text import row_texts
from txl_tf.data.text.blocks import DOCUMENT_END, Piece, TextRules, drawn_split
from txl_tf.data.text.row_texts import USUAL, RowTexts, column_of
from txl_tf.errors import InputError

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
    if path.endswith(row_texts.END):
        return RowTexts(path)
    return Groups(path, path if "://" not in path else RemoteFile(path))


class RemoteFile(io.RawIOBase):
    """A file that TensorFlow opens, as a file of Python."""

    def __init__(self, path: str):
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to a place; returns it."""
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        """The place of the next byte."""
        return self._file.tell()


def text_column(path: str, given: str | None) -> str:
    """The column of a file's texts, as `column_of` finds it. InputError if there is none, or if it has bytes."""
    groups = _opened(path)
    if isinstance(groups, RowTexts):
        return USUAL[0]
    found = column_of(path, groups.names, groups.texts, given)
    if found not in groups.texts:
        groups.require_text("text_column", found)
        raise InputError(f"{path} has no texts in the column {found!r}: name another one with --text_column")
    return found


def pieces(split: str | None, path: str, name: str, column: str) -> Iterator[Piece]:
    """A Piece for each group of rows of a file, from its first row up to its last."""
    start = 0
    for rows in filter(None, _opened(path).rows):
        yield Piece(split, path, start, start + rows, name, column)
        start += rows


def size_of(piece: Piece) -> int:
    """About the bytes of a piece's texts."""
    groups = _opened(piece.path)
    return groups.sizes[_group_of(piece, groups)]


def texts_of(piece: Piece) -> list[str]:
    """The texts of a piece's rows; null is an empty text."""
    groups = _opened(piece.path)
    return [text or "" for text in groups.read(_group_of(piece, groups), [piece.column])[piece.column]]


def _group_of(piece: Piece, groups: Groups | RowTexts) -> int:
    return bisect.bisect_right(_starts(groups), piece.start) - 1  # before it groups may be empty


@functools.lru_cache(maxsize=64)
def _starts(groups: Groups | RowTexts) -> list[int]:
    """The number of each group's first row."""
    return list(itertools.accumulate(groups.rows, initial=0))


def documents(piece: Piece, reading: TextRules) -> tuple[list[tuple[str, bytes]], int]:
    """The text of a piece by split, and its number of documents, as `PieceBlocks.texts`: a row is a document."""
    found: dict[str, bytearray] = {}
    file, count = piece.path.rsplit("/", 1)[-1], 0
    for number, text in enumerate(texts_of(piece), start=piece.start):
        if document := text.replace("\r\n", "\n").strip("\n").encode():
            split = piece.split or drawn_split(f"{file}#{number}")
            found.setdefault(split, bytearray()).extend(document + DOCUMENT_END + reading.mark)
            count += 1
    return [(split, bytes(text)) for split, text in found.items()], count


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

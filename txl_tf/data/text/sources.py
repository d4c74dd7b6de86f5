"""Finds the text of a corpus and reads it in blocks, so that memory does not grow with its size."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from txl_tf.data.text import blocks, rows
from txl_tf.data.text.blocks import DOCUMENT_MARK, Piece, PieceBlocks, TextRules, drawn_split
from txl_tf.data.text.own_files import File, plain_files
from txl_tf.data.text.splits import SPLITS, named_splits, told_words
from txl_tf.data.threads import REQUESTS, in_order
from txl_tf.errors import InputError
from txl_tf.progress import progress_bar
from txl_tf.storage.files import check_file
from txl_tf.storage.literal_paths import matches

# Folders of tests, and folders that do not belong to the standard library.
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Text in files.

    Attributes:
        pieces: in the order of their text in the splits.
        documents, inner: how documents end, see TextRules.
        split_rule: the rule for the splits of the user's text, one of splits.RULES; "": the corpus has its own splits.
        remarks: what the user should know of how the files are read.
    """

    pieces: tuple[Piece, ...]
    documents: str = "joined"
    inner: str = ""
    split_rule: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def document_ends(self) -> str:
        """The end of a document: "file", "blank_line", "article" or "row"; "": the text has no known documents."""
        return self.inner or (self.documents if self.documents != "joined" else "")

    def reading(self, **rules: bool) -> TextRules:
        """The TextRules of this text with these further fields."""
        return TextRules(self.documents, self.inner, **rules)

    def blocks(self, **rules: bool) -> Iterator[tuple[str, bytes]]:
        """Yields (split, bytes) of about BLOCK_BYTES, cut at ends of lines; the blocks of a split are in order."""
        texts = self._texts(self.reading(**rules))
        if self.documents != "joined":  # documents can be short, and their splits alternate
            groups = grouped((split, waiting_size(text), text) for split, text in texts)
            texts = ((split, b"".join(group)) for split, group in groups)
        with progress_bar("reading", sum(self.sizes), "B") as bar:
            for split, block in texts:
                yield split, block
                bar.update(len(block))

    def _texts(self, reading: TextRules) -> Iterator[tuple[str, bytes]]:
        for piece in self.pieces:
            if piece.column:
                yield from rows.documents(piece, reading)[0]
                continue
            with PieceBlocks(piece, reading) as reader:
                documents = 0
                for index in range(reader.count):
                    texts, number = reader.texts(index, documents)
                    yield from texts
                    documents += number

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Bytes of each piece."""

        def size(piece: Piece) -> int:
            if piece.column:
                return rows.size_of(piece)
            return (tf.io.gfile.stat(piece.path).length if piece.stop is None else piece.stop) - piece.start

        return list(in_order(size, self.pieces, REQUESTS))

    def split_sizes(self) -> Iterable[tuple[str, str, int]]:
        """Yields (split, file, bytes) for `split_contents`. Reads the text if the splits of documents are drawn."""
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            if piece.split is not None and not piece.column:
                yield piece.split, piece.shown, size
            else:
                for split, text in TextSource((piece,), self.documents)._texts(self.reading(utf8=False)):
                    yield split, piece.shown, len(text)


def split_contents(sizes: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, Any]]:
    """From (split, file, bytes): {split: {"files": number, "first": names of up to three, "bytes": of their text}}.

    A file can occur again. Folders that all files share are left out of their names.
    """
    found: dict[str, collections.Counter[str]] = {split: collections.Counter() for split in SPLITS}
    for split, file, size in sizes:
        found[split][file] += size
    shared = _common_folders([file for files in found.values() for file in files])
    return {
        split: {"files": len(files), "first": [file[shared:] for file in [*files][:3]], "bytes": files.total()}
        for split, files in found.items()
    }


def waiting_size(text: bytes) -> int:
    """The size of a text for `grouped`. A text that was cut within a line is never grouped with the text after it."""
    return len(text) if text.endswith((b"\n", DOCUMENT_MARK)) else blocks.BLOCK_BYTES


def grouped(items: Iterable[tuple[str, int, Item]]) -> Iterator[tuple[str, list[Item]]]:
    """Groups the (split, size, item) of each split to BLOCK_BYTES or more; yields (split, items)."""
    waiting: dict[str, list[Item]] = {}
    totals = dict.fromkeys(SPLITS, 0)
    for split, size, item in items:
        waiting.setdefault(split, []).append(item)
        totals[split] += size
        if totals[split] >= blocks.BLOCK_BYTES:
            yield split, waiting.pop(split)
            totals[split] = 0
    yield from waiting.items()


def standard_library() -> TextSource:
    """The running interpreter's own standard library, without its tests: about 800 Python files, 13 MB.

    A file's split is drawn from its path inside the library, so that it is the same on every machine.
    """
    root = sysconfig.get_path("stdlib")
    pieces = []
    for folder, _, files in tf.io.gfile.walk(root):
        inside = folder[len(root) :].strip("/\\").replace("\\", "/")
        if _NOT_LIBRARY.isdisjoint(inside.split("/")):
            names = (f"{inside}/{file}".lstrip("/") for file in files if file.endswith(".py"))
            pieces += [Piece(drawn_split(name), tf.io.gfile.join(root, name)) for name in names]
    if not pieces:
        raise InputError(
            f"{root} has no Python files: this interpreter has no standard library to read; use --dataset=text"
        )
    return TextSource(tuple(sorted(pieces, key=lambda piece: piece.path)), "file", split_rule="files")


def text_files(
    source: str,
    documents: str = "file",
    splits: str | None = None,
    work_dir: str | None = None,
    encoding: str | None = None,
    binary: bool = False,
    text_column: str | None = None,
    as_is: bool = False,
) -> TextSource:
    """The user's text: a file, a directory (all files below it), a glob, or archives of text.

    Splits follow the first rule that applies:

    - files or folders named for splits (`named_splits`): by name
    - documents="blank_line", or tables, in which a row is a document: drawn for each document
    - at least 40 files: drawn for each file
    - else shares of every file: its last 5% of bytes are test, the 5% before them valid

    A file is a document. But if it is a whole split or the only file, blank lines end documents, as in XLNet's text
    files.

    Args:
        documents: "file" or "blank_line", what separates documents.
        splits: "names": only the first rule; "shares": all but the first; None: all, but the first not for one file.
        work_dir: a local directory for unpacked and converted files; None: files are read as they are.
        encoding, binary, text_column: as for `plain_files` and `rows.text_column`.
        as_is: whether the letters of JSON lines, CSV and TSV are read, not the texts in their rows.

    InputError if there is no file, or as for `named_splits` and `plain_files`.
    """
    paths = find_files(source)
    root = source.rstrip("/") + "/" if tf.io.gfile.isdir(source) else paths[0][: _common_folders(paths)]
    if tables := rows.files_of_rows(paths):
        return _rows([File(path, path[len(root) :]) for path in tables], root, splits, text_column)
    files = [File(path, path[len(root) :]) for path in paths]
    remarks: list[str] = []
    if work_dir is not None:
        files, remarks = plain_files(files, work_dir, encoding, binary)
        if not as_is and (forms := rows.forms_of(files)):
            found = [
                rows.extracted(file, form, text_column, os.path.join(work_dir, "rows", str(i)))
                for i, (file, form) in enumerate(zip(files, forms, strict=True))
            ]
            read = _rows([file for file, _ in found], root, splits, None)
            return dataclasses.replace(read, remarks=(*remarks, *(said for _, said in found)))
        remarks += [] if as_is else rows.unread_json(files)
    if text_column:
        raise InputError(f"--text_column is for tables, and {source} is text: omit it")
    if not files:
        raise InputError(f"{source} holds no text: give files of text as --source")
    read = _as_text(files, paths, root, documents, splits)
    return dataclasses.replace(read, remarks=tuple(remarks))


def _as_text(files: Sequence[File], paths: Sequence[str], root: str, documents: str, splits: str | None) -> TextSource:
    """Files of plain text, `paths` before they were unpacked, with the splits of the first rule that applies."""
    names = [file.name for file in files]
    if len(paths) == 1 and len(files) > 1:  # the name of the only archive says nothing about the files in it
        own = paths[0][len(root) :].count("/") + 1
        names = ["/".join(name.split("/")[own:]) for name in names]
    by_name = splits == "names" or (splits is None and len(files) > 1)
    if by_name and (named := named_splits(names, root, required=splits == "names")):
        return TextSource(_whole(files, named), "file", "blank_line", "names")
    if documents == "blank_line":
        return TextSource(_whole(files, [None] * len(files)), documents, split_rule="documents")
    if len(files) >= 40:
        shared = _common_folders(names)
        drawn = _whole(files, [drawn_split(name[shared:]) for name in names])
        return TextSource(drawn, documents, split_rule="files")
    shares = (piece for file in files for piece in cut_by_bytes(file.path, True, file.shown))
    return TextSource(tuple(shares), documents, "blank_line" if len(files) == 1 else "", "shares")


def _rows(files: Sequence[File], root: str, splits: str | None, column: str | None) -> TextSource:
    """The text of tables. Files that are all named "train" say no splits."""
    names = [file.name for file in files]
    told = splits != "shares" and any(told_words(name) - {"train"} for name in names)
    said = named_splits(names, root, required=splits == "names") if told or splits == "names" else None
    of_files: Sequence[str | None] = said or [None] * len(files)
    pieces = [
        piece
        for file, split in zip(files, of_files, strict=True)
        for piece in rows.pieces(split, file.path, file.shown, rows.text_column(file.path, column))
    ]
    return TextSource(tuple(pieces), "row", split_rule="names" if said else "documents")


def _whole(files: Sequence[File], splits: Sequence[str | None]) -> tuple[Piece, ...]:
    return tuple(Piece(split, file.path, name=file.shown) for file, split in zip(files, splits, strict=True))


def find_files(source: str) -> list[str]:
    """The files that a --source means, sorted.

    If a file or directory has exactly this name, it is taken. Otherwise the name is a pattern, in which ** means all
    folders below. InputError if there is no file, something is not a file, or a name is not UTF-8.
    """
    try:
        if tf.io.gfile.isdir(source):
            found = [path for path in _files_below(source) if not path.rsplit("/", 1)[-1].startswith(".")]
        else:
            found = [path for path in matches(source) if not tf.io.gfile.isdir(path)]
    except (UnicodeDecodeError, UnicodeEncodeError) as error:  # from a folder's list; from a pattern's
        raise InputError(f"a file at {source} has a name that is not UTF-8 ({error.object!r}): rename it") from error
    if not found:
        raise InputError(f"no text found at {source}: give --source=FILE, a directory or a quoted glob")
    for path in found:
        check_file(path, "remove it, or give other files as --source")
    return sorted(found)


def _files_below(root: str) -> Iterator[str]:
    """The files in a directory and below it. Links are followed; InputError if they lead in a circle."""
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    while waiting:
        folder, above = waiting.pop()
        place = folder if "://" in folder else os.path.realpath(folder)
        if place in above:
            raise InputError(f"{folder} is a link to a directory above it: remove the link, or give other files")
        for name in tf.io.gfile.listdir(folder):
            path = tf.io.gfile.join(folder, name.rstrip("/"))
            if tf.io.gfile.isdir(path):
                waiting.append((path, (*above, place)))
            else:
                yield path


def cut_by_bytes(path: str, at_lines: bool, name: str = "") -> list[Piece]:
    """Cuts a file, which has this name in messages, into splits: the last 5% of bytes are test, the 5% before valid.

    With `at_lines` splits begin at the start of a line, or of a character in very long lines.
    """
    size = tf.io.gfile.stat(path).length
    held_out = round(size * 0.05)
    cuts = [0, size - 2 * held_out, size - held_out, size]
    if at_lines:
        pairs = itertools.pairwise([*cuts, size])
        cuts = [_line_start(path, cut, stop) if 0 < cut < size else cut for cut, stop in pairs]
    parts = zip(SPLITS, cuts, cuts[1:], strict=False)
    return [Piece(split, path, start, stop, name) for split, start, stop in parts if start < stop]


def _line_start(path: str, position: int, stop: int) -> int:
    """The next start of a line from `position` on, or of a character if no line starts before `stop` or in 64 KiB."""
    size = min(1 << 16, stop - position)
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(position - 1)
        near = file.read(size + 4)  # a character may end after `stop`
    character = next((i for i in range(1, len(near)) if near[i] & 0xC0 != 0x80), len(near))
    return position - 1 + (near.find(b"\n", 0, size) + 1 or character)


def _common_folders(paths: Sequence[str]) -> int:
    """The length of the folders that all paths begin with, including the slash after them."""
    folders = [path.split("/")[:-1] for path in paths]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    return sum(len(parts[0]) + 1 for parts in shared)

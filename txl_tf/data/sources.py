"""Finds the text of a corpus and reads it in blocks, so that memory does not grow with its size."""

from __future__ import annotations

import dataclasses
import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from txl_tf.data.progress import Progress
from txl_tf.errors import InputError

SPLITS = ("train", "valid", "test")
BLOCK_BYTES = 1 << 20
DOCUMENT_END = b"\n\n"

# Folders of tests, and folders that do not belong to the standard library.
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes from start up to stop of a file, which belong to one split; stop None: to the end of the file."""

    split: str
    path: str
    start: int = 0
    stop: int | None = None


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Text in files.

    Attributes:
        pieces: in the order of their text in the splits.
        documents: "joined": pieces are joined without change; "file": each is a document; "blank_line": blank lines
            separate documents, whose splits are drawn one by one, and the splits of the pieces are ignored.
    """

    pieces: tuple[Piece, ...]
    documents: str = "joined"

    def blocks(self, utf8: bool = True, end_lines: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yields (split, bytes) of about BLOCK_BYTES, cut at ends of lines; the blocks of a split are in order.

        Every document ends in a blank line, which replaces newlines at its end.

        Args:
            utf8: whether to raise InputError, with file and position, for text that is not UTF-8.
            end_lines: whether the last line of a file gets a newline if it has none.
        """
        progress, done = Progress("reading", self.size(), "B"), 0
        for split, block in self._joined(utf8, end_lines) if self.documents == "joined" else self._collected(utf8):
            yield split, block
            done += len(block)
            progress.update(done)
        progress.close()

    def _joined(self, utf8: bool, end_lines: bool) -> Iterator[tuple[str, bytes]]:
        for piece in self.pieces:
            block = b"\n"
            for block in _read_blocks(piece, utf8):
                yield piece.split, block
            if end_lines and not block.endswith(b"\n"):
                yield piece.split, b"\n"

    def _collected(self, utf8: bool) -> Iterator[tuple[str, bytes]]:
        """Joins documents, which can be short and whose splits alternate, to blocks."""
        waiting: dict[str, bytearray] = {}
        for split, block in self._documents(utf8):
            text = waiting.setdefault(split, bytearray())
            text += block
            if len(text) >= BLOCK_BYTES:
                yield split, bytes(waiting.pop(split))
        for split, text in waiting.items():
            yield split, bytes(text)

    def size(self) -> int:
        """Bytes of all pieces."""
        return sum((tf.io.gfile.stat(p.path).length if p.stop is None else p.stop) - p.start for p in self.pieces)

    def _documents(self, utf8: bool) -> Iterator[tuple[str, bytes]]:
        for piece in self.pieces:
            blocks = _read_blocks(piece, utf8)
            if self.documents == "file":
                for block in _end_document(blocks):
                    yield piece.split, block
            else:
                file = piece.path.rsplit("/", 1)[-1]
                for index, document in enumerate(_blank_line_documents(blocks)):
                    yield drawn_split(f"{file}#{index}"), document


def drawn_split(name: str) -> str:
    """The split of a document, drawn from a hash of its name: 90% train, 5% valid, 5% test."""
    draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") % 100
    return "valid" if draw < 5 else "test" if draw < 10 else "train"


def standard_library() -> TextSource:
    """The running interpreter's own standard library, without its tests: about 800 Python files, 13 MB.

    A file's split is drawn from its path inside the library, so that it is the same on every machine.
    """
    root = sysconfig.get_path("stdlib")
    pieces = []
    for folder, folders, files in tf.io.gfile.walk(root):
        inside = folder[len(root) :].strip("/\\").replace("\\", "/")
        folders.sort()
        if _NOT_LIBRARY.isdisjoint(inside.split("/")):
            names = sorted(f"{inside}/{file}".lstrip("/") for file in files if file.endswith(".py"))
            pieces += [Piece(drawn_split(name), tf.io.gfile.join(root, name)) for name in names]
    if not pieces:
        raise InputError(
            f"{root} has no Python files: this interpreter has no standard library to read; use --dataset=text"
        )
    return TextSource(tuple(sorted(pieces, key=lambda piece: piece.path)), "file")


def text_files(source: str, documents: str = "file") -> TextSource:
    """The user's text: a file, a directory (all files below it) or a glob.

    Splits follow the first rule that applies:

    - documents="blank_line": drawn for each document
    - files named train*, valid* and test* (all three, and no others): by name
    - at least 40 files: drawn for each file
    - else the last 5% of the bytes are test and the 5% before them valid

    Raises:
        InputError: there is no file.
    """
    paths = find_files(source)
    if documents == "blank_line":
        return TextSource(tuple(Piece("train", path) for path in paths), documents)
    named = [next((split for split in SPLITS if path.rsplit("/", 1)[-1].startswith(split)), None) for path in paths]
    if None not in named and set(named) == set(SPLITS):
        return TextSource(
            tuple(Piece(split, path) for split, path in zip(named, paths, strict=True) if split), documents
        )
    if len(paths) >= 40:
        root = paths[0][: min(_common(paths[0], path) for path in paths)]
        return TextSource(tuple(Piece(drawn_split(path[len(root) :]), path) for path in paths), documents)
    return TextSource(tuple(cut_by_bytes(paths, at_lines=True)), documents)


def find_files(source: str) -> list[str]:
    """The files that a --source means, sorted; InputError if there are none."""
    if tf.io.gfile.isdir(source):
        found = [tf.io.gfile.join(folder, file) for folder, _, files in tf.io.gfile.walk(source) for file in files]
        found = [path for path in found if not path.rsplit("/", 1)[-1].startswith(".")]
    else:
        found = [path for path in tf.io.gfile.glob(source) if not tf.io.gfile.isdir(path)]
    if not found:
        raise InputError(f"no text found at {source}: give --source=FILE, a directory or a quoted glob")
    return sorted(found)


def cut_by_bytes(paths: Sequence[str], at_lines: bool) -> list[Piece]:
    """Cuts the files, joined to one text, into splits: the last 5% of bytes are test, the 5% before them valid.

    Args:
        paths: of the files.
        at_lines: whether splits begin at the start of a line, or of a character in very long lines.
    """
    sizes = [tf.io.gfile.stat(path).length for path in paths]
    total, pieces, position = sum(sizes), [], 0
    held_out = round(total * 0.05)
    cuts = [0, total - 2 * held_out, total - held_out, total]
    for path, size in zip(paths, sizes, strict=True):
        inside = [min(max(cut - position, 0), size) for cut in cuts]
        if at_lines:
            inside = [_line_start(path, cut) if 0 < cut < size else cut for cut in inside]
        for split, start, stop in zip(SPLITS, inside, inside[1:], strict=False):
            if start < stop:
                pieces.append(Piece(split, path, start, stop))
        position += size
    return pieces


def _line_start(path: str, position: int) -> int:
    """The next start of a line from `position` on, or of a character if no line starts within 64 KiB."""
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(position - 1)
        near = file.read(1 << 16)
    character = next((i for i in range(1, len(near)) if near[i] & 0xC0 != 0x80), len(near))
    return position - 1 + (near.find(b"\n") + 1 or character)


def _read_blocks(piece: Piece, utf8: bool) -> Iterator[bytes]:
    """Yields the bytes of a piece, cut at ends of lines; without lines at spaces, else between characters."""
    position, rest = piece.start, b""
    with tf.io.gfile.GFile(piece.path, "rb") as file:
        file.seek(piece.start)
        while True:
            left = BLOCK_BYTES if piece.stop is None else min(BLOCK_BYTES, piece.stop - position)
            block = file.read(left)
            position += len(block)
            if not block:
                break
            block = rest + block
            cut = block.rfind(b"\n") + 1 or block.rfind(b" ") + 1 or _character_end(block)
            block, rest = block[:cut], block[cut:]
            if utf8:
                _check_utf8(block, piece.path, position - len(rest) - len(block))
            if block:
                yield block
    if piece.stop is not None and position != piece.stop:
        raise InputError(f"{piece.path} ends at byte {position:,} but was expected to reach {piece.stop:,}")
    if rest:
        if utf8:
            _check_utf8(rest, piece.path, position - len(rest))
        yield rest


def _check_utf8(block: bytes, path: str, start: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 at byte {start + error.start:,}: convert it, or use --vocab=bytes"
        ) from None


def _character_end(block: bytes) -> int:
    """The end of the last complete UTF-8 character of a block; the block's length if it is not UTF-8."""
    for cut in range(len(block), max(len(block) - 4, 0), -1):
        if block[cut - 1] & 0xC0 != 0x80:  # the first byte of a character gives its length
            first = block[cut - 1]
            length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return len(block) if cut - 1 + length == len(block) else cut - 1
    return len(block)


def _end_document(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a document with DOCUMENT_END in place of newlines at its end; nothing if it is empty."""
    newlines, empty = b"", True
    for block in blocks:
        text = block.rstrip(b"\r\n")
        if text:
            yield newlines + text
            newlines, empty = b"", False
        newlines += block[len(text) :]
    if not empty:
        yield DOCUMENT_END


def _blank_line_documents(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The documents between blank lines, each with DOCUMENT_END at its end."""
    rest = b""
    for block in blocks:
        *documents, rest = (rest + block).replace(b"\r\n", b"\n").split(b"\n\n")
        yield from (document.strip(b"\n") + DOCUMENT_END for document in documents if document.strip())
    if rest.strip():
        yield rest.strip(b"\n") + DOCUMENT_END


def _common(first: str, second: str) -> int:
    """The length of the folders that two paths share at their start."""
    shared = 0
    for a, b in zip(first.split("/"), second.split("/"), strict=False):
        if a != b:
            break
        shared += len(a) + 1
    return shared

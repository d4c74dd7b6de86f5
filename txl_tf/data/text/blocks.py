"""Reads text in blocks, each by itself: the bytes around its ends decide where a block begins and ends.

So one process can read all blocks in order, and many machines can read them in any order, with the same result.
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import re
from collections.abc import Iterable

import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.storage.files import check_file

BLOCK_BYTES = 1 << 20
DOCUMENT_END = b"\n\n"
DOCUMENT_MARK = b"\xff"
"""Marks the end of a document, for vocabularies with a token for it. No UTF-8 text has this byte."""

# A document inside a file begins with the line after a match. (A line of a file in WikiText begins with a space.)
_ENDS = {
    "blank_line": re.compile(rb"(?<=\n)[^\S\n]*\n(?=[^\S\n]*[^\s])"),
    "article": re.compile(rb"(?<=\n)[^\S\n]*\n(?= = [^=\n]+ =[^\S\n]*\n)"),
}
_LONGEST_BLANK_LINE = 256
_EMPTY_LINE = re.compile(rb"(?<=\n)\r?\n")


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes from start up to stop of a file; stop None: to the end of the file. Or the texts in rows of a table.

    Attributes:
        split: to which they belong; None: the split of each document is drawn.
        path, start, stop: where they are.
        name: of the file, for messages; "": its path.
        column: of the texts, if the file is a table; start then counts rows.
        group: the number of the rows' group in a table.
    """

    split: str | None
    path: str
    start: int = 0
    stop: int | None = None
    name: str = ""
    column: str = ""
    group: int = 0

    @property
    def shown(self) -> str:
        """How messages name the file."""
        return self.name or self.path


@dataclasses.dataclass(frozen=True)
class TextRules:
    """How text is read.

    Attributes:
        documents: how documents end. "joined": their ends leave no trace. "file": a piece is a document and ends in a
            blank line, which replaces newlines at its end. "blank_line": blank lines separate documents; every document
            ends in one. "row": a row of a table is a document, and ends in a blank line.
        inner: the ends of documents inside a piece, "blank_line" or "article"; "": none. They are marked, but do not
            change the text.
        utf8: whether to raise InputError, with file and position, for text that is not UTF-8.
        end_lines: whether the last line of a piece gets a newline if it has none.
        marked: whether DOCUMENT_MARK follows the end of each document.
    """

    documents: str = "joined"
    inner: str = ""
    utf8: bool = True
    end_lines: bool = False
    marked: bool = False

    @property
    def mark(self) -> bytes:
        """The bytes that follow a document's end."""
        return DOCUMENT_MARK if self.marked else b""


def drawn_split(name: str) -> str:
    """The split of a document, drawn from a hash of its name: 90% train, 5% valid, 5% test."""
    draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") % 100
    return "valid" if draw < 5 else "test" if draw < 10 else "train"


def by_split(piece: Piece, documents: Iterable[bytes], first: int, reading: TextRules) -> list[tuple[str, bytes]]:
    """The text of documents, counted from `first` on in their piece, by split. Empty ones are left out."""
    texts: dict[str, bytearray] = {}
    file = piece.path.rsplit("/", 1)[-1]
    for number, document in enumerate(documents, first):
        if document:
            split = piece.split or drawn_split(f"{file}#{number}")
            texts.setdefault(split, bytearray()).extend(document + DOCUMENT_END + reading.mark)
    return [(split, bytes(text)) for split, text in texts.items()]


class PieceBlocks:
    """The blocks of a Piece, `count` of them, each of about BLOCK_BYTES; a block can be empty.

    They are cut at ends of lines, or else at spaces, or else between characters.
    """

    def __init__(self, piece: Piece, reading: TextRules):
        self._piece, self._reading = piece, reading
        self._start = piece.start
        check_file(piece.path)
        self._stop = tf.io.gfile.stat(piece.path).length if piece.stop is None else piece.stop
        self._file = tf.io.gfile.GFile(piece.path, "rb")
        self.count = block_count(self._stop - self._start)
        self._known = (0, self._start)  # a block, and where it begins

    def __enter__(self) -> PieceBlocks:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def texts(self, index: int, first_document: int = 0) -> tuple[list[tuple[str, bytes]], int]:
        """The text of a block by split, [(split, text)], and its number of documents if their splits are drawn.

        They are drawn by `first_document`, the documents in the piece's earlier blocks. Empty texts are left out.
        """
        if self._reading.documents != "blank_line":
            text = self._text(index)
            return [(str(self._piece.split), text)] if text else [], 0
        start = self._first_document(index)
        text = self._read(start, self._first_document(index + 1))
        if self._reading.utf8:
            _check_utf8(text, self._piece.shown, start)
        texts = text.replace(b"\r\n", b"\n").split(b"\n\n")
        documents = [document.strip(b"\n") for document in texts if document.strip()]
        return by_split(self._piece, documents, first_document, self._reading), len(documents)

    def _text(self, index: int) -> bytes:
        """A block, with marks at the ends of documents if the rules say so."""
        reading, start = self._reading, self._block_start(index)
        block = self._read(start, self._window_end(index))
        if index < self.count - 1:
            block = block[: _cut(block)]
            self._known = (index + 1, start + len(block))
        if reading.utf8:
            _check_utf8(block, self._piece.shown, start)
        after = start + len(block)
        if reading.marked and reading.inner:
            block = self._with_inner_marks(block, start)
        if reading.documents == "file":
            if self._only_newlines(after):
                block = block.rstrip(b"\r\n")
                block = block and block + DOCUMENT_END + reading.mark
        elif block and after == self._stop:
            if reading.end_lines and not block.endswith(b"\n"):
                block += b"\n"
            block += reading.mark if reading.inner else b""
        return block

    def _with_inner_marks(self, block: bytes, start: int) -> bytes:
        """Marks the ends of documents that are followed by a document which begins in this block."""
        before = self._read(max(start - _LONGEST_BLANK_LINE, self._start), start)
        text, cuts = before + block, []
        for match in _ENDS[self._reading.inner].finditer(text):
            place = match.end()
            if len(before) <= place < len(text) and text[: match.start()].strip():
                cuts.append(place - len(before))
        return DOCUMENT_MARK.join(block[a:b] for a, b in zip([0, *cuts], [*cuts, len(block)], strict=True))

    def _window_end(self, index: int) -> int:
        """The byte up to which block `index` must be read to know its end."""
        return min(self._start + (index + 1) * BLOCK_BYTES, self._stop)

    def _block_start(self, index: int) -> int:
        known, start = self._known
        if known != index:
            known, start = index, -1
            while known and (start := self._cut_in_window(known - 1)) < 0:
                known -= 1
            start = start if known else self._start
            while known < index:
                start += _cut(self._read(start, self._window_end(known)))
                known += 1
            self._known = (index, start)
        return start

    def _cut_in_window(self, index: int) -> int:
        """The end of block `index`, if the BLOCK_BYTES read for it show it; else -1."""
        low, high = self._start + index * BLOCK_BYTES, self._window_end(index)
        near = max(high - 4096, low)  # nearly always enough
        for begin in (near, low):
            text = self._read(begin, high)
            if b"\n" in text:
                return begin + text.rindex(b"\n") + 1
        return low + text.rindex(b" ") + 1 if b" " in text else -1

    def _first_document(self, index: int) -> int:
        """The start of the first document that begins in block `index` or later."""
        if index == 0:
            return self._start
        if index == self.count:
            return self._stop
        start = self._block_start(index)
        low, size = max(start - 3, self._start), 1 << 16
        while True:
            text = self._read(low, min(low + size, self._stop))
            for match in _EMPTY_LINE.finditer(text):
                if low + match.end() >= start:
                    return low + match.end()
            if low + size >= self._stop:
                return self._stop
            size *= 4

    def _only_newlines(self, position: int) -> bool:
        while position < self._stop:
            text = self._read(position, min(position + 4096, self._stop))
            if text.strip(b"\r\n"):
                return False
            position += len(text)
        return True

    def _read(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        self._file.seek(start)
        text = self._file.read(stop - start)
        if len(text) != stop - start:
            raise InputError(
                f"{self._piece.path} ends at byte {start + len(text):,} but was expected to reach {stop:,}"
            )
        return text


def block_count(size: int) -> int:
    """Number of blocks of `size` bytes; the last one is the rest after the last cut."""
    return -(-size // BLOCK_BYTES) + 1


def _cut(text: bytes) -> int:
    """Where a block that begins with `text` is cut: after a line, else a space, else a complete character."""
    if end := text.rfind(b"\n") + 1 or text.rfind(b" ") + 1:
        return end
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    decoder.decode(text[-4:])
    return len(text) - len(decoder.getstate()[0])


def _check_utf8(block: bytes, name: str, start: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8 at byte {start + error.start:,}: convert it or, with --dataset=text, give its "
            "--encoding, such as cp1252 or utf-16; --vocab=bytes reads any bytes"
        ) from None

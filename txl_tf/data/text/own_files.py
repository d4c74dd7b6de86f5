"""The user's own files as plain UTF-8 text: archives are unpacked, other encodings converted, binary files refused."""

from __future__ import annotations

import codecs
import collections
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data.tables import conll
from txl_tf.data.tables.encodings import without_mark
from txl_tf.data.tables.forms import ARCHIVES, NOT_TEXT, PACKED, begins_like
from txl_tf.data.text.archives import is_of_a_mac, named_damage, tar_members, zip_members
from txl_tf.data.threads import REQUESTS, in_order
from txl_tf.errors import InputError
from txl_tf.storage.local_files import check_encoding

LARGEST = 100
"""An archive may hold this many times its own size, or FREE bytes if it is small. More is an attack, or a mistake."""
FREE = 64 << 20
_HEAD = 512
_SAMPLE = 1 << 16
_ODD = bytes({*range(32), 127} - {*b"\a\b\t\n\v\f\r\x1a\x1b"})
MOST_ODD = 0.02
"""A file with a larger share of bytes such as NUL, which text hardly has, is not text. Packed data has about 0.1."""
_LOST = "\ufffd".encode()  # what a program writes in place of bytes that it cannot read
_LONGEST_NAME = 200
_DEEPEST = 3  # archives inside archives: a packed tar in a zip has two inside


class File(NamedTuple):
    """A file to read, and its name below the source, which decides its split.

    `temporary`: whether it was unpacked or converted, so that messages give its name, not its path.
    """

    path: str
    name: str
    temporary: bool = False

    @property
    def shown(self) -> str:
        """How messages name it."""
        return self.name if self.temporary else self.path


def plain_files(
    files: Sequence[File], work_dir: str, encoding: str | None, binary: bool
) -> tuple[list[File], list[str]]:
    """The files as UTF-8 text: unchanged, or unpacked or converted in a folder of `work_dir`; and remarks on them.

    The first bytes of a file tell its kind, not its name. A file whose only line ends are "\\r" gets "\\n" for them.
    Without an `encoding`, as Python names it, the text is UTF-8, which is not checked here. With `binary` files that
    are not text are read, too: PDFs, images, and files with more odd bytes than MOST_ODD.

    InputError if a file is an archive that cannot be read here, holds far more than its size, or is damaged; if it is
    not text and `binary` is False; or if it is not in `encoding`.
    """
    if encoding is not None:
        check_encoding(encoding)
    looks = list(in_order(lambda file: _look(file.path), files, REQUESTS))
    found: list[File] = []
    of_kinds: collections.Counter[str] = collections.Counter()
    for i, (file, look) in enumerate(zip(files, looks, strict=True)):
        budget = _Budget(file)
        for member, seen in _unpacked(file, look, os.path.join(work_dir, "unpacked", str(i)), budget):
            of_a_mac = not binary and seen.only_returns
            if not binary:
                _refuse_binary(member, seen, encoding)
                if kind := _marked_up(member, seen):
                    of_kinds[kind] += 1
                if seen.lost and encoding is None:
                    of_kinds["that may have lost letters (U+FFFD), read as they are"] += 1
            if of_a_mac:
                of_kinds["with \\r as the end of its lines, read as \\n"] += 1
            folder = os.path.join(work_dir, "converted", str(len(found)))
            found.append(_converted(member, encoding, of_a_mac, folder))
    return found, [f"{counted(count, 'file')} {kind}" for kind, count in of_kinds.items()]


def _marked_up(file: File, look: _Look) -> str:
    """The markup in a file that may not be meant as text; "": none."""
    head = look.head.removeprefix(codecs.BOM_UTF8).lstrip()
    if re.match(rb"<[!?h]", head, re.IGNORECASE) and re.search(rb"<(!doctype html|html)\b", head, re.IGNORECASE):
        return "of HTML, read with its marks"
    if head.startswith(b"<?xml") or (re.match(rb"<[a-z][^<>]*>", head, re.IGNORECASE) and b"</" in head):
        return "of XML, read with its marks"
    said = {"ipynb": "of notebooks, read with their JSON", **dict.fromkeys(conll.ENDS, "of CoNLL, read with its tags")}
    return said.get(file.name.lower().rpartition(".")[2], "")


class _Look(NamedTuple):
    """A quick look at a file: its first bytes, the share of odd bytes in samples from all its parts, and line ends.

    `only_returns`: whether "\\r" is the only end of lines there; `lost`: whether U+FFFD occurs there.
    """

    head: bytes
    odd: float
    only_returns: bool
    lost: bool


def _look(path: str) -> _Look:
    with tf.io.gfile.GFile(path, "rb") as file:
        sample = file.read(_SAMPLE)
        if len(sample) == _SAMPLE:
            size = file.size()
            for place in (size // 3, size * 2 // 3, size - _SAMPLE):
                file.seek(place)
                sample += file.read(_SAMPLE)
    odd = (len(sample) - len(sample.translate(None, _ODD))) / max(len(sample), 1)
    return _Look(sample[:_HEAD], odd, b"\r" in sample and b"\n" not in sample, _LOST in sample)


class _Budget:
    """The bytes that may still be unpacked from a file of the source and all archives inside it."""

    def __init__(self, file: File):
        self.name = file.name
        self._left = max(LARGEST * tf.io.gfile.stat(file.path).length, FREE)

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InputError(f"{self.name} holds more than {LARGEST} times its own size: unpack it yourself")


def _unpacked(file: File, look: _Look, folder: str, budget: _Budget, depth: int = 0) -> Iterator[tuple[File, _Look]]:
    """The files in an archive and in archives inside it, written into a new folder; any other file is returned itself.

    Each has its _Look; `look` is that of `file`.
    """
    head = look.head
    if refused := begins_like(head, ARCHIVES):
        raise InputError(f"{file.name} is a {refused.name} archive, which is not read here: unpack it")
    packed_as = begins_like(head, PACKED)
    opener = packed_as and packed_as.opens
    is_zip, is_tar = head.startswith((b"PK\3\4", b"PK\5\6")), head[257:262] == b"ustar"
    if not (opener or is_zip or is_tar):
        yield file, look
        return
    if depth == _DEEPEST:
        raise InputError(f"{budget.name} is packed again and again: unpack it yourself")
    path = file.path
    os.makedirs(folder)
    if "://" in path:
        path = os.path.join(folder, "copy")
        tf.io.gfile.copy(file.path, path)
    with named_damage(file.name):
        if opener:
            name = re.sub(r"\.(gz|bz2|xz|tgz)$", "", file.name)
            inner = [File(os.path.join(folder, "inner", os.path.basename(name)), name, temporary=True)]
            with opener(path, "rb") as packed:
                _write(packed, inner[0].path, budget)
        else:
            inner = []
            members = zip_members(path, file.name) if is_zip else tar_members(path)
            for number, (member_name, open_member) in enumerate(members):
                if parts := _parts(member_name):
                    name = os.path.join(os.path.splitext(file.name)[0], *parts)
                    inner.append(File(os.path.join(folder, str(number), parts[-1]), name, temporary=True))
                    with open_member() as member:
                        _write(member, inner[-1].path, budget)
    for number, one in enumerate(inner):
        yield from _unpacked(one, _look(one.path), os.path.join(folder, f"in-{number}"), budget, depth + 1)


def _parts(name: str) -> list[str]:
    """The parts of a member's name, as names of files can be: UTF-8, not too long; [] for hidden or a Mac's files."""
    plain = os.fsencode(name).decode("utf-8", "replace")
    parts = [part for part in re.split(r"[/\\]", plain) if part not in ("", ".", "..")]
    parts = [part.encode()[-_LONGEST_NAME:].decode("utf-8", "ignore") for part in parts]
    return [] if not parts or is_of_a_mac("/".join(parts)) or parts[-1].startswith(".") else parts


def _write(source: Any, path: str, budget: _Budget) -> None:
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        while block := source.read(1 << 20):
            budget.spend(len(block))
            file.write(block)


def _refuse_binary(file: File, look: _Look, encoding: str | None) -> None:
    marked = look.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if encoding is None and (likely := "utf-16" if marked else without_mark(look.head)):
        raise InputError(f"{file.name} is {likely.upper()} text: give --encoding={likely}")
    form = begins_like(look.head, NOT_TEXT)
    kind = form.name if form else ""
    one_byte = encoding is None or "\n".encode(encoding) == b"\n"  # not UTF-16, where a letter has a NUL byte
    if not kind and look.odd > MOST_ODD and one_byte:
        share = f"{100 * look.odd:.0f} % of its bytes are NUL or other control characters"
        kind = f"a binary file (or UTF-16, which needs its --encoding): {share}"
    if kind:
        raise InputError(f"{file.name} is {kind}, not text: remove it from the source, or give --binary to read it")


def _converted(file: File, encoding: str | None, of_a_mac: bool, folder: str) -> File:
    """A file as UTF-8 text; `of_a_mac`: with "\\n" for the ends of its lines."""
    if encoding is None and not of_a_mac:
        return file
    os.makedirs(folder)
    path = os.path.join(folder, os.path.basename(file.name))
    kept = encoding or "latin-1"  # all bytes as they are
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(kept)(), translate=of_a_mac)
    with (
        tf.io.gfile.GFile(file.path, "rb") as source,
        open(path, "w", encoding="utf-8" if encoding else kept, newline="") as target,
    ):
        try:
            while block := source.read(1 << 20):
                target.write(decoder.decode(block))
            target.write(decoder.decode(b"", final=True))  # half a character at the end is an error, too
        except UnicodeError as error:
            raise InputError(f"{file.name} is not {encoding} ({error}): give its --encoding") from error
    return File(path, file.name, temporary=True)

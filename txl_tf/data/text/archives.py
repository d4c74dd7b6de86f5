"""Extracts selected members of zip and tar archives and gzip files.

Paths inside an archive are never used: a member is selected by its file name, and is written under that name into a
directory that the caller gives.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import lzma
import os
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from txl_tf.errors import InputError, one_line
from txl_tf.storage.local_files import check_file


def is_archive(path: str) -> bool:
    """Whether a file's name ends like that of a zip, tar or gzip file."""
    return path.endswith((".zip", ".tgz", ".tar.gz", ".tar", ".gz"))


def is_of_a_mac(path: str) -> bool:
    """Whether macOS added a file to the archive or disk: __MACOSX/, ._NAME."""
    *folders, name = path.split("/")
    return "__MACOSX" in folders or name.startswith("._")


def extract(archive: str, wanted: str, directory: str) -> list[str]:
    """Writes the members whose whole file name matches the regular expression `wanted`; the files' paths, sorted.

    A plain .gz file has one member, named like the file without ".gz". `wanted` must not match "/" or "\". The archive
    and the directory are local; the directory is made if needed. InputError if the archive is damaged.
    """
    check_file(archive)
    os.makedirs(directory, exist_ok=True)
    paths: list[str] = []
    members: Members = iter([(os.path.basename(archive).removesuffix(".gz"), functools.partial(gzip.open, archive))])
    if archive.endswith(".zip"):
        members = zip_members(archive, archive)
    elif archive.endswith((".tgz", ".tar.gz", ".tar")):
        members = tar_members(archive, open if archive.endswith(".tar") else gzip.open)
    try:
        with named_damage(archive):
            for inner, open_member in members:
                name = re.split(r"[/\\]", inner)[-1]
                if not re.fullmatch(wanted, name):
                    continue
                path = os.path.join(directory, name)
                if path in paths:
                    raise InputError(f"{archive} holds {name} twice: remove one of them")
                with open_member() as member, open(path, "wb") as file:
                    paths.append(path)
                    shutil.copyfileobj(member, file, 1 << 20)
    except InputError:
        for path in paths:
            os.remove(path)
        raise
    return sorted(paths)


@contextlib.contextmanager
def named_damage(path: str) -> Iterator[None]:
    """Turns the errors of Python's readers of zip, tar, gzip, bzip2 and LZMA for damaged data into InputError."""
    try:
        yield
    except InputError:
        raise
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the data
            raise
        raise InputError(f"{path} is damaged ({one_line(error) or type(error).__name__}): fetch it again") from error


_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, LookupError, OverflowError),
)


Members = Iterator[tuple[str, Callable[[], Any]]]
"""(name, a function that opens it) of files in an archive, in order: open one before the next is asked for."""


def zip_members(path: str, shown: str) -> Members:
    """The regular files in a zip file; InputError, with `shown` as its name, if it is a document.

    A file that is protected by a password is refused when it is opened.
    """
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if "[Content_Types].xml" in names or "mimetype" in names:
            raise InputError(f"{shown} is a document of an office program or a book: save it as plain text")

        def opened(info: zipfile.ZipInfo) -> Any:
            if info.flag_bits & 1:
                raise InputError(f"{shown} is protected by a password: unpack it")
            return archive.open(info)

        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, functools.partial(opened, info)


def tar_members(path: str, opener: Callable[..., Any] = open) -> Members:
    """The regular files in a tar file, which `opener` opens."""
    with opener(path, "rb") as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # members in their order, since gzip cannot seek back
            for member in archive:
                if member.isreg():
                    yield member.name, functools.partial(archive.extractfile, member)
        while stream.read(1 << 20):  # to the end, where gzip checks its checksum
            pass

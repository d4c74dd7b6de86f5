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
    and the directory are local; the directory is made if needed.

    Raises:
        InputError: the archive is damaged.
    """
    check_file(archive)
    os.makedirs(directory, exist_ok=True)
    paths: list[str] = []
    try:
        with named_damage(archive):
            _extract(archive, wanted, directory, paths)
    except InputError:
        for path in paths:
            os.remove(path)
        raise
    return sorted(paths)


def _extract(archive: str, wanted: str, directory: str, paths: list[str]) -> None:
    """Extracts members; adds the path of each to `paths` before it is written."""
    for name, open_member in _members(archive):
        name = re.split(r"[/\\]", name)[-1]
        if not re.fullmatch(wanted, name):
            continue
        path = os.path.join(directory, name)
        if path in paths:
            raise InputError(f"{archive} holds {name} twice: remove one of them")
        with open_member() as member, open(path, "wb") as file:
            paths.append(path)
            shutil.copyfileobj(member, file, 1 << 20)


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


def _members(archive: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields (name, open) of the regular files."""
    if archive.endswith(".zip"):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                if not info.is_dir():
                    yield info.filename, functools.partial(file.open, info)
    elif archive.endswith((".tgz", ".tar.gz", ".tar")):
        with open(archive, "rb") if archive.endswith(".tar") else gzip.open(archive) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # members in their order, since gzip cannot seek back
                for member in tar:
                    if member.isreg():
                        yield member.name, functools.partial(tar.extractfile, member)
            while stream.read(1 << 20):  # to the end, where gzip checks its checksum
                pass
    else:
        name = os.path.basename(archive).removesuffix(".gz")
        yield name, functools.partial(gzip.open, archive)

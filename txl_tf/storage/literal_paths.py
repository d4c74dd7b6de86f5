"""Paths taken literally, where TensorFlow would take them for patterns.

TensorFlow opens the files of a checkpoint by a glob. So it finds none in a folder named lr=[1e-3], and in one named
run* it also finds those of other folders. Everything in txl_tf that TensorFlow globs goes through this module.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from txl_tf.errors import InputError, one_line

_PATTERN = re.compile(r"[\[\]*?\\]")


def has_pattern(path: str) -> bool:
    """Whether TensorFlow would take a local path for a pattern."""
    return "://" not in path and bool(_PATTERN.search(path))


@contextlib.contextmanager
def plain_prefix(prefix: str) -> Iterator[str]:
    """A path without signs of patterns that leads to the files of the checkpoint `prefix`, as long as the block runs.

    It is `prefix` itself if that has no such signs; otherwise it leads to links in a temporary folder. Paths such as
    gs:// are not changed. InputError if there is no temporary folder without such signs.
    """
    if not has_pattern(prefix):
        yield prefix
        return
    with _plain_folder() as folder:
        yield _link_files(prefix, folder)


def checkpoint_reader(prefix: str) -> Any:
    """TensorFlow's reader of a checkpoint, of any local path or gs://; raises what tf.train.load_checkpoint raises."""
    if not has_pattern(prefix):
        return tf.train.load_checkpoint(prefix)
    folder = _plain_folder()
    reader = tf.train.load_checkpoint(_link_files(prefix, folder.name))
    weakref.finalize(reader, folder.cleanup)  # it opens files when their first tensor is read
    return reader


def load_saved_model(export_dir: str) -> Any:
    """The result of tf.saved_model.load, of any local path or gs://; InputError if there is none that it can load."""
    try:
        if not has_pattern(export_dir):
            return tf.saved_model.load(export_dir)
        with _plain_folder() as folder:
            link = os.path.join(folder, "export")
            os.symlink(os.path.join(os.getcwd(), export_dir), link)
            return tf.saved_model.load(link)
    except (OSError, tf.errors.OpError, ValueError) as error:
        raise InputError(f"{export_dir} is not a SavedModel that can be loaded ({one_line(error)})") from error


def _plain_folder() -> tempfile.TemporaryDirectory[str]:
    """A new temporary folder whose own path is not a pattern, even if that of all temporary files is one."""
    usual = tempfile.gettempdir()
    for place in (usual, "/tmp", "/var/tmp", "/dev/shm"):
        if not has_pattern(place) and os.access(place, os.W_OK | os.X_OK):
            return tempfile.TemporaryDirectory(prefix="checkpoint", dir=place)
    raise InputError(f"TensorFlow takes TMPDIR={usual} for a pattern: set TMPDIR to a folder without [, ], *, ? and \\")


def _link_files(prefix: str, folder: str) -> str:
    plain, whole = os.path.join(folder, "checkpoint"), os.path.join(os.getcwd(), prefix)  # abspath drops "link/.."
    for file in files_of(whole):
        os.symlink(file, plain + file[len(whole) :])
    return plain


def files_of(prefix: str) -> list[str]:
    """The paths of a checkpoint's files, which TensorFlow names by their common beginning; sorted."""
    folder, name = os.path.split(prefix)
    names = listed(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    return [prefix.removesuffix(name) + file for file in sorted(names) if file.startswith(f"{name}.")]


def lacks_files(prefix: str) -> bool:
    """Whether a file of a checkpoint is not listed in its folder: the index, or one of the data files."""
    folder, name = os.path.split(prefix)
    names = set(listed(folder or "."))
    counts = {int(m[1]) for file in names if (m := re.fullmatch(re.escape(name) + r"\.data-\d+-of-(\d+)", file))}
    needed = {f"{name}.index"} | {f"{name}.data-{i:05d}-of-{n:05d}" for n in counts for i in range(n)}
    return not counts or not needed <= names


def listed(folder: str) -> list[str]:
    """The names in a folder, local or gs://; InputError if one is not UTF-8, which TensorFlow needs."""
    try:
        return tf.io.gfile.listdir(folder)
    except UnicodeDecodeError as error:
        raise InputError(f"{folder} has a file whose name is not UTF-8 ({error.object!r}): rename it") from error


def files_named(folder: str, pattern: str) -> list[str]:
    """The paths of files and folders in a folder, local or gs://, whose names fnmatch a pattern; sorted.

    The folder is taken literally; if it does not exist, the result is empty.
    """
    names = listed(folder) if tf.io.gfile.isdir(folder) else []
    names = [name.rstrip("/") for name in names]  # a bucket's folders end in a slash
    return sorted(tf.io.gfile.join(folder, name) for name in names if fnmatch.fnmatchcase(name, pattern))


def matches(path: str) -> list[str]:
    """The files and folders that a path means: itself if it exists, otherwise its matches as a pattern; sorted.

    In a pattern ** means all folders below; it is an InputError in a path such as gs://. Names that begin with a dot
    match only patterns that do.
    """
    if tf.io.gfile.exists(path):
        return [path]
    if "://" not in path:
        return sorted(glob.glob(path, recursive=True))
    if "**" in path:
        raise InputError(f"{path}: ** is for local files; give the directory, whose folders are all read")
    return sorted(tf.io.gfile.glob(path))

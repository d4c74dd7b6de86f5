"""Files, local or gs://: written completely or not at all, and read with errors in one line."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from txl_tf.errors import InputError, one_line
from txl_tf.storage.literal_paths import files_of, listed
from txl_tf.storage.local_files import check_file, unreadable
from txl_tf.storage.strict_json import Fields, check_record, parse_json


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[tf.io.gfile.GFile]:
    """A binary file to write to, which replaces `path` when the block ends without an error.

    Until then the bytes are in PATH.partial, so that a reader never sees half a file. A device or a pipe, such as
    /dev/stdout, is not replaced but written to. Missing folders are made. An error removes PATH.partial.
    """
    if _is_device(path):
        with tf.io.gfile.GFile(path, "wb") as file:
            yield file
        return
    make_folder_of(path)
    try:
        with tf.io.gfile.GFile(path + ".partial", "wb") as file:
            yield file
        tf.io.gfile.rename(path + ".partial", path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(path + ".partial")
        raise


def make_folder_of(path: str) -> None:
    """Makes the folder of a local file, if it is missing."""
    if "://" not in path:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def write_atomically(path: str, content: str | bytes) -> None:
    """Writes a file completely or not at all; text becomes UTF-8."""
    with atomic_writer(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_result(path: str, content: str | bytes) -> None:
    """Writes what a command has computed; if that fails, InputError as by `kept_elsewhere`."""
    try:
        write_atomically(path, content)
    except (OSError, tf.errors.OpError) as error:
        raise kept_elsewhere(path, content, "", error) from error


def kept_elsewhere(path: str, content: str | bytes, end: str, error: Exception) -> InputError:
    """The error for a result that cannot be written to `path`, after it is written to another place, which it names.

    That is a new file beside `path` with its name and `end`, else one in the folder for temporary files, else standard
    output.
    """
    what = "" if isinstance(error, InputError) else f"{path} cannot be written: "
    said = f"{what}{one_line(error)}; the results stand"
    for beside in (False,) if _is_device(path) else (True, False):
        with contextlib.suppress(OSError, tf.errors.OpError):
            folder = os.path.dirname(path) if beside else tempfile.gettempdir()
            file = joined(folder, os.path.basename(path))
            names = itertools.chain([f"{file}{end}"], (f"{file}_{number}{end}" for number in itertools.count(2)))
            place = next(name for name in names if not tf.io.gfile.exists(name))
            write_atomically(place, content)
            return InputError(f"{said} in {place}")
    sys.stdout.buffer.write(content.encode() if isinstance(content, str) else content)
    return InputError(f"{said} on standard output")


@contextlib.contextmanager
def complete_directory(directory: str) -> Iterator[str]:
    """A directory to write to, which becomes `directory` when the block ends without an error.

    Until then it is DIRECTORY.partial, so that half of it is never taken for the whole, and a command that was killed
    can be started again. An error removes it. `require_new_directory` must accept it.
    """
    partial = directory.rstrip("/") + ".partial"
    if tf.io.gfile.exists(partial):
        tf.io.gfile.rmtree(partial)
    try:
        yield partial
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.rmtree(partial)
        raise
    if tf.io.gfile.exists(directory):  # empty
        tf.io.gfile.rmtree(directory)
    tf.io.gfile.rename(partial, directory)


def joined(*parts: str) -> str:
    """The path of these parts, without empty ones."""
    return tf.io.gfile.join(*filter(None, parts))


def require_new(path: str, flag: str) -> None:
    """Raises InputError if `path` is a file with content, a directory or a link to nothing, or cannot be made.

    The path may be gs:// or a device; `flag` gave it.
    """
    if _is_device(path):
        return
    _refuse_dead_link(path, flag)
    if tf.io.gfile.isdir(path):
        raise InputError(f"{path} is a directory: give a new file as --{flag}")
    if tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length:
        raise InputError(f"{path} exists and would be overwritten: remove it, or give a new --{flag}")
    if "://" not in path:
        _require_place(path + ".partial", flag)


def _require_place(path: str, flag: str) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)  # fails for a path through a file or a circle of links, and for a name that is too long
    except OSError as error:
        raise InputError(f"--{flag}={path.removesuffix('.partial')}: {error.strerror}; give another place") from error
    folder = os.path.dirname(path) or "."
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder} cannot be written to: give another --{flag}")


def require_new_directory(path: str, flag: str) -> None:
    """Raises InputError if `path` exists and is not an empty directory; arguments as for `require_new`."""
    _refuse_dead_link(path, flag)
    if tf.io.gfile.isdir(path):
        if listed(path):
            raise InputError(f"{path} is not empty: give a new --{flag}")
    elif tf.io.gfile.exists(path):
        raise InputError(f"{path} is not a directory: give a new --{flag}")


def _refuse_dead_link(path: str, flag: str) -> None:
    if os.path.islink(path) and not os.path.exists(path):
        raise InputError(f"{path} is a link to nothing: remove it, or give a new --{flag}")


def _is_device(path: str) -> bool:
    return "://" not in path and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def check_checkpoint(prefix: str) -> None:
    """`check_file` for all files of a checkpoint, which TensorFlow names by the beginning of their paths."""
    for path in [] if "://" in prefix else files_of(prefix):
        check_file(path, "copy the checkpoint again")


def read_bytes(path: str, remedy: str = "") -> bytes:
    """The content of a file, local or gs://; or InputError, which ends in `remedy`."""
    check_file(path, remedy)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except (tf.errors.OpError, OSError) as error:
        raise unreadable(path, error, remedy) from error


def read_text(path: str, remedy: str = "") -> str:
    """The text of a UTF-8 file; arguments and errors as for `read_bytes`, and InputError if it is not UTF-8."""
    data = read_bytes(path, remedy)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}, line {line} is not UTF-8 text ({error})" + (f": {remedy}" if remedy else "")
        ) from error


def read_lines(path: str, remedy: str = "") -> list[str]:
    r"""The lines of a UTF-8 file without their "\n"; arguments and errors as of `read_text`. An empty file has none.

    Other characters at which `str.splitlines` splits, such as U+2028, stay in their line: they may stand in words.
    """
    text = read_text(path, remedy)
    return text.removesuffix("\n").split("\n") if text else []


def read_texts(path: str) -> list[str]:
    r"""The texts of a UTF-8 file with one text per line; arguments and errors as of `read_text`.

    The texts do not include the end of a line, "\n" or "\r\n", or a byte order mark at the file's start.
    """
    lines = [line.removesuffix("\r") for line in read_lines(path)]
    return [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []


def read_json(path: str, remedy: str = "") -> Any:
    """The value in a JSON file; arguments and errors as of `read_text` and `parse_json`."""
    return parse_json(read_bytes(path, remedy), path, remedy)


def read_record(path: str, fields: Fields, remedy: str = "") -> dict[str, Any]:
    """The object in a JSON file; fields as for `check_record`, the rest as for `read_json`."""
    return check_record(read_json(path, remedy), path, fields, remedy)


def read_records(path: str, fields: Fields, remedy: str) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines, as for `read_record`; an incomplete last line is ignored."""
    records = []
    for number, line in enumerate(read_bytes(path, remedy).split(b"\n")[:-1], start=1):
        where = f"{path}, line {number}"
        records.append(check_record(parse_json(line, where, remedy), where, fields, remedy))
    return records


def one_level_down(directory: str, name: str) -> str:
    """The first folder in a directory, by name, that has a file of this name; "" if none has."""
    folders = sorted(listed(directory)) if tf.io.gfile.isdir(directory) else []
    paths = (joined(directory, folder) for folder in folders)
    return next((path for path in paths if tf.io.gfile.exists(joined(path, name))), "")


def digest(path: str, kind: str = "sha256") -> str:
    """The checksum of a file's bytes as hexadecimal digits; `kind` as hashlib names it. InputError as `check_file`."""
    check_file(path)
    state = hashlib.new(kind, usedforsecurity=False)
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()

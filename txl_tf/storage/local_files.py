"""Local files, read without TensorFlow, which is slow to load."""

from __future__ import annotations

import codecs
import os
import stat
import types
from typing import Any

from txl_tf.errors import InputError, one_line


def check_file(path: str, remedy: str = "") -> None:
    """Raises InputError unless a local path is a file that has an end; paths such as gs:// are not checked.

    A pipe may block for ever when it is opened, and a device such as /dev/zero never ends. `remedy` ends the message.
    """
    if "://" in path:
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error, remedy) from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
        raise InputError(f"{path} is {kind}, not a file: {remedy or 'give a file'}")


def functions_for(path: str) -> Any:
    """`exists`, `isdir` and `walk` for a path: those of Python for a local one, or else those of TensorFlow."""
    if "://" not in path:
        return types.SimpleNamespace(exists=os.path.exists, isdir=os.path.isdir, walk=os.walk)
    import tensorflow as tf

    return tf.io.gfile


def without_links_back(path: str) -> str:
    """A path that means the same for TensorFlow as for the system.

    TensorFlow drops "LINK/.." from a path, but the folder above a link's target is not the folder above the link.
    """
    head, back, rest = (path + "/").rpartition("/../")
    if not back or "://" in path or os.path.realpath(head + back) == os.path.realpath(os.path.normpath(head + back)):
        return path
    return os.path.join(os.path.realpath(head + back), rest).rstrip("/")


def read_local(path: str) -> bytes:
    """The content of a local file. InputError if it cannot be read or has no end."""
    check_file(path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error, "") from error


_OF_NO_TEXT = {"unicode-escape", "raw-unicode-escape", "idna", "punycode"}
"""Python's codecs that are not encodings of files. (It refuses base64 and the like by itself.)"""


def check_encoding(encoding: str) -> None:
    """Raises InputError unless Python knows an encoding of text by this name."""
    try:
        "a".encode(encoding)
        if codecs.lookup(encoding).name.replace("_", "-") in _OF_NO_TEXT:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:  # ValueError: "undefined", or a name that cannot be one
        raise InputError(
            f"--encoding={encoding} is unknown as an encoding of text: give one such as cp1252, latin-1 or utf-16"
        ) from error


def unreadable(path: str, error: Exception, remedy: str) -> InputError:
    """The error for a file that cannot be read; `remedy` ends its message."""
    return InputError(f"{path} cannot be read ({one_line(error)})" + (f": {remedy}" if remedy else ""))

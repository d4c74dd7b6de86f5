"""Keeps libraries' messages about processors and drivers off standard error while they load."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from typing import TextIO

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
ASKED_FOR = _LEVEL in os.environ
"""Whether someone set TensorFlow's variable, and wants to see everything. (Keras sets it, too, when it loads.)"""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While the block runs, only Python writes to the process's standard error, unless more is ASKED_FOR.

    TensorFlow writes there from C++, where neither its variable nor Python's logging stops all of it. If the block
    loads TensorFlow, its later lines about devices and what it compiles are also off, and its advice on tracing.
    """
    try:
        kept = None if ASKED_FOR else os.dup(2)
    except OSError:  # it is closed
        kept = None
    if kept is None:
        yield
        return
    stderr, shown, nothing = sys.stderr, _copy_of_stderr(), os.open(os.devnull, os.O_WRONLY)
    stderr.flush()
    os.environ[_LEVEL] = "3"  # no notes, warnings and errors, which also become exceptions; read when TensorFlow loads
    logging.getLogger("tensorflow").addFilter(_is_no_advice)
    if stderr is sys.__stderr__:  # not the stream of a notebook or a test
        sys.stderr = shown
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nothing)
        os.close(kept)
        sys.stderr = stderr
        os.environ.pop(_LEVEL, None)  # or processes that this one starts would take it for asked for


@functools.cache
def _copy_of_stderr() -> TextIO:
    """A file that stays open, since loggers that are made meanwhile keep it."""
    return os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def _is_no_advice(record: logging.LogRecord) -> bool:
    return "triggered tf.function retracing" not in str(record.msg)

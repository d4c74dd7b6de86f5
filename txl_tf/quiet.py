"""Keeps libraries' messages about processors and drivers off standard error while they load."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

ASKED_FOR = "TF_CPP_MIN_LOG_LEVEL" in os.environ
"""Whether someone set TensorFlow's variable, and wants to see everything. (Keras sets it, too, when it loads.)"""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """While the block runs, only Python writes to the process's standard error, unless more is ASKED_FOR.

    TensorFlow writes there from C++, where neither its variable nor Python's logging stops all of it.
    """
    try:
        kept = None if ASKED_FOR else os.dup(2)
    except OSError:  # it is closed
        kept = None
    if kept is None:
        yield
        return
    stderr, nothing = sys.stderr, os.open(os.devnull, os.O_WRONLY)
    stderr.flush()
    with os.fdopen(kept, "w", buffering=1, encoding="utf-8", errors="backslashreplace") as shown:
        if stderr is sys.__stderr__:  # not the stream of a notebook or a test
            sys.stderr = shown
        os.dup2(nothing, 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(nothing)
            sys.stderr = stderr

"""InputError, an error that the user can fix, and messages of other errors in one line."""

from __future__ import annotations

import re


class InputError(ValueError):
    """Bad input: a flag, a path, a file. The message is one line: what is wrong, where, how to fix it.

    Scripts print it without a traceback and exit with status 1 (`-v=1` shows the traceback).
    """


def one_line(error: BaseException | str) -> str:
    """An exception's message without line breaks and without TensorFlow's names of operations."""
    message = str(getattr(error, "message", error))  # str() of a TensorFlow error may add a stack trace
    return " ".join(re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", message).split())

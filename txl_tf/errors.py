"""The one exception that means "the user can mend this", and others in one line."""

import re


class InputError(ValueError):
    """Bad input from outside: a flag, a path, a file. The message is one line: what, where, how to mend.

    Scripts print it without a traceback and exit with status 1 (`-v=1` shows the traceback).
    """


def one_line(error):
    """An exception's message without line breaks and without TensorFlow's names of operations."""
    message = str(getattr(error, "message", error))  # str() of a TensorFlow error may add a stack trace
    return " ".join(re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", message).split())

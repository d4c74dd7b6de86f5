"""Only a process's own lines reach the terminal. Commands outside serving/ also use this module.

The C++ libraries of TensorFlow and SentencePiece write to file descriptor 2, some of them before any log level
applies, others when the first graph runs. So `sys.stderr`, to which Python writes, becomes a copy of that descriptor,
and then descriptor 2 becomes another file for the rest of the process.
"""

import atexit
import contextlib
import datetime
import faulthandler
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings

LOGGER = logging.getLogger("serving")

WATCH = """
if read -r failure; then :
elif grep -q '^Fatal Python error' "$0"; then failure=crash; tail -n 40 "$0"
fi
if [ "$failure" ] && [ -s "$0" ]; then echo "what libraries wrote is in $0"; else rm -f "$0"; fi
"""
"""A shell that outlives the process: its input ends when the process ends, however that happens."""


def leave_when_interrupted():
    """From now on Ctrl-C ends the process at once: a library that is being imported could swallow an exception."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is ignored in jobs in the background
        signal.signal(signal.SIGINT, leave)


def leave(*_):
    """Ends the process. There is nothing to clean up yet."""
    os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(128 + signal.SIGINT)


def open_what_is_closed():
    """Makes closed standard streams (`>&-`) discard output, or the next opened file would take their descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def own_stderr():
    """Makes `sys.stderr` a copy of descriptor 2. It stays the terminal, whatever happens to the descriptor."""
    sys.stderr.flush()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def divert_libraries(path=None):
    """Appends output to descriptor 2, and Python's warnings, to a file.

    Call it after `own_stderr`, before libraries load.

    Args:
        path: of the file; None: a temporary file, which is deleted at the end. After a traceback or a crash it stays,
            and a message names it; a crash also shows its last lines, with Python's stack.

    Raises:
        OSError: the file `path` cannot be written.
    """
    stack = sys.stderr
    if path is not None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    else:
        try:
            file, stack = _watched_file(), 2
        except OSError:  # no place for files, or no shell
            file = os.open(os.devnull, os.O_WRONLY)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(stack)
    warnings.showwarning = _write_warning


def _write_warning(message, category, filename, lineno, file=None, line=None):
    """Writes a warning of Python where libraries write: `warnings` would write it to `sys.stderr`."""
    del file
    os.write(2, warnings.formatwarning(message, category, filename, lineno, line).encode(errors="backslashreplace"))


def _watched_file():
    """The descriptor of a temporary file that a shell watches over."""
    file, path = tempfile.mkstemp(prefix="libraries-", suffix=".log")
    read, write = os.pipe()
    try:
        shell = subprocess.Popen(["sh", "-c", WATCH, path], stdin=read, stdout=sys.stderr, start_new_session=True)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(read)

    def end():
        if hasattr(sys, "last_value"):  # Python has shown a traceback
            os.write(write, b"traceback\n")
        os.close(write)
        shell.wait()

    atexit.register(end)
    return file


class JsonLines(logging.Formatter):
    """A record as a line of JSON: its time, level and text, or the fields that it was given as a dict.

    For an exception it has only the type and the place where it was raised, and for a library's line only the logger's
    name: their messages may show what a client sent.
    """

    def format(self, record):
        """The line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line = {"time": time.isoformat(timespec="milliseconds")}
        if isinstance(record.msg, dict):
            line |= record.msg
        else:
            own = record.name == LOGGER.name
            message = " ".join(record.getMessage().split()) if own else f"a message of {record.name}"
            line |= {"level": record.levelname.lower(), "message": message}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            if frames := traceback.extract_tb(error.__traceback__):
                line["at"] = f"{frames[-1].filename}:{frames[-1].lineno}"
        return json.dumps(line)


def log_json_lines(stream=None):
    """Makes every logger of the process write lines of JSON to a stream, sys.stderr by default."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.raiseExceptions = False  # a terminal that is gone must not end requests
    logging.root.handlers[:] = [handler]
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        with contextlib.suppress(AttributeError):  # absl's own
            logger.handlers.clear()
        logger.propagate = True
    LOGGER.setLevel(logging.INFO)

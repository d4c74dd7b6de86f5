"""What the process writes to the terminal: our lines alone.

The C++ libraries below TensorFlow and SentencePiece write to file descriptor 2, some of them before any log level
applies, others when the first graph runs. So descriptor 2 becomes another file for the rest of the process, and
`sys.stderr`, what Python writes, becomes a copy of the descriptor that was there before.
"""

import contextlib
import datetime
import json
import logging
import os
import sys
import traceback

LOGGER = logging.getLogger("serving")


def divert_libraries(path=os.devnull):
    """Appends what libraries write to descriptor 2 to a file; to be called before they are imported.

    Args:
        path: of the file; the default drops it.

    Raises:
        OSError: the file cannot be written.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if path == os.devnull else "0")
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    terminal = os.dup(2)
    os.dup2(file, 2)
    os.close(file)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


class JsonLines(logging.Formatter):
    """A record as a line of JSON: its time, level and text, or the fields that it was given as a dict.

    An exception is its type, its message and the place where it was raised.
    """

    def format(self, record):
        """The line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line = {"time": time.isoformat(timespec="milliseconds")}
        if isinstance(record.msg, dict):
            line |= record.msg
        else:
            line |= {"level": record.levelname.lower(), "message": " ".join(record.getMessage().split())}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
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

"""Imported before anything slow: from then on Ctrl-C ends a command at once and with one line.

Python's own answer is a traceback, and TensorFlow's import can swallow it.
"""

import os
import signal

TERMINAL = os.dup(2)
"""Standard error, also while it is hidden."""


def leave(*_):
    """Ends the process. There is nothing to clean up yet."""
    os.write(TERMINAL, b"interrupted\n")
    os._exit(128 + signal.SIGINT)


def raise_from_now_on():
    """From now on Ctrl-C raises KeyboardInterrupt, so that the command can clean up."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is ignored in jobs in the background
    signal.signal(signal.SIGINT, leave)

"""The first seconds of a command, while TensorFlow loads: Ctrl-C, garbage collection, imports, output.

Imported first of all. From this import on Ctrl-C ends the command at once, with one line, and `sys.stderr` is for the
command's own lines; `terminal.divert_libraries` keeps libraries' messages apart from them.

Keras runs on TensorFlow, whatever KERAS_BACKEND and the user's keras.json say. The garbage collector runs less often,
and not at the end of the command (evidence/lab/start_up.md). While TensorFlow and Keras load, they do not find some
slow packages, which they would import for functions that no command uses.
"""

import atexit
import gc
import importlib.abc
import os
import pathlib
import signal
import sys

ROOT = str(pathlib.Path(__file__).parents[1])
sys.path.append(ROOT)
from serving import terminal  # noqa: E402 (it must be findable first)

sys.path.remove(ROOT)  # or libraries would find its other folders by name, such as "docker"

NOT_NEEDED = ("jax", "matplotlib", "pandas", "scipy", "sklearn")
"""Packages that TensorFlow and Keras import if they find them."""


class NotWhileLoading(importlib.abc.MetaPathFinder):
    """Finds none of the packages that are not needed while TensorFlow or Keras loads."""

    def find_spec(self, name, path, target=None):
        """See `importlib.abc.MetaPathFinder`."""
        if name in NOT_NEEDED and any(is_loading(module) for module in ("tensorflow", "keras")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def is_loading(module):
    """Whether a module is being imported, and its import has not ended yet."""
    return getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False)


os.environ |= {"KERAS_BACKEND": "tensorflow", "KERAS_HOME": os.path.join(os.devnull, "none")}
sys.meta_path.insert(0, NotWhileLoading())
terminal.open_what_is_closed()
terminal.own_stderr()
gc.set_threshold(100_000)
atexit.register(gc.freeze)


interrupts = []
"""Not empty: Ctrl-C was pressed after `raise_from_now_on`."""


def raise_from_now_on():
    """From now on Ctrl-C raises KeyboardInterrupt, so that the command can clean up; a second one ends it at once."""
    if signal.getsignal(signal.SIGINT) is terminal.leave:
        signal.signal(signal.SIGINT, interrupt)
        sys.unraisablehook = interrupt_again


def interrupt(*_):
    """Raises KeyboardInterrupt, and notes it, since a library may drop it or turn it into another exception."""
    interrupts.append(signal.SIGINT)
    signal.signal(signal.SIGINT, terminal.leave)
    raise KeyboardInterrupt


def interrupt_again(dropped):
    """Raises a KeyboardInterrupt anew that Python dropped, since it came in a destructor or the like."""
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def ignore_from_now_on():
    """From now on Ctrl-C does nothing: the command is done, and Python, which takes time to end, would be killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def write_utf8():
    """Output is UTF-8 from now on in every locale; characters that UTF-8 cannot hold are escaped."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


terminal.leave_when_interrupted()

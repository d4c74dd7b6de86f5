"""The first seconds of a command, while TensorFlow loads: Ctrl-C, garbage collection, imports, output.

Imported first of all.

Python answers Ctrl-C with a traceback, and TensorFlow's import can swallow it. From this import on Ctrl-C ends the
command at once, with one line. From here on, too, `sys.stderr` is for the command's own lines;
`terminal.divert_libraries` keeps libraries' messages apart from them.

Keras runs as this project was tested: on TensorFlow, whatever KERAS_BACKEND and the user's keras.json say.

Python's garbage collector looks for unused objects after every few hundred new ones. TensorFlow makes millions of
objects while it loads and traces a model, which makes this slow. So the collector runs less often, and not at the end
of the command (lab/start_up.md).

TensorFlow and Keras import some packages if they find them, such as matplotlib, jax, scikit-learn and SciPy, for
functions that no command uses. They are slow to load. So while these two load, such packages are not found; later
imports find them.
"""

import atexit
import gc
import importlib.abc
import os
import pathlib
import signal
import sys
import threading
import time
import traceback

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
    """From now on Ctrl-C raises KeyboardInterrupt, so that the command can clean up."""
    if signal.getsignal(signal.SIGINT) is terminal.leave:
        signal.signal(signal.SIGINT, interrupt)
        sys.unraisablehook = send_again


def interrupt(*_):
    """Raises KeyboardInterrupt, and notes it, since functions that C++ calls may turn it into another exception."""
    interrupts.append(signal.SIGINT)
    raise KeyboardInterrupt


def ignore_from_now_on():
    """From now on Ctrl-C does nothing: the command is done, and Python, which takes time to end, would be killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def send_again(unraisable):
    """`sys.unraisablehook`: Python drops exceptions of destructors. If one is Ctrl-C, it is sent once more."""
    if unraisable.exc_type is KeyboardInterrupt:
        threading.Thread(target=send_after_hook, daemon=True).start()
    else:
        sys.__unraisablehook__(unraisable)


def send_after_hook():
    """Sends Ctrl-C to the main thread once it has left `send_again`, where it would be dropped again."""
    main = threading.main_thread().ident
    while any(frame.f_code is send_again.__code__ for frame, _ in traceback.walk_stack(sys._current_frames()[main])):
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)


def write_utf8():
    """Output is UTF-8 from now on in every locale; characters that UTF-8 cannot hold are escaped."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


terminal.leave_when_interrupted()

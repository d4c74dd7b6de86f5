"""tqdm's progress bars on standard error, with one look for all commands: how much is done, speed, time left.

On a terminal a bar is redrawn in place. In a log or a pipe it is a new line every 15 seconds, and nothing before.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, int], None]
"""A function to call with the work done, and all work."""
_LOOK = "{desc} [{bar:30}] {percentage:3.0f} %, {n_fmt} of {total_fmt}, {rate_noinv_fmt}, {remaining} left{postfix}"


def _write_line(drawn: str) -> None:
    """Writes each bar that tqdm draws as a new line."""
    if text := drawn.strip():
        sys.stderr.write(text + "\n")


def progress_bar(title: str, total: int, unit: str, done: int = 0, leave: bool = True, shown: bool = True) -> Any:
    """A tqdm bar, for use in a `with` statement or with close(); update(n) notes that n more units are done.

    Args:
        total: amount of work, in `unit`s.
        unit: for display, such as "B"; "": no speed is shown, since the pieces of work differ too much.
        done: work done already, which does not count for the speed.
        leave: keep the bar on a terminal when it is closed.
        shown: False: nothing is drawn.
    """
    from tqdm import tqdm  # here, so that --help does without it

    tqdm.monitor_interval = 0  # no thread that redraws, and
    tqdm.set_lock(threading.RLock())  # no lock between processes
    terminal = sys.stderr.isatty()
    seconds = 0.2 if terminal else 15
    return tqdm(
        desc=title,
        total=max(total, 1),
        unit=unit,
        initial=done,
        leave=leave and terminal,
        disable=not shown,
        file=sys.stderr if terminal else types.SimpleNamespace(write=_write_line, flush=sys.stderr.flush),
        mininterval=seconds,
        delay=seconds,
        miniters=1,
        unit_scale=total >= 10_000,
        ascii=".#",
        bar_format=_LOOK if unit else _LOOK.replace("{rate_noinv_fmt}, ", ""),
        dynamic_ncols=terminal,
    )


@contextlib.contextmanager
def every(seconds: float, tell: Callable[[], None]) -> Iterator[None]:
    """While the block runs, a thread calls tell() again and again, with a pause of `seconds` before each call."""
    ended = threading.Event()

    def telling() -> None:
        while not ended.wait(seconds):
            tell()

    thread = threading.Thread(target=telling, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def reported(title: str, unit: str, leave: bool = True, shown: bool = True) -> Iterator[Callable[..., None]]:
    """A function report(done, total, **numbers) that draws a `progress_bar`, whose speed counts from the first one."""
    bar: Any = None

    def report(done: int, total: int, **numbers: float) -> None:
        nonlocal bar
        if bar is None:
            bar = progress_bar(title, total, unit, done, leave, shown)
        if numbers:
            bar.set_postfix({name: f"{number:.4f}" for name, number in numbers.items()}, refresh=False)
        bar.update(done - bar.n)

    try:
        yield report
        if bar is not None:
            bar.update(bar.total - bar.n)
    finally:
        if bar is not None:
            bar.close()

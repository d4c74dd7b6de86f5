"""A progress bar on stderr: redrawn in place on a terminal, else a new line every 15 seconds."""

from __future__ import annotations

import sys
import time


class Progress:
    """Shows how much of `total` is done, the speed and the time left.

    Args:
        title: what is being done.
        total: amount of work, in `unit`s.
        unit: for display, such as "B".
    """

    def __init__(self, title: str, total: int, unit: str):
        self._title, self._total, self._unit = title, max(total, 1), unit
        self._start = self._shown = time.monotonic()
        self._first: int | None = None
        self._terminal = sys.stderr.isatty()

    def update(self, done: int) -> None:
        """Notes that `done` units are done; redraws at most every 0.2 seconds, or 15 without a terminal."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._shown >= (0.2 if self._terminal else 15):
            self._shown = now
            self._show(done, now)

    def close(self) -> None:
        """Draws the finished bar."""
        if self._terminal:
            self._show(self._total, time.monotonic())
            sys.stderr.write("\n")

    def _show(self, done: int, now: float) -> None:
        speed = (done - (self._first or 0)) / max(now - self._start, 1e-3)
        left = f", {max(self._total - done, 0) / speed:.0f} s left" if speed > 0 else ""
        share = min(done / self._total, 1)
        bar = "#" * round(30 * share) + "." * (30 - round(30 * share))
        text = f"{self._title} [{bar}] {share:4.0%} {done / 1e6:,.1f} M{self._unit}, {speed / 1e6:.1f} M/s{left}"
        sys.stderr.write(f"\r{text:<100}" if self._terminal else text + "\n")
        sys.stderr.flush()

"""A progress bar on stderr: one line that is redrawn on a terminal, a line now and then elsewhere."""

import sys
import time


class Progress:
    """Shows how much of `total` is done, how fast, and for how long still.

    Args:
        title: what is being done.
        total: in `unit`s.
        unit: "B", ..
    """

    def __init__(self, title, total, unit):
        self._title, self._total, self._unit = title, max(total, 1), unit
        self._start = self._shown = time.monotonic()
        self._first = None
        self._terminal = sys.stderr.isatty()

    def update(self, done):
        """`done` units are done; shows it if it is time to."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._shown >= (0.2 if self._terminal else 15):
            self._shown = now
            self._show(done, now)

    def close(self):
        """All is done."""
        if self._terminal:
            self._show(self._total, time.monotonic())
            sys.stderr.write("\n")

    def _show(self, done, now):
        speed = (done - self._first) / max(now - self._start, 1e-3)
        left = f", {(self._total - done) / speed:.0f} s left" if speed > 0 else ""
        share = min(done / self._total, 1)
        bar = "#" * round(30 * share) + "." * (30 - round(30 * share))
        text = f"{self._title} [{bar}] {share:4.0%} {done / 1e6:,.1f} M{self._unit}, {speed / 1e6:.1f} M/s{left}"
        sys.stderr.write(f"\r{text:<100}" if self._terminal else text + "\n")
        sys.stderr.flush()

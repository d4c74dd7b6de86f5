"""Saves and ends training at SIGTERM, which a preempted machine gets, and at SIGINT (Ctrl-C)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TrainingStoppedError(Exception):
    """Training was saved and ended before its last step because of a signal; the same command continues it."""

    def __init__(self, number: int, step: int):
        super().__init__(
            f"{signal.Signals(number).name}: saved at step {step:,}; the same command continues from there"
        )
        self.exit_status = 128 + number  # the convention of shells


class StopRequest:
    """Within this context SIGTERM and SIGINT are only recorded, in `signal`; a second signal has its usual effect."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # in other threads Python allows no handlers
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.signal = number
        self.__exit__()
        # os.write, since the signal may have interrupted a print. Not to 2, which commands keep for their libraries.
        line = f"\n{signal.Signals(number).name}: saving after this host loop; again: stops at once\n"
        try:
            descriptor = sys.stderr.fileno()
        except (AttributeError, OSError):  # in a notebook, for example
            descriptor = 2
        os.write(descriptor, line.encode())

"""Ending a run when it is told to, in good order: SIGTERM, as a preempted machine sends it, and SIGINT (Ctrl-C)."""

import os
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TrainingStoppedError(Exception):
    """A run was saved and ended before its last step, because of `signal`; the same command continues it."""

    def __init__(self, number, step):
        super().__init__(
            f"{signal.Signals(number).name}: saved at step {step:,}; the same command continues from there"
        )
        self.exit_status = 128 + number  # as shells have it


class StopRequest:
    """While this context lasts, SIGTERM and SIGINT are noted in `signal`; a second one acts at once, as ever."""

    def __init__(self):
        self.signal = None
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.signal = number
        self.__exit__()
        # Not print: the signal may have come in the middle of one.
        os.write(2, f"\n{signal.Signals(number).name}: saving when this host loop is done; again: at once\n".encode())

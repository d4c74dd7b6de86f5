"""A lock for a directory that only one process may write to: a file that names the process.

The file holds host, process and time. The process renews the time while it runs. A new process takes over the lock of
one that has ended. If that ran on this machine, it does so at once; otherwise after STALE_SECONDS without a renewal.
On a bucket, or a disk that machines share, two processes that start in the same instant may both get the lock. The one
that wrote it first finds the other's at its next renewal, and `check` then ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from typing import Any

import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.storage.files import read_record, write_atomically
from txl_tf.storage.strict_json import NUMBER, Fields

LOCK_FILE = "lock.json"
RENEW_SECONDS = 20.0
STALE_SECONDS = 180.0
_FIELDS: Fields = {"id": str, "host": str, "machine": str, "process": int, "started": str, "time": NUMBER}


class Lock:
    """Holds the lock of a directory, local or gs://, while this context is open, and renews it again and again.

    On entering, InputError if another process holds the lock.
    """

    def __init__(self, directory: str, renew_seconds: float = RENEW_SECONDS):
        self.path = tf.io.gfile.join(directory, LOCK_FILE)
        self._directory, self._renew_seconds = directory, renew_seconds
        process = os.getpid()
        self._own: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": process,
            "started": _started(process),
        }
        self._ended = threading.Event()
        self._taken_by: dict[str, Any] | None = None

    def __enter__(self) -> Lock:
        if holder := self._read():
            self._wait_for_its_end(holder)
        self._write()
        self._taken_by = self._other()  # that started in the same instant
        self.check()
        self._thread = threading.Thread(target=self._keep, name="lock", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(InputError, OSError, tf.errors.OpError):
            if self._other() is None:
                tf.io.gfile.remove(self.path)

    def check(self) -> None:
        """Raises InputError if another process has taken the lock."""
        if self._taken_by is not None:
            raise self._refusal(self._taken_by)

    def _wait_for_its_end(self, holder: dict[str, Any]) -> None:
        """Returns when the process that wrote a lock has surely ended; InputError if it runs."""
        if holder["machine"] == _machine():
            if _started(holder["process"]) == holder["started"]:
                raise self._refusal(holder)
            return
        wait = min(holder["time"] + STALE_SECONDS - time.time(), STALE_SECONDS)
        if wait > 0:
            print(
                f"{self._directory} was in use by process {holder['process']} on {holder['host']}: waiting for "
                f"{wait:.0f} s to see whether it still runs",
                flush=True,
            )
        end = time.monotonic() + wait
        while time.monotonic() < end:
            time.sleep(self._renew_seconds / 4)
            found = self._read()
            if found is None:
                return
            if found != holder:
                raise self._refusal(found)

    def _keep(self) -> None:
        while not self._ended.wait(self._renew_seconds):
            with contextlib.suppress(InputError, OSError, tf.errors.OpError):  # a full disk: the next time may succeed
                self._taken_by = self._other()
                if self._taken_by:
                    return
                self._write()

    def _other(self) -> dict[str, Any] | None:
        """The lock of another process, if there is one."""
        holder = self._read()
        return holder if holder and holder["id"] != self._own["id"] else None

    def _read(self) -> dict[str, Any] | None:
        if not tf.io.gfile.exists(self.path):
            return None
        return read_record(self.path, _FIELDS, f"if no process writes here, remove {self.path}")

    def _write(self) -> None:
        with contextlib.suppress(tf.errors.NotFoundError):  # a process that started in the same instant has renamed it
            write_atomically(self.path, json.dumps(self._own | {"time": time.time()}) + "\n")

    def _refusal(self, holder: dict[str, Any]) -> InputError:
        return InputError(
            f"{self._directory} is in use by process {holder['process']} on {holder['host']}, which renewed its lock "
            f"{max(time.time() - holder['time'], 0):.0f} s ago: wait for its end, or if it no longer runs, "
            f"remove {self.path}"
        )


def _machine() -> str:
    """Equal for processes that see each other: on one machine since its last start, in one container or in none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()


def _started(process: int) -> str:
    """When a process of this machine started, which tells apart processes with the same number; "": it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        pass
    if os.path.exists("/proc/self/stat"):
        return ""
    try:  # not Linux
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "running"

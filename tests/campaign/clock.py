"""Not a test: time limits that a loaded machine does not change, since they count the work of a process.

A process that hangs either works on without end or waits without end. The first is found by its processor time, with
that of its children. The second is found by the time in which it uses next to none: on a busy machine, a process that
has work to do still gets a part of a processor.
"""

import os
import pathlib
import subprocess
import time

IDLE = 0.02
"""A process that uses less than this part of a processor waits for something."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE = 0.02
_LOOKS = 5
"""Pauses between two readings of its processor time."""


def worked(pid):
    """The seconds of processor time that a process and its children have used; 0 if it is gone."""
    used, parents = {}, {}
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(file.parent.name)
        used[number] = sum(map(int, fields[11:15])) / _TICKS  # its own, and that of children that have ended
        parents[number] = int(fields[1])
    total, family = 0.0, [pid]
    for member in family:
        total += used.get(member, 0.0)
        family += [child for child, parent in parents.items() if parent == member]
    return total


def wait(process, seconds):
    """Waits for a process to end.

    Args:
        process: a Popen of subprocess or of processes.
        seconds: of work after which it is given up, or of idleness.

    Raises:
        subprocess.TimeoutExpired: it goes on; it still runs.
    """
    used = worked(process.pid)
    most, idle = used + seconds, 0.0
    while True:
        for _ in range(_LOOKS):
            if process.poll() is not None:
                return
            time.sleep(_PAUSE)
        before, used = used, worked(process.pid)
        idle = idle + _LOOKS * _PAUSE if used - before < IDLE * _LOOKS * _PAUSE else 0.0
        if used > most or idle > seconds:
            raise subprocess.TimeoutExpired(process.args, seconds)


def goes_on(process, seconds):
    """Lets a process work, or wait, for some seconds; whether it still runs then."""
    try:
        wait(process, seconds)
    except subprocess.TimeoutExpired:
        return True
    return False

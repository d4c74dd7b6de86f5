"""Runs commands of this repository, some at a time, and continues where an earlier call stopped. Not a script.

A job's folder holds NAME.json, its record; NAME.out, the command's standard output; and NAME.err, its standard error.
A job that has ended well is not run again. A job that was interrupted is started again with the same command, so a
training run continues from its last checkpoint.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from run_flags import shared_names

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
POLL_SECONDS = 0.1


class Job(NamedTuple):
    """A command.

    Attributes:
        name: of its files.
        script: path from the repository's root.
        flags: {flag: value}, as `as_flags` takes them.
        needs: names of jobs that must end well first.
    """

    name: str
    script: str
    flags: Mapping[str, Any]
    needs: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The arguments after `python`, as shown."""
        return [self.script, *as_flags(self.flags)]


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Flags of absl: {"mem_len": 16, "same_length": False, "cutoffs": (1, 2)} -> --mem_len=16 --nosame_length ..

    A setting of a run without a flag of its own becomes --set=NAME=VALUE.
    """

    shared = {name for config in families.run_configs() for name in shared_names(config)}

    def flag(name: str, value: Any) -> str:
        if name in shared:
            return f"--set={name}={str(value).lower()}"
        if isinstance(value, bool):
            return f"--{name}" if value else f"--no{name}"
        return f"--{name}={','.join(map(str, value)) if isinstance(value, tuple | list) else value}"

    return [flag(name, value) for name, value in values.items()]


def run_jobs(jobs: Sequence[Job], folder: str | os.PathLike, at_once: int = 1) -> None:
    """Runs the jobs that have not ended well yet, in their order as far as their needs allow.

    A KeyboardInterrupt ends the running commands with SIGTERM, at which training saves a checkpoint.

    Args:
        jobs: with different names.
        folder: for their files.
        at_once: how many run at a time; 0: none, only the records are checked.

    Raises:
        InputError: a record in the folder has another command; or, after all others have ended, commands failed.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        _require_unchanged(job, read_record(folder, job.name), folder)
    names = {name for job in jobs for name in (job.name, *job.needs)}
    ended = {name for name in names if read_record(folder, name).get("finished")}
    waiting = [job for job in jobs if job.name not in ended]
    running: list[_Running] = []
    failed: list[str] = []
    try:
        while at_once and (waiting or running):
            ready = [job for job in waiting if ended.issuperset(job.needs)][: at_once - len(running)]
            for job in ready:
                waiting.remove(job)
                running.append(_Running(job, folder))
                print(f"{time.strftime('%H:%M:%S')} {job.name}: python {shlex.join(job.command)}", flush=True)
            if not running:
                break  # all waiting jobs need one that failed or was not selected
            time.sleep(POLL_SECONDS)
            for one in [one for one in running if one.has_ended()]:
                running.remove(one)
                (failed.append if one.process.returncode else ended.add)(one.job.name)
    except KeyboardInterrupt:
        for one in running:
            one.process.terminate()
        while running := [one for one in running if not one.has_ended()]:
            time.sleep(POLL_SECONDS)
        raise
    if failed:
        errors = [_last_line(folder / f"{name}.err") for name in failed]
        told = "; ".join(f"{name} ({error})" for name, error in zip(failed, errors, strict=True))
        told = f"{counted(len(failed), 'job')} failed, and jobs that need them were not run: {told}"
        raise InputError(f"{told}; see {folder}/NAME.err")
    if waiting and at_once:
        missing = sorted({name for job in waiting for name in job.needs if name not in ended})
        needs = counted(len(waiting), "job needs", "jobs need")
        raise InputError(f"{needs} others that have not ended: {', '.join(missing)}: run those, too")


def read_record(folder: str | os.PathLike, name: str) -> dict[str, Any]:
    """The record of a job, {} if it was never started.

    It has command; commit and machine; cpu_seconds and wall_seconds over all starts; finished; and lines, the JSON
    objects that the command printed.
    """
    path = pathlib.Path(folder) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


class _Running:
    """A command that runs, and its record."""

    def __init__(self, job: Job, folder: pathlib.Path):
        self.job, self._folder, self._start = job, folder, time.time()
        self._record = {"cpu_seconds": 0.0, "wall_seconds": 0.0} | read_record(folder, job.name)
        self._record |= {"command": job.command, "commit": commit(), "machine": machine(), "finished": False}
        self._write()
        with open(folder / f"{job.name}.out", "w") as out, open(folder / f"{job.name}.err", "w") as errors:
            command = [sys.executable, str(ROOT / job.script), *as_flags(job.flags)]
            # It has its own process group, so that Ctrl-C reaches it once, through this process.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, preexec_fn=os.setpgrp
            )

    def has_ended(self) -> bool:
        """Whether the command has ended; the record then says how."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self._record["cpu_seconds"] += usage.ru_utime + usage.ru_stime
        self._record["wall_seconds"] += time.time() - self._start
        if self.process.returncode == 0:
            output = (self._folder / f"{self.job.name}.out").read_text(errors="replace")
            self._record |= {"finished": True, "lines": _objects(output)}
        self._write()
        return True

    def _write(self) -> None:
        path = self._folder / f"{self.job.name}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(self._record, indent=1) + "\n")
        new.replace(path)


def _require_unchanged(job: Job, record: Mapping[str, Any], folder: pathlib.Path) -> None:
    before, now = record.get("command", job.command), job.command
    if before != now:
        changes = shlex.join(word for word in before if word not in now), shlex.join(w for w in now if w not in before)
        raise InputError(
            f"{folder}/{job.name}.json: this job was run with {changes[0] or 'less'}, and the study now has "
            f"{changes[1] or 'less'}: give another --out, or the table of that run"
        )


def _objects(output: str) -> list[dict[str, Any]]:
    """The lines that are JSON objects."""
    found = []
    for line in output.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return [value for value in found if isinstance(value, dict)]


def _last_line(path: pathlib.Path) -> str:
    lines = [line for line in re.split(r"[\r\n]", path.read_text(errors="replace")) if line.strip()]
    return lines[-1].strip() if lines else "no message"


def commit() -> str:
    """The repository's commit, "+" if files differ from it; "unknown" outside a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def machine() -> str:
    """Cores and processor of this machine."""
    try:
        names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return f"{os.cpu_count()} cores, {names[0] if names else platform.processor() or platform.machine()}"

"""Not a test: runs a case, and says what is wrong with how the command took it."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import processes

from campaign import clock, damage
from campaign.case import Case
from campaign.commands import COMMANDS

SECONDS = 90
"""The limit of a case: of its work, and of the time in which it only waits."""
_TROUBLE = re.compile(r"Traceback|Exception ignored|Fatal Python error|core dumped|Segmentation fault")
_UNDERSTOOD = r"(?!error: )[^:]+: .+: [\d,]+ (row|text|question)s?(,|$)"
_NOTE = re.compile(rf"usage:|\S+: imported, in |\s+\[|Pass --help|.*\d[\d,]*/\d|{_UNDERSTOOD}")
"""Lines beside an error: those of absl and argparse, an import, a bar, and what was understood of a file."""
_FREE = ("text", "prompt.txt", "table.tsv", "squad.json", "list.txt", "words.conll", "sets.csv", "prompts.jsonl")
_FREE += ("tickets.csv", "tickets.xlsx")
"""Parts whose content is the user's: damage to it can leave a right file, which has another result."""


CACHE = {"TXL_TF_CACHE": "cache"}
"""Published models are imported into the folder of the case, not of the user."""


def set_up_process():
    """Programs that this process starts heed Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a job in the background starts ignores it


def attempt(case, root):
    """The fault that was found, "" if none; and the seconds it took."""
    command, start = COMMANDS[case.command], time.perf_counter()
    with folder(case, root) as place:
        before = snapshot(place)
        move(place, case.moved)
        try:
            line = command.line(case.flags)
            fork = not (command.alone or case.interrupted)
            done = run(line, place, CACHE | case.environment, fork=fork, interrupted=case.interrupted)
        except subprocess.TimeoutExpired:
            return f"it ran for more than {SECONDS} s", time.perf_counter() - start
        seconds = time.perf_counter() - start
        move(place, {other: path for path, other in case.moved.items()})
        wrong = judged(case, done)
        status = done.returncode if not case.interrupted else 0  # a run that was stopped has saved
        wrong = wrong or changed(command, status, before, snapshot(place))
        if not wrong and not done.returncode:
            wrong = case.check(place, done.stdout + done.stderr) if case.check else ""
            if case.usual or (case.file and not may_differ(*case.file)):
                wrong = wrong or differing(case, place, done.stdout, root)
    return wrong, seconds


def differing(case, place, printed, root):
    """The fault in a result that should be the usual one; "" if none."""
    command = COMMANDS[case.command]
    for flag in case.flags.keys() & command.flags.keys():
        value, own = case.flags[flag], command.flags[flag]
        if value and own:
            given, own = (value[0], own.split(",")[0]) if isinstance(value, list) else (value, own)
            in_json = (json.dumps(given, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
            for shown in (os.path.realpath(place / given), given, *in_json):
                printed = printed.replace(shown, own)
    try:
        same = command.outcome(place, printed) == usual(case.command, root)
    except (OSError, ValueError) as error:
        return f"it succeeded, without a result ({error})"
    return "" if same else "it succeeded, with another result than the usual one"


def move(place, paths):
    """Moves what is there of these paths of a folder, {old: new}; others come to be or are gone."""
    for old, new in paths.items():
        if (place / old).exists() and old != new:
            (place / new).parent.mkdir(parents=True, exist_ok=True)
            (place / old).rename(place / new)
            with contextlib.suppress(OSError):  # not empty
                os.removedirs((place / old).parent)


def may_differ(file, kind):
    """Whether a success with another result is right: for the user's own text, and for settings with defaults."""
    lost = file.endswith("metrics.jsonl") and kind in ("cut", "missing")  # a run goes on, and its first lines are gone
    lost = lost or file == "labelling/evaluations.jsonl"  # the threshold is then 0.5, which is said
    lost = lost or (file, kind) == ("tuned/labels.json", "missing")  # classes then have numbers, as in some imports
    lost = lost or file == "huggingface/model.safetensors"  # the format has no checksum
    return lost or file.startswith(_FREE) or (file.endswith("config.json") and kind.startswith("without"))


def run(line, place, environment, *, fork=True, interrupted=0, seconds=None):
    """Runs a command to its end.

    Args:
        line: the arguments that follow `python`.
        place: the folder it starts in.
        environment: variables besides this process's.
        fork: whether it finds modules loaded; if not, it is started as a user does.
        interrupted: seconds of its work after which it gets Ctrl-C; 0: never.
        seconds: its limit; None: SECONDS.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        if fork:
            process = processes.Popen(line, cwd=place, env=environment, stdout=stdout, stderr=stderr)
        else:
            own, line = os.environ | environment, [sys.executable, *line]
            process = subprocess.Popen(line, cwd=place, env=own, stdout=stdout, stderr=stderr)
        try:
            if interrupted and clock.goes_on(process, interrupted):
                process.send_signal(signal.SIGINT)
            clock.wait(process, seconds or SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise
        stdout.seek(0), stderr.seek(0)
        return subprocess.CompletedProcess(line, process.returncode, stdout.read(), stderr.read())


@contextlib.contextmanager
def folder(case, root):
    """A folder with copies of what the command reads, and with the damage."""
    with tempfile.TemporaryDirectory(prefix="campaign") as name:
        place = pathlib.Path(name)
        for part in (part for part in COMMANDS[case.command].reads if (root / part).exists()):
            copy = shutil.copytree if (root / part).is_dir() else shutil.copy
            copy(root / part, place / part)
        damage.put_places(place)
        if case.file:
            damage.apply(place / case.file[0], case.file[1])
        if case.setup:
            case.setup(place)
        yield place


@functools.cache
def usual(name, root):
    """The result of a command without damage."""
    with folder(Case(name, ""), root) as place:
        done = run(COMMANDS[name].line({}), place, CACHE, fork=not COMMANDS[name].alone, seconds=2 * SECONDS)
        assert done.returncode == 0, f"{name} fails without damage: {done.stderr}"
        return COMMANDS[name].outcome(place, done.stdout)


def judged(case, done):
    """The fault in a command's messages and exit status; "" if none."""
    printed = done.stdout + done.stderr
    if trouble := _TROUBLE.search(printed):
        last = [line for line in done.stderr.splitlines() if line.strip()] or [""]
        return f"{trouble[0]}: {last[-1][:300]}"
    if case.interrupted and done.returncode in (0, 130):
        said = [line for line in done.stderr.splitlines() if re.match("interrupted|\\n?SIGINT", line)]
        return "" if len(said) == bool(done.returncode) else f"not one line: {done.stderr[-300:]}"
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}: {done.stderr[-200:]}"
    if case.says and case.says not in printed:
        return f"it does not say {case.says!r}: {printed[-300:]}"
    if not done.returncode:
        return "it was accepted" if case.refused else ""
    if case.works or case.usual:
        return f"it was refused: {done.stderr[-400:]}"
    lines = [line for line in done.stderr.splitlines() if line.strip() and "\r" not in line]
    lines = [line for line in lines if not _NOTE.match(line)]
    if lines and (several := re.match(r"error: ([\d,]+) faults in ", lines[-1])):
        if len(lines) - 1 != min(int(several[1].replace(",", "")), 11):
            return f"not a line for each fault: {lines[:4]}"
        lines = lines[-1:]
    if len(lines) != 1 or not re.match(r"error: |\w+\.py: error: ", lines[0]):
        return f"not one line: {lines[:4]}"
    if len(lines[0]) > 1000:
        return f"a line of {len(lines[0])} characters: {lines[0][:200]}"
    return ""


def changed(command, status, before, after):
    """Which file was changed that should not be.

    A damaged checkpoint may be set aside under another name, and corpus.json says where the corpus was last found.
    """
    may = command.writes if not status else tuple(path for path in command.writes if path not in command.reads)
    for path in sorted(before.keys() | after.keys()):
        folder, _, name = path.rpartition("/")
        aside = path in before and before[path] == after.get(f"{folder}/damaged-{name}")
        own = any(path == mine or path.startswith((f"{mine}/", f"{mine}.")) for mine in may)
        allowed = own or aside or name == "corpus.json" or name.startswith("damaged-")
        if not allowed and before.get(path) != after.get(path):
            how = "removed" if path not in after else "made" if path not in before else "changed"
            return f"it {how} {path}"
    return ""


def snapshot(place):
    """The contents of a folder: {path: type and content}."""
    found = {}
    for path in sorted(place.rglob("*")):
        mode = os.lstat(path).st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else stat.S_IFMT(mode)
        found[str(path.relative_to(place))] = content
    return found

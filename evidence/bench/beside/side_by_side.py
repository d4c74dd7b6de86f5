"""Measures implementations in alternating rounds. Not a script.

Each task of each implementation has a separate process, so that its peak memory is its own. While one runs a round, the
others wait, so that a slow period of the machine affects all alike.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from beside import sizes

sys.path.append(str(pathlib.Path(__file__).parents[3] / "scripts"))

import start_up  # noqa: F401 (first: it parts our lines from those of libraries)

from serving import terminal


def run(doc, own, peers, report, named=None):
    """Runs a benchmark from the command line.

    Args:
        doc: the script's docstring.
        own: {name: function} of implementations that this Python runs. The function returns {task: function that runs
            one round}; a round does the same work every time and returns a JSON value.
        peers: the same for implementations that run only with --peer=NAME=PYTHON.
        report: function of {task: {name: list of rounds}}, each round as `answer` measures it; returns the content of
            the JSON line, which also gets the size and `peak_gbytes`, the peaks of resident memory.
        named: the sizes of `sizes.chosen`; None: the benchmark has one size.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=" or ".join(peers))
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds of each implementation")
    parser.add_argument("--work", choices=[*own, *peers], help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    if named:
        sizes.add_flag(parser, named)
    args = parser.parse_args()
    if args.work:
        terminal.divert_libraries()
        return answer((own | peers)[args.work](), args.task)
    pythons = dict.fromkeys(own, sys.executable)
    for peer in args.peer:
        name, _, python = peer.partition("=")
        if name not in peers or not python:
            parser.error(f"--peer={peer} must be NAME=PYTHON, with one of the names {', '.join(peers)}")
        pythons[name] = python
    measured = measure(pythons, args.rounds, [f"--size={args.size}"] if named else [])
    peaks = {
        task: {name: round(rounds[-1]["peak_bytes"] / 1e9, 2) for name, rounds in names.items()}
        for task, names in measured.items()
    }
    print(json.dumps(({"size": sizes.chosen(named)} if named else {}) | report(measured) | {"peak_gbytes": peaks}))
    return 0


def answer(tasks, name):
    """The process of one implementation. Without a task's name it prints all names; otherwise it runs the task.

    It runs a round for each line of stdin. Prints the round's wall-clock seconds, its processor seconds in user mode,
    the process's peak of resident memory until then, and what the round returned.
    """
    if name is None:
        print(json.dumps(list(tasks)), flush=True)
        return
    tasks[name]()  # compiles, and fills the model's memories
    print(json.dumps(name), flush=True)
    for _ in sys.stdin:
        user, start = os.times().user, time.perf_counter()
        result = tasks[name]()
        taken = {"seconds": time.perf_counter() - start, "user_seconds": os.times().user - user}
        print(json.dumps(taken | {"peak_bytes": peak_bytes(), "result": result}), flush=True)


def peak_bytes():
    """The largest resident memory of this process so far; NaN if the system does not tell."""
    try:
        status = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024


def measure(pythons, rounds, flags):
    """Runs every task in rounds that alternate between implementations; returns {task: {name: list of its rounds}}."""

    def start(name, *more):
        command = [pythons[name], sys.argv[0], f"--work={name}", *flags, *more]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    measured = {}
    for name, python in pythons.items():
        with start(name) as worker:
            for task in ask(worker, f"{name} did not start with {python}"):
                measured.setdefault(task, {})[name] = []
    for task, names in measured.items():
        workers = {}
        for name in names:
            workers[name] = start(name, f"--task={task}")
            ask(workers[name], f"{name} failed")  # alone: some measure the machine while they start
        for i in range(rounds):
            for name, worker in workers.items():
                print(file=worker.stdin, flush=True)
                names[name].append(ask(worker, f"{name} failed"))
            latest = {name: round(taken[-1]["seconds"], 2) for name, taken in names.items()}
            print(f"round {i + 1}/{rounds}, {task}: {latest}", file=sys.stderr, flush=True)
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    return measured


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def ask(worker, error):
    """A worker's next answer."""
    line = worker.stdout.readline()
    if not line:
        sys.exit(f"error: {error}: its output is above")
    return json.loads(line)

"""Measures implementations in turns, each in its own process. Not a script.

While one runs a round the others wait, so that a slow period of the machine affects all alike.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "scripts"))

import start_up  # noqa: F401 (first: it parts our lines from those of libraries)
from serving import terminal


def run(doc, own, peers, report):
    """Runs a benchmark from the command line.

    Args:
        doc: the script's docstring.
        own: {name: function} of implementations that this Python runs. The function returns {task: function that runs
            one round}; a round does the same work every time and returns a JSON value.
        peers: the same for implementations that run only with --peer=NAME=PYTHON.
        report: function of {task: {name: list of rounds}}, each round as `answer` measures it; returns the content of
            the JSON line.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=" or ".join(peers))
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds of each implementation")
    parser.add_argument("--work", choices=[*own, *peers], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        terminal.divert_libraries()
        return answer((own | peers)[args.work]())
    pythons = dict.fromkeys(own, sys.executable)
    for peer in args.peer:
        name, _, python = peer.partition("=")
        if name not in peers or not python:
            parser.error(f"--peer={peer} must be NAME=PYTHON, with one of the names {', '.join(peers)}")
        pythons[name] = python
    print(json.dumps(report(measure(pythons, args.rounds))))
    return 0


def answer(tasks):
    """The process of one implementation: reads names of tasks from stdin and runs one round of each.

    Prints the round's wall-clock seconds, its processor seconds in user mode, and what it returned.
    """
    for task in tasks.values():
        task()  # compiles, and fills the models' memories
    print(json.dumps(list(tasks)), flush=True)
    for line in sys.stdin:
        user, start = os.times().user, time.perf_counter()
        result = tasks[line.strip()]()
        seconds, user = time.perf_counter() - start, os.times().user - user
        print(json.dumps({"seconds": seconds, "user_seconds": user, "result": result}), flush=True)


def measure(pythons, rounds):
    """Runs every task of every implementation in turns; returns {task: {name: list of its rounds}}."""
    workers, measured = {}, {}
    for name, python in pythons.items():
        command = [python, sys.argv[0], f"--work={name}"]
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for task in ask(workers[name], f"{name} did not start with {python}"):
            measured.setdefault(task, {})[name] = []
    for i in range(rounds):
        for task, names in measured.items():
            for name in names:
                print(task, file=workers[name].stdin, flush=True)
                names[name].append(ask(workers[name], f"{name} failed"))
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

"""Runs a command so that the user sees it, for both demos."""

import pathlib
import shlex
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).parents[1]


def run(script, *flags):
    """Runs a script; prints its output and returns it as lines. A failure ends the demo."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), *flags]
    print(f"\n$ python scripts/{script}.py {shlex.join(flags)}", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    if process.wait():
        sys.exit(f"error: scripts/{script}.py ended with status {process.returncode}")
    return lines

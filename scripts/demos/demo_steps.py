"""Runs a command so that the user sees it, for both demos."""

import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(script, *flags, folder="scripts", shown=True):
    """Runs a script; prints its output, if it is to be shown, and returns it as lines. A failure ends the demo."""
    script = f"{folder}/{script}.py"
    print(f"\n$ python {script} {shlex.join(flags)}", flush=True)
    command = [sys.executable, str(ROOT / script), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)
    lines = []
    for line in process.stdout:
        if shown:
            print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    if process.wait():
        sys.exit(f"error: {script} ended with status {process.returncode}")
    return lines

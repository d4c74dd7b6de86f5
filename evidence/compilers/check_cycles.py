"""Compiles the steps in the tables of cycles.md again, and compares cycles and memory with the tables.

    pip install -r evidence/compilers/requirements-aot.txt
    python evidence/compilers/check_cycles.py --rows="evaluation|prediction"     # all rows take much longer

Run it after any change to a layer or the optimizer: a change that makes one step shorter can make another longer. The
exit status is 1 if a row differs by more than 1 %.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import run

from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_string("rows", "", "a regular expression: check only the rows whose names match")

HERE = pathlib.Path(__file__).parent
TOLERANCE = 0.01, 0.05  # a relative difference, and half of the tables' last digit: M cycles, GB


class Row(NamedTuple):
    """A step in a table: its name and flags, M cycles, and GB of HBM."""

    name: str
    flags: str
    cycles: float
    gigabytes: float

    def agrees(self, cycles, gigabytes):
        """Whether these numbers are the table's, up to rounding and a hundredth."""
        relative, rounding = TOLERANCE
        pairs = (cycles, self.cycles), (gigabytes, self.gigabytes)
        return all(abs(new - old) <= relative * old + rounding for new, old in pairs)


def rows(text):
    """The Rows of all tables in a Markdown text whose second column has flags and whose columns 3 and 6 are numbers."""
    number = r"([\d.]+)"
    pattern = rf"^\| ([^|]+) \| `(--preset=[^`]+)` \| {number} \|[^|]*\|[^|]*\| {number} \|"
    return [Row(m[1], m[2], float(m[3]), float(m[4])) for m in re.finditer(pattern, text, re.MULTILINE)]


def main(argv):
    del argv
    chosen = [row for row in rows((HERE / "cycles.md").read_text("utf-8")) if re.search(FLAGS.rows, row.name)]
    if not chosen:
        raise InputError(f"--rows={FLAGS.rows} matches no row of cycles.md")
    different = 0
    for row in chosen:
        cycles, gigabytes = compiled(row)
        same = row.agrees(cycles, gigabytes)
        different += not same
        print(
            f"{'as before' if same else 'DIFFERENT'}  {row.name}: {cycles:.2f} M cycles ({row.cycles} in the table), "
            f"{gigabytes:.2f} GB ({row.gigabytes})",
            flush=True,
        )
    if different:
        raise InputError(f"{different} of {len(chosen)} rows of cycles.md are different now: fix or update them")


def compiled(row):
    """M cycles and GB of a Row's step, compiled now."""
    command = [sys.executable, str(HERE / "aot_compile.py"), "--dtype=mixed_bfloat16", *shlex.split(row.flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{shlex.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    costs = json.loads(done.stdout.splitlines()[-1])
    return costs["estimated_cycles"] / 1e6, costs["hbm_bytes"] / 1e9


if __name__ == "__main__":
    run(main)

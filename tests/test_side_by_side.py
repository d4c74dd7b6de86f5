"""The turns that benchmarks take, with implementations that do nothing."""

import json
import pathlib
import subprocess
import sys

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import side_by_side

def counting(step):
    count = 0
    def once():
        nonlocal count
        count += step
        return count
    return lambda: {{"count": once}}

def failing():
    raise RuntimeError("cannot be made")

def report(measured):
    return {{name: [one["result"] for one in rounds] for name, rounds in measured["count"].items()}}

side_by_side.run("counts", {{"one": counting(1)}}, {{"ten": counting(10), "none": failing}}, report)
"""


def bench(folder, *flags):
    script = folder / "bench.py"
    script.write_text(SCRIPT.format(folder=str(pathlib.Path(__file__).parents[1] / "bench")))
    return subprocess.run([sys.executable, script, *flags], capture_output=True, text=True)


def test_rounds_come_after_one_to_warm_up(tmp_path):
    done = bench(tmp_path, "--rounds=3", f"--peer=ten={sys.executable}")
    assert json.loads(done.stdout) == {"one": [2, 3, 4], "ten": [20, 30, 40]}
    assert done.stderr.count("count: {'one'") == 3


def test_what_goes_wrong_gets_a_line(tmp_path):
    assert "error: none did not start with" in bench(tmp_path, f"--peer=none={sys.executable}").stderr
    assert "--peer=who=me must be NAME=PYTHON" in bench(tmp_path, "--peer=who=me").stderr

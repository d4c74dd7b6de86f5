"""The turns that benchmarks take, with implementations that do nothing."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from beside import side_by_side, sizes

NAMED = {{"base": {{"n_layer": 6, "d_model": 512}}, "narrow": {{"n_layer": 4, "d_model": 256}}}}
N, D = sizes.chosen(NAMED).values()

def counting(step):
    count = 0
    def once():
        nonlocal count
        count += step
        return count
    return lambda: {{"count": once, "sizes": lambda: [N, D, len(b"1" * (step * 20_000_000))]}}

def failing():
    raise RuntimeError("cannot be made")

def report(measured):
    return {{
        task: {{name: [one["result"] for one in rounds] for name, rounds in names.items()}}
        for task, names in measured.items()
    }}

side_by_side.run("counts", {{"one": counting(1)}}, {{"ten": counting(10), "none": failing}}, report, NAMED)
"""


def bench(folder, *flags):
    script = folder / "bench.py"
    script.write_text(SCRIPT.format(folder=str(pathlib.Path(__file__).parents[2] / "evidence" / "bench")))
    return subprocess.run([sys.executable, script, *flags], capture_output=True, text=True)


def test_rounds_come_after_one_to_warm_up(tmp_path):
    done = bench(tmp_path, "--rounds=3", f"--peer=ten={sys.executable}")
    line = json.loads(done.stdout)
    assert line["count"] == {"one": [2, 3, 4], "ten": [20, 30, 40]}
    assert line["size"] == {"n_layer": 6, "d_model": 512}
    peaks = line["peak_gbytes"]
    assert 0.19 < peaks["sizes"]["ten"] - peaks["count"]["ten"] < 0.22  # a task's memory is its own
    assert 0.01 < peaks["sizes"]["one"] - peaks["count"]["one"] < 0.04
    assert done.stderr.count("count: {'one'") == 3


@pytest.mark.parametrize(
    ("size", "found"), [("narrow", [4, 256]), ("d_model=64", [6, 64]), ("narrow,n_layer=1,d_model=8", [1, 8])]
)
def test_every_process_has_the_given_size(size, found, tmp_path):
    line = json.loads(bench(tmp_path, "--rounds=1", f"--size={size}").stdout)
    assert list(line["size"].values()) == found
    assert line["sizes"]["one"][0][:2] == found


@pytest.mark.parametrize("size", ["wide", "narrow,d_head=4", "n_layer=0", "base,narrow"])
def test_an_unknown_size_gets_a_line(size, tmp_path):
    done = bench(tmp_path, f"--size={size}")
    wrong = size.split(",")[-1]
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == f"error: --size={size}: {wrong} is neither of base, narrow nor a SETTING=NUMBER of a size\n"


def test_what_goes_wrong_gets_a_line(tmp_path):
    assert "error: none did not start with" in bench(tmp_path, f"--peer=none={sys.executable}").stderr
    assert "--peer=who=me must be NAME=PYTHON" in bench(tmp_path, "--peer=who=me").stderr

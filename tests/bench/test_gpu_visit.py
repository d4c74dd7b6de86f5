"""bench/gpu_visit.py, tried on the CPU with tiny models."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "bench" / "gpu_visit.py"


def visit(folder, *flags):
    command = [sys.executable, SCRIPT, "--small", f"--dir={folder}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    results = folder / "results.jsonl"
    return done, [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


@pytest.mark.slow
def test_a_visit_goes_on_where_it_stopped(tmp_path):
    done, none = visit(tmp_path, "--minutes=0")
    assert done.returncode == 1 and not none
    assert done.stderr == "error: 0 minutes are over: run the same command again for the rest\n"
    done, first = visit(tmp_path, "--only=^enwik8_base|^generation")
    assert done.returncode == 0, done.stderr
    assert [line["what"] for line in first] == ["enwik8_base bfloat16", "generation of one text"]
    assert first[0]["first_loop_seconds"] > 0 and first[0]["tokens_per_sec"] > 0 and len(first[0]["losses"]) == 5
    assert "ms_per_token" in first[1]
    done, again = visit(tmp_path, "--only=^enwik8_base|^generation")
    assert done.returncode == 0 and again == first

"""scripts/harness.py without the package lm_eval; tests/clients/test_harness.py has the rest."""

import importlib.util

import processes
import pytest


def error_of(*flags):
    done = processes.run(["scripts/harness.py", *flags], cwd=processes.ROOT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


def test_its_own_flags_are_checked_first():
    assert error_of("--tasks", "wikitext") == "error: give either --model_dir or --export_dir, a SavedModel"
    both = error_of("--model_dir=a", "--export_dir=b", "--tasks=wikitext")
    assert both == "error: give either --model_dir or --export_dir, a SavedModel"


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is not None, reason="lm_eval is installed")
def test_without_the_package_one_line_names_the_command():
    line = error_of("--model_dir=a", "--nosame_length", "--tasks=wikitext", "--limit=3")
    assert line == "error: the package lm_eval is missing: run python -m pip install 'txl_tf[harness]'"

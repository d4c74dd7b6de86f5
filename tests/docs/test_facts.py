"""The repository has the commits and the files that pages and results' files name."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FILES = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "evidence", "serving", "tpu", "examples") for path in ROOT.glob(f"{folder}/**/*.md")),
    *ROOT.glob("evidence/results/**/*.json"),
    *ROOT.glob("evidence/results/*.txt"),
]
COMMIT = re.compile(r"(?<![\w.#/-])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7}(?![\w.])")
"""Seven hexadecimal digits with a letter and a figure, alone: so no number and no word."""
FOLDERS = ("docker", "docs", "evidence", "examples", "scripts", "serving", "tests", "tpu", "txl_tf")
FILE = re.compile(
    rf"(?<![\w./<:-])(?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*[\w-]+\.(?:py|md|sh|js|css|txt|json|svg|csv|ipynb)\b"
)
"""A file with its folder, from the repository's root or from the page's folder on."""
ON_A_TPU = "txl_tf/tpu/on_host.sh"
"""A TPU's host has the repository in a folder of its name."""


def history():
    listed = ["git", "rev-list", "--abbrev-commit", "--abbrev=7", "HEAD"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True)
    return {line[:7] for line in done.stdout.split()}


def test_commits_that_are_named_are_in_the_history():
    known = history()
    if len(known) < 100:
        pytest.skip("there is no history here")
    named = {(path.name, found) for path in FILES for found in COMMIT.findall(path.read_text())}
    assert len(named) > 20 and {name for name in named if name[1] not in known} == set()


def test_a_commit_is_told_from_numbers_and_words():
    text = "commit 4e03670, c7309b4; 1234567 defaced 12345678 #4e03670 a/4e03670 4e03670.md"
    assert COMMIT.findall(text) == ["4e03670", "c7309b4"]


def test_files_that_are_named_are_there():
    pages = [path for path in FILES if path.name != "CHANGELOG.md"]  # which says what is gone
    named = {(path, found) for path in pages for found in FILE.findall(path.read_text()) if found != ON_A_TPU}
    missing = {
        (str(path), found) for path, found in named if not ((ROOT / found).exists() or (path.parent / found).exists())
    }
    assert len(named) > 100 and not missing


def test_a_file_is_told_from_a_pattern():
    text = "`evidence/bench/none.py`, docs/figures/*.svg, data/docs/a.md, //x.org/docs/a.md, tpu/no_more.sh: docs/x.png"
    assert FILE.findall(text) == ["evidence/bench/none.py", "tpu/no_more.sh"]

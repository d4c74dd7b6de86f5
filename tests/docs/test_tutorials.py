"""The pages of docs/ that a reader follows at the keyboard: every command is run, and prints what the page shows.

A page's blocks run one after the other in one folder, which looks like a clone. ```bash has commands, ```python a
program, ```text the output of the block before it: words, names and paths must be the same, numbers may differ, and
`...` stands for any lines. Comments in the page change that:

    <!-- not tested: needs the network -->    the next block is not run; or a TPU, or torch
    <!-- differs from run to run -->          the output below is not compared
"""

import pathlib
import re
import shlex
import signal
import socket
import subprocess
import typing

import processes
import pytest

ROOT = pathlib.Path(__file__).parents[2]
SETTINGS = "".join(
    path.read_text()
    for folder in ("txl_tf/settings", "txl_tf/models", "txl_tf/inference/causal")
    for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted([*(ROOT / "docs" / "tutorials").glob("*.md"), ROOT / "docs" / "explanations" / "relative_shift.md"])
CHAINS = (
    ("own_text", "serve"),
    ("spreadsheet", "from_hugging_face"),
    ("from_tf1",),
    ("tpu",),
    ("README",),
    ("relative_shift",),
)
"""Pages that are read one after the other, each with what the one before left."""

UNTESTED = {"not tested: needs the network", "not tested: needs a TPU", "not tested: needs torch"}
VARIES = "differs from run to run"
BLOCK = re.compile(r"(?:^<!-- ([^>]*) -->\n\n?)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,.]*(?:e[-+]?\d+)?")


class Block(typing.NamedTuple):
    """A block of a page, with the comment above it."""

    note: str
    language: str
    text: str


def blocks(name):
    (page,) = (path for path in PAGES if path.stem == name)
    return [Block(*found) for found in BLOCK.findall(page.read_text())]


class Reader:
    """Follows pages in a folder that looks like a clone."""

    def __init__(self, folder):
        self.folder, self.servers = folder, []
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in {line.split("/")[0] for line in tracked.splitlines()}:
            (folder / name).symlink_to(ROOT / name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])

    def run(self, block):
        """Runs the commands of a block; returns what they print."""
        text = block.text.replace("8080", self.port)
        if block.language == "python":
            return self.python(["-c", text])
        lines = text.replace("\\\n", " ").splitlines()
        if not any(line.startswith("python ") for line in lines):
            command = ["bash", "-euc", text]
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            return done.stdout
        return "".join(self.line(line) for line in lines)

    def line(self, line):
        """Runs a command `python ..`; returns what it prints. One that ends with & is a server, which runs on."""
        python, *command = shlex.split(line, comments=True)
        assert python == "python", line
        if command[-1] != "&":
            return self.python(command)
        server = processes.Popen(command[:-1], cwd=self.folder, stdout=subprocess.PIPE)
        self.servers.append(server)
        lines = []
        while not lines or not lines[-1].startswith("serving "):
            lines.append(server.stdout.readline())
            assert lines[-1], lines
        return "".join(lines)

    def python(self, command):
        done = processes.run(command, cwd=self.folder, env={"PYTHONPATH": str(ROOT)}, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self):
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def pattern(shown):
    """A regular expression for the output that a page shows."""
    lines = []
    for line in shown.splitlines():
        parts = [re.escape(" ".join(part.split())) for part in NUMBER.split(line)]
        lines.append("(?:.*\n)*?" if line == "..." else r"\s*" + rf"\s*{NUMBER.pattern}\s*".join(parts) + r"\s*\n")
    return "".join(lines).replace(r"\ ", r"\s+")


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS, ids=" ".join)
def test_a_page_can_be_followed_word_by_word(chain, tmp_path):
    reader = Reader(tmp_path)
    try:
        for name in chain:
            printed = None
            for block in blocks(name):
                if block.language in ("bash", "python"):
                    printed = None if block.note in UNTESTED else reader.run(block)
                elif printed is not None and block.note != VARIES:
                    wrong = f"{block.text}\nis shown, but this was printed:\n{printed}"
                    assert re.fullmatch(pattern(block.text), printed.rstrip() + "\n"), wrong
    finally:
        reader.close()


def test_every_tutorial_is_followed():
    assert {page.stem for page in PAGES} == {name for chain in CHAINS for name in chain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_have_a_language_and_notes_are_known(page):
    text = page.read_text()
    found = blocks(page.stem)
    assert len(re.findall("^```", text, re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= {"bash", "python", "text"}
    assert set(re.findall("<!-- (.*?) -->", text)) == {block.note for block in found} - {""}
    for block in found:
        assert block.note in (("", VARIES) if block.language == "text" else ("", *UNTESTED))


def test_an_output_is_told_from_another():
    shown = 'loss 2.31 in runs/mine\n...\n{"split": "test"}\n'
    assert re.fullmatch(pattern(shown), 'loss 0.5 in runs/mine\none\ntwo\n{"split": "test"}\n')
    assert not re.fullmatch(pattern(shown), 'loss 0.5 in runs/other\n{"split": "test"}\n')
    assert not re.fullmatch(pattern(shown), 'loss 0.5 in runs/mine\n{"splits": "test"}\n')
    assert not re.fullmatch(pattern(shown), 'loss of 0.5 in runs/mine\n{"split": "test"}\n')


def test_the_commands_and_flags_that_are_named_for_other_codes_calls_exist():
    page = (ROOT / "docs" / "which_command.md").read_text()
    named = re.findall(r"`scripts/(\w+)\.py([^`]*)`", page)
    assert len(named) > 20
    for script, rest in named:
        code = (ROOT / "scripts" / f"{script}.py").read_text() + SETTINGS
        for flag in re.findall(r"--(\w+)", rest):
            assert re.search(rf"""\b{flag}\b""", code), f"{script}.py has no flag --{flag}"

"""The command `txl` and the wheel: what is in it, and that commands run from it as from scripts/."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import processes
import pytest
import setuptools

from txl_tf import __main__ as txl

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "model_dir_ce09e14" / "corpus"
START = "import sys; from txl_tf.__main__ import main; sys.exit(main())"
HELP = """
import sys
from txl_tf.__main__ import main
try:
    main()
finally:
    assert "tensorflow" not in sys.modules
"""


def run(*arguments, **options):
    """`txl ..` of the clone."""
    return processes.run(["-c", START, *arguments], **options)


def test_its_commands_are_the_scripts_with_a_line_each():
    scripts = {path.stem for path in (ROOT / "scripts").glob("*.py") if "define_" not in path.stem}
    parts = {"command_line", "flag_help", "run_flags", "start_up"}
    assert set(txl.commands()) == scripts - parts | {"serve"} and {"train", "prepare_data", "score"} <= scripts - parts
    lines = txl.overview().splitlines()
    for name in txl.commands():
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(".") and len(line.split()) > 4


def test_alone_it_shows_tasks_whose_examples_are_commands_with_these_flags():
    shown = run()
    assert shown.returncode == 0 and txl.TASKS in shown.stdout
    examples = [line.split()[1:] for line in txl.TASKS.splitlines() if line.startswith("    txl ")]
    helps = {command: run(command, "--help").stdout for command, *_ in examples}
    for command, *arguments in examples:
        for flag in re.findall(r"(--\w+)=", " ".join(arguments)):
            assert re.search(rf"{flag}\b", helps[command]), flag


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trian"], 2, "error: 'trian' is not a command of txl: did you mean train?\n"),
        (["zzz"], 2, "error: 'zzz' is not a command of txl: `txl --help` lists them\n"),
        (["demo"], 2, "error: 'demo' is not a command of txl: `txl --help` lists them\n"),
        (["describe-data", "--data_dir=/nowhere"], 1, "error: /nowhere/manifest.json not found"),
        (
            ["evaluate", "--model_dir=/a", "--data_dir=a"],
            1,
            "error: /a has no config.json: give a directory that txl train",
        ),
    ],
)
def test_what_is_wrong_is_one_line(arguments, status, message):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1


def test_a_command_does_what_its_script_does(tmp_path):
    script = processes.run([str(ROOT / "scripts" / "describe_data.py"), f"--data_dir={CORPUS}"])
    command = run("describe_data", f"--data_dir={CORPUS}", cwd=tmp_path)
    assert (script.returncode, command.returncode) == (0, 0) and command.stdout == script.stdout != ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of what git would commit."""
    if int(setuptools.__version__.partition(".")[0]) < 77:
        pytest.skip("requirements-dev.txt asks for a newer setuptools: make .venv/installed-dev")
    folder = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder / "clone", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_it_holds_what_it_needs_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        facts = {name.rpartition("/")[2]: file.read(name).decode() for name in file.namelist() if "dist-info" in name}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "txl_tf").rglob("*.py")}
    commands = {
        f"txl_tf/commands/{name}.py"
        for name in (*set(txl.commands()) - {"serve"}, "command_line", "flag_help", "run_flags", "start_up")
    }
    server = {f"txl_tf/commands/{path.relative_to(ROOT)}" for path in (ROOT / "serving").rglob("*.py")}
    page = {f"txl_tf/commands/{path.relative_to(ROOT)}" for path in (ROOT / "serving" / "page").iterdir()}
    ready = {str(path.relative_to(ROOT)) for path in (ROOT / "txl_tf" / "ready").rglob("*.*")}
    readmes = {str(path.relative_to(ROOT)) for path in (ROOT / "txl_tf" / "inference" / "readmes").iterdir()}
    assert names == modules | {"txl_tf/py.typed"} | readmes | commands | server | page | ready
    assert "txl = txl_tf.__main__:main" in facts["entry_points.txt"]
    wanted = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    required = [line.partition(": ")[2] for line in facts["METADATA"].splitlines() if line.startswith("Requires-Dist")]
    required = [line for line in required if "extra ==" not in line]
    assert sorted(map(sorted, required)) == sorted(map(sorted, wanted))  # the parts of a range may be in another order


def test_commands_run_from_it(wheel, tmp_path):
    """In a folder far from the clone, with the wheel's files before the clone's on the path."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    here = {"cwd": tmp_path, "env": environment}
    done = subprocess.run(
        [sys.executable, "-c", HELP, "train", "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "txl train --preset=demo" in done.stdout and "--d_model" in done.stdout, done.stderr
    assert "scripts/" not in done.stdout and not done.stderr
    assert (
        f"{tmp_path}/installed/txl_tf" in processes.run(["-c", "import txl_tf; print(txl_tf.__path__)"], **here).stdout
    )
    described = run("describe_data", f"--data_dir={CORPUS}", **here)
    assert described.returncode == 0 and "tokens" in described.stdout, described.stderr
    served = run("serve", "--export_dir=nothing", "--port=0", **here)
    assert served.returncode == 1 and served.stderr.startswith("error: nothing is not an exported model"), served.stderr

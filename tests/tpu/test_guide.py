"""The commands of tpu/README.md: scripts take their flags, programs know theirs, files are there."""

import pathlib
import re
import shlex
import subprocess
import sys

import check_cycles
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def commands():
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "tpu/README.md").read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


def test_the_guide_shows_every_script():
    shown = {pathlib.Path(word).name for command in commands() for word in command[:2]}
    scripts = {path.name for path in (ROOT / "tpu").glob("*.sh")} - {"common.sh", "on_host.sh"}
    assert scripts | {"aot_compile.py"} <= shown
    assert "python tpu/first_run.py" in (ROOT / "tpu/README.md").read_text()


@pytest.mark.parametrize("command", [command for command in commands() if command[0].startswith("tpu/")], ids=" ".join)
def test_shell_scripts_take_the_flags(command):
    script, *flags = command
    done = subprocess.run([ROOT / script, "--dry_run", *flags], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gcloud compute tpus")


def test_programs_know_the_flags():
    programs = [command[1:] for command in commands() if command[0] == "python" and command[1] != "-m"]
    # In launch.sh and keep_running.sh the arguments after -- are for train.py.
    programs += [["scripts/train.py", *command[command.index("--") + 1 :]] for command in commands() if "--" in command]
    table = (ROOT / "evidence/compilers/cycles.md").read_text()
    rows = [["evidence/compilers/aot_compile.py", *row.flags.split()] for row in check_cycles.rows(table)]
    assert len(rows) == table.count("| `--preset=")
    programs += rows
    wanted = {}
    for program, *flags in programs:
        wanted.setdefault(program, set()).update(re.match(r"--(\w+)", flag)[1] for flag in flags)
    assert {"evidence/compilers/aot_compile.py", "scripts/train.py"} <= set(wanted)
    for program, flags in wanted.items():
        text = subprocess.run([sys.executable, ROOT / program, "--helpfull"], capture_output=True, text=True).stdout
        known = set(re.findall(r"^\s+--(?:\[no\])?(\w+)", text, re.MULTILINE))
        assert flags <= known, f"{program}: {flags - known}"


def test_requirements_are_there():
    installed = re.findall(r"pip install -r (\S+)", (ROOT / "tpu/README.md").read_text())
    assert installed and all((ROOT / path).exists() for path in installed)

"""Which lines reach the terminal, and where libraries' messages go. The "library" here is os.write(2, ..)."""

import os
import pathlib
import re
import subprocess
import sys

import processes
import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
START = f"""
import os, sys
sys.path[0] = {str(SCRIPTS)!r}
import start_up
from serving import terminal
terminal.divert_libraries()
os.write(2, b"a library's line\\n")
print("our line", file=sys.stderr)
"""
NAMED = r"what libraries wrote is in (.*)\n"


def run(code, folder):
    """(status, what the terminal showed, files that are left)."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", START + code], stderr=subprocess.PIPE, text=True, env=environment)
    return done.returncode, done.stderr, list(folder.iterdir())


@pytest.mark.parametrize(
    ("code", "status"),
    [("", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("import signal; os.kill(os.getpid(), signal.SIGKILL)", -9)],
)
def test_an_end_that_is_no_failure_of_a_library_leaves_our_lines_alone(code, status, tmp_path):
    assert run(code, tmp_path) == (status, "our line\n", [])


def test_warnings_of_python_go_where_libraries_write(tmp_path):
    code = "import warnings; warnings.warn('from a library'); raise RuntimeError('of ours')"
    _, shown, (left,) = run(code, tmp_path)
    assert "from a library" not in shown
    assert re.fullmatch(r"a library's line\n<string>:\d+: UserWarning: from a library\n", left.read_text())


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("os.abort()", -6, "Aborted"), ("import ctypes; ctypes.string_at(0)", -11, "Segmentation fault")],
)
def test_a_crash_shows_the_last_lines_and_the_stack(code, status, error, tmp_path):
    returncode, shown, (left,) = run(code, tmp_path)
    assert returncode == status
    pattern = rf"our line\na library's line\nFatal Python error: {error}\n.*File \"<string>\", line \d+.*" + NAMED
    assert re.fullmatch(pattern, shown, re.DOTALL)[1] == str(left)
    assert left.read_text().startswith("a library's line\n")


def test_a_traceback_names_the_file(tmp_path):
    returncode, shown, (left,) = run("raise RuntimeError('of ours')", tmp_path)
    assert returncode == 1
    assert re.fullmatch(r"our line\nTraceback .*RuntimeError: of ours\n" + NAMED, shown, re.DOTALL)[1] == str(left)
    assert left.read_text() == "a library's line\n"


def test_without_a_place_for_files_the_lines_are_dropped(tmp_path):
    code = START.replace("terminal.divert", "import tempfile; tempfile.tempdir = '/nowhere'; terminal.divert")
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "our line\n")


@pytest.mark.parametrize("loaded", ["", "start_up.raise_from_now_on()"], ids=["while TensorFlow loads", "afterwards"])
def test_no_library_can_swallow_ctrl_c_twice(loaded, tmp_path):
    """Before TensorFlow has loaded not even once."""
    code = f"""
import signal, time
signal.signal(signal.SIGINT, start_up.terminal.leave)  # jobs in the background ignore Ctrl-C
{loaded}
presses = 0
while True:
    presses += 1
    print("press", presses, flush=True)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        pass  # as a library does it
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (130, "our line\ninterrupted\n")
    assert done.stdout == ("press 1\npress 2\n" if loaded else "press 1\n")


def test_after_ctrl_c_the_command_can_clean_up(tmp_path):
    code = f"""
import signal
from absl import flags
import command_line
def main(argv):
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        open({str(tmp_path / "cleaned up")!r}, "w").close()
signal.signal(signal.SIGINT, start_up.terminal.leave)  # jobs in the background ignore Ctrl-C
sys.argv[:] = ["program", "-v=1"]  # without the file for libraries, which this has already
command_line.run(main)
"""
    status, shown, left = run(code, tmp_path)
    assert (status, shown.splitlines()[-1]) == (130, "interrupted") and "Traceback" not in shown
    assert left == [tmp_path / "cleaned up"]


def test_ctrl_c_in_a_destructor_ends_the_command_all_the_same(tmp_path):
    """Where Python drops exceptions."""
    code = """
import signal, time
from absl import flags
import command_line
class Library:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def main(argv):
    Library()
    time.sleep(60)
signal.signal(signal.SIGINT, start_up.terminal.leave)  # jobs in the background ignore Ctrl-C
sys.argv[:] = ["program", "-v=1"]  # without the file for libraries, which this has already
command_line.run(main)
"""
    status, shown, _ = run(code, tmp_path)
    assert (status, shown.splitlines()[-1]) == (130, "interrupted") and "Exception ignored" not in shown


def test_what_tensorflow_imports_if_it_finds_it_is_not_found_before_it_is_needed(tmp_path):
    code = """
import tensorflow, keras
print(*sorted(set(start_up.NOT_NEEDED) & set(sys.modules)), file=sys.stderr)
import matplotlib.pyplot
"""
    assert run(code, tmp_path) == (0, "our line\n\n", [])


def test_ctrl_c_that_comes_back_as_another_exception_is_one_line(tmp_path):
    """As from functions that C++ calls while TensorFlow traces."""
    code = """
import signal
from absl import flags
import command_line
def main(argv):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("what C++ makes of it")
signal.signal(signal.SIGINT, start_up.terminal.leave)  # jobs in the background ignore Ctrl-C
sys.argv[:] = ["program", "-v=1"]  # without the file for libraries, which this has already
command_line.run(main)
"""
    status, shown, _ = run(code, tmp_path)
    assert (status, shown.splitlines()[-1]) == (130, "interrupted") and "Traceback" not in shown


def test_tensorflows_advice_to_programmers_is_not_shown():
    code = f"""
import sys
sys.path.insert(0, {str(SCRIPTS)!r})
import command_line
def main(argv):
    import tensorflow as tf
    tf.get_logger().warning("5 out of the last 5 calls triggered retracing")
    print("our line", file=sys.stderr)
command_line.run(main)
"""
    done = processes.run(["-c", code])
    assert (done.returncode, done.stderr) == (0, "our line\n")


@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_take_no_other_files_place(closed, tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(SCRIPTS)!r})
import start_up
start_up.write_utf8()
file = open({str(tmp_path / "file")!r}, "w")
print("to nowhere", flush=True)
file.write("its own")
"""
    command = ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code]
    assert subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "file").read_text() == "its own"

"""The command python -m serving: its start, its end, and what it writes to the terminal."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import processes
import pytest
import server
import tensorflow as tf

from serving.errors import StartError
from serving.limits import Limits
from serving.model import ServedModel, read_settings

COMMAND = ["-m", "serving"]
CLONE = {"PYTHONPATH": str(pathlib.Path(__file__).parents[2])}


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--max_sessions=-1"], "--max_sessions=-1 must be above 0"),
        (["--max_sessions=many"], "argument --max_sessions: invalid int value: 'many'"),
        (["--session_seconds=nan"], "--session_seconds=nan must be above 0"),
        (["--session_seconds=inf"], "--session_seconds=inf must be above 0"),
        (["--memory_mb=0"], "--memory_mb=0 must be above 0"),
        (["--max_requests=99999999999"], "--max_requests=99999999999 must be above 0, and below 2,147,483,648"),
        (["--port=99999"], "--port=99999: give a host, and a port from 0 to 65535"),
        (["--port=-1"], "--port=-1: give a host, and a port"),
        (["--host="], "--host= --port=8080: give a host"),
        (["--model_name="], "argument --model_name: '' must be a name without / and :"),
        (["--host=no.such.host.invalid"], "cannot listen at --host=no.such.host.invalid"),
        (["--host=203.0.113.7"], "cannot listen at --host=203.0.113.7"),
        ([f"--host={'a' * 100}.b"], "cannot listen at --host=aaa"),
        (["--export=x"], "unrecognized arguments: --export=x"),
        (["--port=0", "--library_log=/nowhere/file"], "--library_log: "),
        (["--port=0", "--host=0.0.0.0"], "--host=0.0.0.0: other machines can reach the server; give --token_file="),
        (["--port=0", "--token_file=none"], "--token_file=none cannot be read: No such file"),
        (["--port=0", "--token_file=/dev/null"], "--token_file=/dev/null must hold one word of at least 16 characters"),
        (["--port=0", "--token_file=t", "--open_to_all"], "--open_to_all and --token_file contradict each other"),
        (["--port=0", "--allow_origin=example.org"], "--allow_origin=example.org must be like https://example.org"),
        (["--port=0", "--allow_origin="], "--allow_origin= must be like https://example.org"),
        (["--port=0", "--allow_origin=http://["], "--allow_origin=http://[ must be like https://example.org"),
        (["--port=0", "--host=0.0.0.0", "--open_to_all"], "nothing is not an exported model: "),
        (["--port=0"], "nothing is not an exported model: "),
    ],
)
def test_a_wrong_start_is_one_line(flags, reason, tmp_path):
    done = processes.run([*COMMAND, "--export_dir=nothing", *flags], cwd=tmp_path, env=CLONE)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and reason in done.stderr, done.stderr


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = [f"--port={taken.getsockname()[1]}", "--export_dir=nothing"]
        done = processes.run([*COMMAND, *flags], cwd=tmp_path, env=CLONE)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Address already in use" in done.stderr


def write(name, data):
    def damage(folder):
        (folder / name).write_bytes(data)

    return damage


def cut(name):
    def damage(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def pipe(name):
    def damage(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


SETTING = {
    "name": "temperature",
    "type": "float",
    "default": 1,
    "low": 0,
    "above_low": False,
    "high": None,
    "range": "",
}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut("saved_model.pb"), ""),
        (write("saved_model.pb", b""), ""),
        (write("saved_model.pb", b"\xff" * 1000), ""),
        (cut("variables/variables.index"), ""),
        (lambda folder: (folder / "variables" / "variables.index").unlink(), ""),
        (lambda folder: (folder / "sampling.json").unlink(), "sampling.json"),
        (pipe("variables/variables.index"), "variables.index is not a file"),
        (write("sampling.json", json.dumps([SETTING]).encode()), "the signature write takes"),
        (write("model.json", b'{"step": -1}'), "the step in its model.json is not a number of updates"),
        (write("model.json", b'{"step": 1, "threshold": "x"}'), "threshold in its model.json is damaged"),
        (write("model.json", b'{"step": 1, "examples": [{"text": 1}]}'), "examples in its model.json is damaged"),
    ],
)
def test_a_damaged_export_is_one_line(byte_export, tmp_path, damage, reason):
    folder = tmp_path / "model"
    shutil.copytree(byte_export, folder)
    damage(folder)
    with pytest.raises(StartError) as raised:
        ServedModel(str(folder))
    message = str(raised.value)
    assert "is not an exported model: " in message and reason in message
    assert "\n" not in message and len(message) < 500


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe\xfa", "sampling.json is not JSON"),
        (b"{", "sampling.json is not JSON"),
        (b'{"a": 1}', "must be a list of objects"),
        (b"[1]", "must be a list of objects"),
        (b"[{}]", "has a wrong name, or none"),
        (json.dumps([SETTING | {"default": "x"}]).encode(), "has a wrong default, or none"),
        (json.dumps([SETTING | {"low": True}]).encode(), "has a wrong low, or none"),
        (json.dumps([SETTING | {"type": "bool"}]).encode(), "neither int nor float"),
    ],
)
def test_damaged_settings_are_one_line(tmp_path, data, reason):
    (tmp_path / "sampling.json").write_bytes(data)
    with pytest.raises(StartError, match=reason):
        read_settings(str(tmp_path))


def test_a_model_of_another_program_has_no_routes_of_its_own(tmp_path):
    """Also if a signature has the name of one of ours. With some of its inputs it counts as an old export of ours."""
    for name, given in (("serving_default", "x"), ("classify", "x"), ("classify", "texts")):
        function = tf.function(lambda x: {"y": x + 1}).get_concrete_function(tf.TensorSpec([None], tf.float32, given))
        folder = str(tmp_path / name / given)
        tf.saved_model.save(tf.Module(), folder, signatures={name: function})
        if given == "x":
            assert (ServedModel(folder).routes, list(ServedModel(folder).signatures)) == ((), [name])
        else:
            with pytest.raises(StartError, match="the signature classify takes texts, and not texts, second"):
                ServedModel(folder)


def test_a_folder_named_in_two_lines_is_one_line_in_the_name_of_its_model(byte_export, tmp_path):
    folder = tmp_path / "two\n lines"
    shutil.copytree(byte_export, folder)
    model = ServedModel(str(folder))
    assert model.name == "two lines" and "two lines" in model.title


def test_ctrl_c_that_an_import_swallows_ends_the_server_before_it_serves(byte_export, tmp_path):
    (tmp_path / "tensorflow_text.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    command = [sys.executable, *COMMAND, f"--export_dir={byte_export}", "--port=0"]
    path = os.pathsep.join((str(tmp_path), CLONE["PYTHONPATH"]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_limits_follow_the_memory_that_caches_need():
    limits = Limits(memory_mb=64, max_sessions=10, max_requests=3)
    assert (limits.rows(1 << 10), limits.sessions(1 << 10)) == ((8, 24), 10)
    assert (limits.rows(1 << 20), limits.sessions(1 << 20)) == ((2, 6), 10)
    assert (limits.rows(1 << 22), limits.sessions(1 << 22)) == ((1, 3), 8)
    assert (limits.rows(1 << 40), limits.sessions(1 << 40)) == ((1, 1), 1)


@pytest.mark.slow
def test_a_server_writes_nothing_but_its_own_lines_and_ends_at_once(byte_export, tmp_path):
    """In a fresh process, which loads TensorFlow itself and cannot import txl_tf."""
    libraries = tmp_path / "libraries.log"
    flags = ["serving", f"--export_dir={byte_export}", "--port=0", f"--library_log={libraries}"]
    code = "import runpy, sys; sys.modules['txl_tf'] = None; runpy.run_module('serving', run_name='__main__')"
    program = f"import sys; sys.argv = {flags!r}; sys.path[0] = {CLONE['PYTHONPATH']!r}; {code}"
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        assert "ready at http://" in process.stdout.readline()
        line = process.stdout.readline()
        address = line.split(" at ")[1].split(": /")[0]
        assert server.call(address, "/score", {"texts": ["abc"]})[0] == 200
        data = json.dumps({"prompt": "a", "max_tokens": 10_000}).encode()
        with urllib.request.urlopen(address + "/stream", data, timeout=60) as answer:
            assert "text" in json.loads(answer.readline())
            process.send_signal(signal.SIGTERM)
            last = answer.readlines()[-1]
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and out == ""
    assert json.loads(last) == {"error": "the server is stopping"}
    lines = [json.loads(line) for line in errors.splitlines() if "getting ready" not in line]
    assert [line.get("route", line.get("message")) for line in lines] == ["/score", "stopping", "/stream"]
    assert all(line["time"].startswith("20") for line in lines)
    assert "tensorflow" in libraries.read_text().lower()  # it was written, elsewhere

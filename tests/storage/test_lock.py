"""Only one process writes to a directory, and a process that has ended does not block it."""

import json
import os
import pathlib
import signal
import time

import processes
import pytest
from small_run import CONFIG

from txl_tf.errors import InputError
from txl_tf.storage import lock
from txl_tf.storage.files import write_atomically
from txl_tf.storage.lock import LOCK_FILE, STALE_SECONDS, Lock
from txl_tf.training.loop import train

HOLD = "import sys, time\nfrom txl_tf.storage.lock import Lock\nwith Lock(sys.argv[1]):\n    time.sleep(600)\n"
ENVIRONMENT = {"PYTHONPATH": str(pathlib.Path(__file__).parents[2])}


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path."""
    process = processes.Popen(["-c", HOLD, str(tmp_path)], env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while not (tmp_path / LOCK_FILE).exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    yield process
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def refused(folder, match):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=match) as error, Lock(str(folder)):
        pass
    assert "\n" not in str(error.value) and f"remove {folder}/{LOCK_FILE}" in str(error.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_second_run_is_refused_until_the_first_is_killed(tmp_path, holder, corpus, one_device):
    with pytest.raises(InputError, match=f"is in use by process {holder.pid} on ") as error:
        train(CONFIG, corpus, str(tmp_path), one_device)
    assert "\n" not in str(error.value)
    refused(tmp_path, f"is in use by process {holder.pid} on ")
    assert os.listdir(tmp_path) == [LOCK_FILE]
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(30)
    with Lock(str(tmp_path)) as own:
        own.check()
        assert json.loads((tmp_path / LOCK_FILE).read_text())["process"] == os.getpid()
        refused(tmp_path, f"is in use by process {os.getpid()} on ")
    assert not os.listdir(tmp_path)


def record_of(folder, **change):
    """The lock of this process, with other fields, as a file."""
    with Lock(str(folder)):
        record = json.loads((folder / LOCK_FILE).read_text())
    record |= {"time": time.time()} | change
    (folder / LOCK_FILE).write_text(json.dumps(record))
    return record


def test_whose_lock_counts_on_this_machine(tmp_path):
    """That of a process that runs, and is the same one: a process's number is given again."""
    record_of(tmp_path)
    refused(tmp_path, f"is in use by process {os.getpid()} on ")
    (tmp_path / LOCK_FILE).unlink()
    for change in ({"started": "1"}, {"process": 1 << 30}):
        record_of(tmp_path, **change)
        with Lock(str(tmp_path)):
            pass
        assert not os.listdir(tmp_path)


@pytest.mark.parametrize("age", [-1000.0, 0.0, 0.3, 1000.0])
def test_the_lock_of_another_machine_counts_while_it_is_renewed(tmp_path, monkeypatch, age):
    """Whatever its clock says, and although a process here has the same number."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.5)
    began = time.monotonic()
    record_of(tmp_path, machine="another", time=time.time() - age)
    with Lock(str(tmp_path), renew_seconds=0.04):
        assert time.monotonic() - began < 30
    assert not os.listdir(tmp_path)


def test_the_lock_of_another_machine_that_is_renewed(tmp_path, capsys):
    record = record_of(tmp_path, machine="another", host="elsewhere")
    read = Lock._read

    def renewed(self):
        found = read(self)
        write_atomically(str(tmp_path / LOCK_FILE), json.dumps(record | {"time": time.time()}))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lock, "_read", renewed)
        with pytest.raises(InputError, match=r"is in use by process \d+ on elsewhere"), Lock(str(tmp_path), 0.02):
            pass
    (line,) = capsys.readouterr().out.splitlines()
    assert f"on elsewhere: waiting for {STALE_SECONDS:.0f} s to see" in line


def test_a_lock_is_renewed_and_its_loss_noticed(tmp_path):
    path = tmp_path / LOCK_FILE
    with Lock(str(tmp_path), renew_seconds=0.02) as own:
        first = json.loads(path.read_text())
        until(lambda: json.loads(path.read_text())["time"] > first["time"])
        own.check()
        other = first | {"id": "other", "host": "elsewhere", "process": 7}
        path.write_text(json.dumps(other))

        def is_noticed():
            try:
                own.check()
            except InputError as error:
                return "is in use by process 7 on elsewhere" in str(error)

        until(is_noticed)
    assert json.loads(path.read_text()) == other, "another's lock is left alone"


def test_a_damaged_lock_says_what_to_remove(tmp_path):
    (tmp_path / LOCK_FILE).write_text('{"id"')
    refused(tmp_path, "is not JSON .*: if no process writes here")


def test_processes_that_have_ended(monkeypatch):
    child = os.fork()
    if not child:
        os._exit(0)
    until(lambda: lock._started(child) == "")  # although nobody has waited for it
    os.waitpid(child, 0)
    assert lock._started(child) == ""
    assert lock._started(os.getpid())


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

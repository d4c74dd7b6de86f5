"""The shell scripts against a gcloud that only writes down what it is asked, and a training that only pretends."""

import os
import pathlib
import re
import shlex
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WHERE = ["--name=my-tpu", "--zone=us-west4-a"]
KIND = "--accelerator_type=v5litepod-8"
TRAINING = ["--preset=wt103_large", "--data_dir=gs://b/my data", "--model_dir=gs://b/runs/$x"]
COMMANDS = {
    "create.sh": [*WHERE, KIND, "--spot"],
    "setup.sh": WHERE,
    "launch.sh": [*WHERE, "--pod", "--", *TRAINING],
    "keep_running.sh": [*WHERE, KIND, "--", *TRAINING],
    "stop.sh": [*WHERE, "--delete"],
}

GCLOUD = r"""#!/usr/bin/env bash
# tpu, request and status hold what to answer, the first line first, the last one for ever.
cd "$FAKE"
printf '%s\0' "$@" >>calls && printf '\n' >>calls
answer() {
  head -n 1 "$1"
  if (($(wc -l <"$1") > 1)); then sed -i 1d "$1"; fi
}
describe() {
  local state
  state=$(answer "$1")
  [[ $state != ABSENT ]] && echo "$state"
}
case "$3 $4" in
  "tpu-vm describe") describe tpu ;;
  "queued-resources describe") describe request ;;
  "queued-resources create") echo ACTIVE >request && cp created tpu ;;
  "queued-resources delete") echo ABSENT | tee tpu >request ;;
  "tpu-vm ssh") [[ $* != *"on_host.sh status"* ]] || answer status ;;
esac
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """run(script, *flags), and the calls of gcloud so far as lists of arguments after `gcloud compute tpus`."""
    return Cloud(tmp_path, monkeypatch)


class Cloud:
    def __init__(self, folder, monkeypatch):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin/gcloud").write_text(GCLOUD)
        (folder / "bin/gcloud").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE", str(folder))
        monkeypatch.setenv("TPU_POLL_SECONDS", "0")
        self.answers(tpu="ABSENT", request="ABSENT", created="CREATING READY", status="finished")

    def answers(self, **states):
        for name, words in states.items():
            (self.folder / name).write_text(words.replace(" ", "\n") + "\n")

    def run(self, script, *flags):
        (self.folder / "calls").write_text("")
        return subprocess.run([ROOT / "tpu" / script, *flags], capture_output=True, text=True, timeout=60)

    @property
    def calls(self):
        lines = (self.folder / "calls").read_text().split("\0\n")[:-1]
        assert all(line.startswith("compute\0tpus\0") for line in lines)
        return [line.split("\0")[2:] for line in lines]

    @property
    def changes(self):
        return [call for call in self.calls if call[1] != "describe"]


def remote_command(call):
    """The command that an ssh call runs on the host, as arguments."""
    (command,) = (argument for argument in call if argument.startswith("--command="))
    return shlex.split(command.removeprefix("--command="))


def test_create_asks_once_and_waits(cloud):
    assert cloud.run("create.sh", *WHERE, KIND, "--spot", "--project=p").returncode == 0
    wanted = "--node-id=my-tpu --accelerator-type=v5litepod-8 --runtime-version=v2-alpha-tpuv5-lite --spot"
    where = ["--zone=us-west4-a", "--project=p"]
    assert cloud.changes == [["queued-resources", "create", "my-tpu", *wanted.split(), *where]]
    again = cloud.run("create.sh", *WHERE, KIND)
    assert again.stdout == "TPU my-tpu is READY\n"
    assert cloud.changes == []


def test_create_waits_for_a_request_that_is_there(cloud):
    cloud.answers(tpu="ABSENT ABSENT READY", request="WAITING_FOR_RESOURCES")
    assert cloud.run("create.sh", *WHERE, KIND).returncode == 0
    assert cloud.changes == []


@pytest.mark.parametrize("state", ["PREEMPTED ACTIVE", "ABSENT SUSPENDED", "ABSENT FAILED"])
def test_create_replaces_what_was_taken_away(cloud, state):
    cloud.answers(tpu=state.split()[0], request=state.split()[1])
    assert cloud.run("create.sh", *WHERE, KIND).returncode == 0
    assert [call[1] for call in cloud.changes] == ["delete", "create"]


def test_setup_sends_this_commit_to_every_host(cloud):
    cloud.answers(tpu="READY")
    assert cloud.run("setup.sh", *WHERE).returncode == 0
    copy, install = cloud.changes
    assert copy[:2] == ["tpu-vm", "scp"] and copy[3] == "my-tpu:txl_tf.tar.gz" and "--worker=all" in copy
    assert "--worker=all" in install and remote_command(install)[-2:] == ["txl_tf/tpu/on_host.sh", "install"]


def test_launch_hands_flags_on_as_they_are(cloud):
    cloud.answers(tpu="READY")
    assert cloud.run("launch.sh", *WHERE, "--", *TRAINING).returncode == 0
    (train,) = cloud.changes
    assert "--worker=0" in train
    assert remote_command(train) == ["bash", "txl_tf/tpu/on_host.sh", "train", "--tpu=local", *TRAINING]


def test_launch_on_a_pod_starts_the_servers_first(cloud):
    cloud.answers(tpu="READY")
    assert cloud.run("launch.sh", *WHERE, "--pod", "--", *TRAINING).returncode == 0
    serve, train = cloud.changes
    assert "--worker=all" in serve and remote_command(serve)[-1] == "serve"
    assert "--worker=0" in train and remote_command(train)[2:] == ["train", "--tpu=my-tpu", *TRAINING]


def test_keep_running_begins_again_after_a_preemption(cloud):
    # Ready through set-up and launch and one look, then gone; the next one stays.
    cloud.answers(tpu="READY READY READY READY PREEMPTED", request="ACTIVE", created="READY", status="running finished")
    done = cloud.run("keep_running.sh", *WHERE, KIND, "--spot", "--", *TRAINING)
    assert done.returncode == 0 and done.stdout.endswith("training has finished\n")
    kinds = [call[1] for call in cloud.changes]
    one_round = ["scp", "ssh", "ssh", "ssh"]  # copy, install, train, status
    assert kinds == [*one_round, "delete", "create", *one_round]


def test_keep_running_ends_with_a_training_that_failed(cloud):
    cloud.answers(tpu="READY", status="running failed")
    done = cloud.run("keep_running.sh", *WHERE, KIND, "--", *TRAINING)
    assert done.returncode == 1 and done.stderr.startswith("error: training has failed")


def test_stop_saves_before_it_deletes_and_twice_does_nothing(cloud):
    cloud.answers(tpu="READY", request="ACTIVE")
    assert cloud.run("stop.sh", *WHERE, "--delete").returncode == 0
    stop, delete = cloud.changes
    assert remote_command(stop)[-1] == "stop"
    assert delete[:3] == ["queued-resources", "delete", "my-tpu"]
    assert cloud.run("stop.sh", *WHERE, "--delete").returncode == 0
    assert cloud.changes == []


@pytest.mark.parametrize("script", COMMANDS)
def test_dry_run_prints_commands_and_calls_nothing(cloud, script):
    done = cloud.run(script, "--dry_run", *COMMANDS[script])
    assert done.returncode == 0, done.stderr
    assert cloud.calls == []
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    assert lines and all(line[:3] == ["gcloud", "compute", "tpus"] and "--zone=us-west4-a" in line for line in lines)


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        ("create.sh", WHERE, "needs --accelerator_type=..."),
        ("create.sh", [*WHERE, "--accelerator_type=gpu"], "give --runtime_version"),
        ("create.sh", [*WHERE, KIND, "--sopt"], "does not take '--sopt'"),
        ("setup.sh", WHERE, "TPU my-tpu in us-west4-a is ABSENT, not READY: run tpu/create.sh first"),
        ("launch.sh", WHERE, "after -- give --preset=..."),
        ("launch.sh", [*WHERE, "--", *TRAINING[:2], "--model_dir=runs/x"], "--model_dir must be on gs://"),
        ("stop.sh", ["--name=x"], "needs --zone=..."),
    ],
)
def test_errors_are_one_line(cloud, script, flags, message):
    done = cloud.run(script, *flags)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr and done.stderr.count("\n") == 1
    assert cloud.changes == []


@pytest.mark.parametrize("script", COMMANDS)
def test_help_says_how(cloud, script):
    done = cloud.run(script, "--help")
    assert f"tpu/{script} --name=my-tpu --zone=us-west4-a" in done.stdout
    flags = re.search(r'read_flags "(.*?)" "(.*?)"', (ROOT / "tpu" / script).read_text()).groups()
    assert all(f"--{flag.strip('!')}" in done.stdout for flag in " ".join(flags).split())


PYTHON = r"""#!/usr/bin/env bash
# Stands for .venv/bin/python scripts/train.py: does what the next line of `script` says.
echo "$*" >>arguments
todo=$(head -n 1 script)
sed -i 1d script
case $todo in
  killed) kill -KILL $$ ;;
  wait)
    trap 'echo saved >>arguments; exit 143' TERM
    while true; do sleep 0.05; done
    ;;
  *) exit "$todo" ;;
esac
"""


class Host:
    def __init__(self, folder):
        self.folder = folder
        for name in ("tpu", ".venv/bin"):
            (folder / name).mkdir(parents=True)
        (folder / "tpu/on_host.sh").write_bytes((ROOT / "tpu/on_host.sh").read_bytes())
        (folder / ".venv/bin/python").write_text(PYTHON)
        (folder / ".venv/bin/python").chmod(0o755)

    def __call__(self, *command):
        environment = os.environ | {"TPU_RESTART_SECONDS": "0"}
        script = self.folder / "tpu/on_host.sh"
        done = subprocess.run(["bash", script, *command], capture_output=True, text=True, timeout=30, env=environment)
        return done.stdout.strip()

    def wait_for(self, status):
        for _ in range(200):
            if self("status") == status:
                return
            time.sleep(0.05)
        raise AssertionError(f"{self('status')}, not {status}: {(self.folder / 'run/train.log').read_text()}")

    @property
    def trainings(self):
        path = self.folder / "arguments"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_killed_training_goes_on_and_a_finished_one_ends(host):
    (host.folder / "script").write_text("killed\nkilled\n0\n")
    assert host("status") == "absent"
    assert "train started" in host("train", "--tpu=local", "--data_dir=a b")
    host.wait_for("finished")
    assert host.trainings == ["scripts/train.py --tpu=local --data_dir=a b"] * 3


def test_a_failed_training_is_not_repeated(host):
    (host.folder / "script").write_text("1\n0\n")
    host("train")
    host.wait_for("failed")
    assert len(host.trainings) == 1


def test_stop_lets_training_save_and_twice_is_once(host):
    (host.folder / "script").write_text("wait\n0\n")
    host("train")
    assert host("train").startswith("train runs already")
    while not host.trainings:
        time.sleep(0.05)
    time.sleep(0.2)  # until its trap is set
    assert host("stop") == "stopped"
    assert host("stop") == "stopped"
    assert host.trainings[1:] == ["saved"]

"""Several processes that train together, found through TF_CONFIG."""

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import processes
import pytest
from small_run import change, lines

from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.runs.model_dir import load_trained
from txl_tf.training.loop import train


def free_addresses(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    return addresses


@pytest.mark.slow
def test_two_workers_train_as_one_process_does(corpus, tmp_path, one_device):
    """Step by step; the chief alone writes; a signal to one stops both, and they go on bit for bit; a loss is named."""
    addresses, workers = free_addresses(2), []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        workers.append(
            subprocess.Popen(
                [sys.executable, os.path.join(processes.PROGRAMS, "worker.py"), corpus.data_dir, str(tmp_path)],
                env=os.environ | {"TF_CONFIG": json.dumps(task), "PYTHONPATH": processes.PATHS},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        said = [worker.communicate(timeout=600)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, -signal.SIGKILL], said
    for text in said:
        assert "SIGTERM: saved at step 6; the same command continues from there" in text
        assert "continuing at step 6 of 12: " in text
    assert "a machine that this run needs cannot be reached (" in said[0]

    import worker

    config = change(worker.RUN, train={"accumulate_steps": 1})
    alone = train(config, corpus, str(tmp_path / "alone"), one_device, worker.evaluator(corpus, one_device))
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        together = lines(tmp_path / "whole", file)
        assert [line["step"] for line in together] == (list(range(1, 13)) if file == "metrics.jsonl" else [6, 12])
        for mine, theirs in zip(together, lines(tmp_path / "alone", file), strict=True):
            assert mine == {
                name: value if isinstance(value, str) else pytest.approx(value, rel=1e-5)
                for name, value in theirs.items()
            }
        assert lines(tmp_path / "cut", file) == together
    for mine, theirs in zip(
        load_trained(str(tmp_path / "whole")).model.get_weights(), alone.get_weights(), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "cut", "lost", "alone"}


@pytest.mark.parametrize(
    "config",
    [
        "worker 1",
        '{"cluster": ["localhost:1"]}',
        '{"cluster": {"worker": ["localhost:1"]}}',
        '{"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "worker", "index": 2}}',
        '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "chief", "index": 0}}',
    ],
)
def test_a_wrong_tf_config_is_shown_beside_a_right_one(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    for name in ("auto", "multi_worker"):
        with pytest.raises(
            InputError, match=r'TF_CONFIG must be like {"cluster": .*"index": 0}}, with a task'
        ) as error:
            distribute.make_strategy(name)
        assert str(error.value).endswith(f"it is {config}") and "\n" not in str(error.value)


def test_several_workers_need_their_addresses(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(InputError, match="--strategy=multi_worker: set TF_CONFIG to the addresses of all workers"):
        distribute.make_strategy("multi_worker")

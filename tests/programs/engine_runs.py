"""Not a test: rows in Parquet files, and programs of examples/engines/ that predict for them, with a killed worker."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow
from pyarrow import parquet

ROOT = pathlib.Path(__file__).parents[2]
ENGINES = ROOT / "examples" / "engines"
WORDS = ["the", "River", "so", "a", "dash", "one"]


def write_rows(path, count, faulty=()):
    """Writes rows with an id and a text; of some ids without text. Twenty files, as an engine has its input in many."""
    path.mkdir()
    draw = np.random.default_rng(count)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(count)]
    rows = pyarrow.table(
        {"id": list(range(count)), "text": [None if i in faulty else text for i, text in enumerate(texts)]}
    )
    rows = rows.cast(pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())]))
    size = -(-count // 20) or 1
    for i, start in enumerate(range(0, max(count, 1), size)):
        parquet.write_table(rows.slice(start, size), path / f"{i:02d}.parquet")
    return rows


def check(files, wanted):
    """Asserts that Parquet files hold the rows of a table, in any order: none lost, doubled or changed."""
    parts = [parquet.read_table(file) for file in sorted(files)]
    found = pyarrow.concat_tables(parts).sort_by("id").to_pylist() if parts else []
    assert [row["id"] for row in found] == list(range(len(wanted)))
    for row, right in zip(found, wanted.to_pylist(), strict=True):
        assert row.keys() == right.keys()
        near = {name: abs((row[name] or 0) - (right[name] or 0)) < 1e-5 for name in ("probability",)}
        assert all(near.values()) and {**row, **near} == {**right, **near}, (row, right)


def environment(**more):
    return os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"} | more


def run(command, env, log, timeout=280, kill=None):
    """The exit status of a program, whose messages go into a file.

    kill: what finds the worker's process; None as long as none should be killed yet. One is killed.
    """
    with open(log, "w") as file, subprocess.Popen(command, env=env, stdout=file, stderr=file) as process:
        end = time.monotonic() + timeout
        while process.poll() is None:
            if kill and (victim := kill()):
                os.kill(victim, signal.SIGKILL)
                kill = None
            if time.monotonic() > end:
                process.kill()
                raise TimeoutError(f"{command} has not ended: {log.read_text()[-3000:]}")
            time.sleep(0.02)
    assert kill is None, f"no worker was killed: {log.read_text()[-3000:]}"
    return process.returncode


def process_named(*words):
    """The number of a process whose command line has all of these words; None if there is none."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if all(word in line for word in words) and not line.startswith("/bin/sh") and int(folder.name) != os.getpid():
            return int(folder.name)
    return None


def python(program, *arguments, interpreter=sys.executable):
    """The command of a program of examples/engines/."""
    return [str(interpreter), str(ENGINES / program), *map(str, arguments)]


def beam(processes, model, source, target, interpreter=sys.executable):
    """The command of beam_predict.py with Beam's runner for one machine, which writes files target/out*."""
    flags = ["--direct_running_mode=multi_processing", f"--direct_num_workers={processes}"]
    return python("beam_predict.py", model, source / "*.parquet", target / "out", *flags, interpreter=interpreter)


@contextlib.contextmanager
def ray_cluster(nodes=2):
    """The environment of programs that use Ray; each of the nodes has its own processor."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 200 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    for _ in range(1, nodes):
        cluster.add_node(**node)
    cluster.wait_for_nodes()
    try:
        yield environment(RAY_ADDRESS=cluster.address)
    finally:
        cluster.shutdown()


def ray_worker():
    """A process that predicts on Ray."""
    return process_named("ray::MapWorker")


def spark(executors, model, source, target):
    """The command and environment of spark_predict.py; each of the executors is a process."""
    submit = [os.path.join(sys.prefix, "bin", "spark-submit"), f"--master=local-cluster[{executors},1,2048]"]
    submit += [f"--conf=spark.executorEnv.PYTHONPATH={ROOT}"]
    _, *program = python("spark_predict.py", model, source, target)
    return [*submit, *program], environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")


def spark_worker():
    """An executor's process."""
    return process_named("CoarseGrainedExecutorBackend")

"""examples/engines/ray_predict.py on a cluster of two nodes, each with its own processor."""

import engine_runs
import pytest

pytest.importorskip("ray", reason="make test-engines has it")


@pytest.fixture(scope="module")
def env():
    with engine_runs.ray_cluster() as environment:
        yield environment


def predict(env, model, source, target, log, **options):
    command = engine_runs.python("ray_predict.py", model, source, target, 2)
    return engine_runs.run(command, env, log, **options)


def test_a_killed_worker_loses_doubles_and_changes_nothing(env, model, rows, tmp_path):
    source, wanted = rows

    def working():
        return engine_runs.ray_worker() if list(tmp_path.glob("out/*.parquet")) else None

    assert predict(env, model, source, tmp_path / "out", tmp_path / "log", kill=working) == 0
    engine_runs.check((tmp_path / "out").glob("*.parquet"), wanted)


def test_few_rows(env, model, few, tmp_path):
    source, wanted = few
    assert predict(env, model, source, tmp_path / "out", tmp_path / "log") == 0, (tmp_path / "log").read_text()
    engine_runs.check((tmp_path / "out").glob("*.parquet"), wanted)


def test_a_model_that_is_not_there_is_one_error(env, rows, tmp_path):
    source, _ = rows
    assert predict(env, tmp_path / "none", source, tmp_path / "out", tmp_path / "log") == 1
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith(f"error: {tmp_path / 'none'} holds no model: give a model_dir")
    assert not list(tmp_path.glob("out/*"))

"""examples/engines/spark_predict.py with two executors in processes of their own, as on a cluster."""

import engine_runs
import pytest

pytest.importorskip("pyspark", reason="make test-engines has it")


def predict(model, source, target, log, **options):
    return engine_runs.run(*engine_runs.spark(2, model, source, target), log, timeout=600, **options)


def test_a_killed_worker_loses_doubles_and_changes_nothing(model, rows, tmp_path):
    source, wanted = rows

    def working():
        written = list(tmp_path.glob("out/_temporary/**/part-*.parquet"))
        return engine_runs.spark_worker() if written else None

    assert predict(model, source, tmp_path / "out", tmp_path / "log", kill=working) == 0
    engine_runs.check((tmp_path / "out").glob("*.parquet"), wanted)


def test_few_rows(model, few, tmp_path):
    source, wanted = few
    assert predict(model, source, tmp_path / "out", tmp_path / "log") == 0, (tmp_path / "log").read_text()
    engine_runs.check((tmp_path / "out").glob("*.parquet"), wanted)


def test_a_model_that_is_not_there_is_one_error(rows, tmp_path):
    source, _ = rows
    assert predict(tmp_path / "none", source, tmp_path / "out", tmp_path / "log") == 1
    (error,) = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("error: ")]
    assert error.startswith(f"error: {tmp_path / 'none'} holds no model: give a model_dir")
    assert not (tmp_path / "out").exists()

"""examples/engines/beam_predict.py with Beam's runner for one machine and two processes."""

import engine_runs
import pytest

pytest.importorskip("apache_beam", reason="make test-engines has it, in .venv-beam")


def predict(model, source, target, log, **options):
    return engine_runs.run(engine_runs.beam(2, model, source, target), engine_runs.environment(), log, **options)


def test_rows_are_those_of_one_process(model, rows, tmp_path):
    source, wanted = rows
    assert predict(model, source, tmp_path, tmp_path / "log") == 0, (tmp_path / "log").read_text()
    engine_runs.check(tmp_path.glob("out*.parquet"), wanted)


def test_few_rows(model, few, tmp_path):
    source, wanted = few
    assert predict(model, source, tmp_path, tmp_path / "log") == 0, (tmp_path / "log").read_text()
    engine_runs.check(tmp_path.glob("out*.parquet"), wanted)


def test_a_model_that_is_not_there_is_one_error(rows, tmp_path):
    source, _ = rows
    assert predict(tmp_path / "none", source, tmp_path, tmp_path / "log") == 1
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith(f"error: {tmp_path / 'none'} holds no model: give a model_dir")

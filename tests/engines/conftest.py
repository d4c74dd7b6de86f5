"""A classifier and rows for it, whose predictions by one process are known."""

import engine_runs
import pytest
import tuned_models

import txl_tf

ROWS, FAULTY = 4000, range(50, 4000, 100)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tuned_models.write_model_dir(folder, "classification", ("bad", "good", "mixed"))
    return folder


@pytest.fixture(scope="session")
def rows(model, tmp_path_factory):
    """(a folder of Parquet files, 1 % of whose rows have no text; the table that one process makes of them)."""
    folder = tmp_path_factory.mktemp("rows") / "in"
    table = engine_runs.write_rows(folder, ROWS, set(FAULTY))
    wanted = txl_tf.BatchPredictor(str(model))(table)
    texts = [text for text in table["text"].to_pylist() if text]
    file = folder.parent / "texts.jsonl"  # the same, as scripts/predict.py reads it
    file.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    of_file = txl_tf.load(str(model), progress=False).predict_file(str(file))
    good = [row for row in wanted.to_pylist() if row["fault"] is None]
    assert [row["prediction"] for row in good] == [one["label"] for one in of_file] and len(good) == ROWS - len(FAULTY)
    return folder, wanted


@pytest.fixture(params=[0, 1], ids=["no row", "one row"])
def few(request, model, tmp_path):
    """The same, of no row or one."""
    table = engine_runs.write_rows(tmp_path / "in", request.param)
    return tmp_path / "in", txl_tf.BatchPredictor(str(model))(table)

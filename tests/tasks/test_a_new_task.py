"""A task is one module: grades go through training, evaluation, prediction, export, plain TensorFlow and the server."""

import dataclasses
import pathlib

import grades
import numpy as np
import pytest
import random_xlnet
import replicas
import server
import tensorflow as tf

import txl_tf
from txl_tf import families
from txl_tf.finetuner import Finetuner
from txl_tf.inference.export import export_trained
from txl_tf.inference.tasks.predictor import Predictor
from txl_tf.runs.model_card import describe_model

SETTINGS = {
    "data": {"batch_size": 6, "tgt_len": 16},
    "train": {"train_steps": 80, "learning_rate": 0.02, "eval_steps": 40, "save_steps": 40, "jit_compile": False},
    "eval": {"batch_size": 6, "jit_compile": False},
    "model": {"dropout": 0.0, "dropatt": 0.0, "summary_dropout": 0.0},
}
TEXTS = ["the River", "one River", "so River"]


@pytest.fixture
def registered(monkeypatch):
    xlnet = families._FAMILIES["xlnet"]
    added = {"xlnet": dataclasses.replace(xlnet, tasks=(*xlnet.tasks, grades.Grades()))}
    monkeypatch.setattr(families, "_FAMILIES", families._FAMILIES | added)


def test_it_is_learned_used_and_served(registered, tmp_path):
    assert len(pathlib.Path(grades.__file__).read_text().splitlines()) <= 120
    random_xlnet.write_model_dir(tmp_path / "init", random_xlnet.with_prefix(), n_layer=1)
    file, strategy = str(tmp_path / "t.tsv"), replicas.one_device()
    rows = [f"{first} {last}\t{grade}\n" for grade, (first, _) in enumerate(map(str.split, TEXTS)) for last in TEXTS]
    pathlib.Path(file).write_text("text\tlabel\n" + "".join(rows))
    tuner = Finetuner(str(tmp_path / "init"), "grades", file, file, settings=SETTINGS, strategy=strategy)
    result = tuner.run(str(tmp_path / "run"))
    assert result["task"] == "grades" and result["exact"] == 1 and result["mean_error"] == 0
    assert "which gives a text a grade" in describe_model(str(tmp_path / "run")).text

    predictor = Predictor.load(str(tmp_path / "run"), strategy=strategy)
    assert [one["grade"] for one in predictor.predict(TEXTS)] == [0, 1, 2]
    assert predictor.predict_file(file, labelled=True).metrics["metrics"]["exact"] == 1

    added = txl_tf.BatchPredictor(str(tmp_path / "run"))({"text": [*TEXTS, None]})["grade"]
    assert added.tolist() == [0, 1, 2, None]

    export_trained(predictor.trained, str(tmp_path / "export"), jit_compile=False)
    added = txl_tf.BatchPredictor(str(tmp_path / "export"))({"text": [*TEXTS, None]})["grade"]
    assert added.tolist() == [0, 1, 2, None]
    signature = tf.saved_model.load(str(tmp_path / "export")).signatures["grade"]
    found = signature(texts=tf.constant(TEXTS), second=tf.constant([""] * 3))
    np.testing.assert_array_equal(found["grades"], [0, 1, 2])
    readme = (tmp_path / "export" / "README.md").read_text()
    assert "- grade: texts (string (None,)), second (string (None,))" in readme and "gives a text a grade" in readme
    with server.running(str(tmp_path / "export"), model_name="grades") as address:
        status, answer = server.call(
            address, "/v1/models/grades:predict", {"inputs": {"texts": TEXTS, "second": [""] * 3}}
        )
    assert status == 200 and answer["outputs"]["grades"] == [0, 1, 2]

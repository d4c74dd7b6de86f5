"""Files of errors: precision, recall and F1 by class beside scikit-learn's, and what a card shows of them."""

import csv
import io

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from txl_tf.errors import InputError
from txl_tf.metrics import error_files
from txl_tf.metrics.labelling import confusion
from txl_tf.metrics.task_results import Confusion, Worst, Wrong


def test_by_class_is_that_of_scikit_learn(rng):
    label, predicted = rng.integers(0, 4, 50), rng.integers(0, 3, 50)  # class 3 is never predicted
    counts = confusion(label, predicted, 5)  # class 4 is not there
    np.testing.assert_array_equal(counts, confusion_matrix(label, predicted, labels=range(5)))
    found = error_files.by_class(np.diag(counts), counts.sum(axis=1), counts.sum(axis=0))
    wanted = precision_recall_fscore_support(label, predicted, labels=range(5), zero_division=0)
    np.testing.assert_allclose([row[2:] for row in found], np.transpose(wanted[:3]), rtol=1e-12)
    assert [row[0] for row in found] == wanted[3].tolist()
    assert [row[1] for row in found] == np.bincount(predicted, minlength=5).tolist()


def test_files_and_the_card():
    columns = {"label": "bad", "prediction": "good", "probability": 0.99, "loss": 4.6}
    worst = Worst((Wrong(1, columns, 'a, "b"\n\n<c> | d' + "x" * 400), Wrong(0, columns | {"prediction": "so"}, "e")))
    files = error_files.error_files([Confusion(("bad", "good"), np.array([[3, 1], [0, 2]])), worst])
    tables = {name: list(csv.reader(io.StringIO(text))) for name, text in files.items()}
    assert tables["confusion.csv"] == [["label / prediction", "bad", "good"], ["bad", "3", "1"], ["good", "0", "2"]]
    assert tables["classes.csv"][0] == ["class", "examples", "predicted", "precision", "recall", "f1"]
    assert tables["classes.csv"][1][:5] == ["bad", "4", "3", "1.0", "0.75"]
    assert float(tables["classes.csv"][1][5]) == pytest.approx(2 * 3 / 7)
    wanted = [*map(str, columns.values()), worst.rows[0].text]
    assert tables["worst.csv"][:2] == [["label", "prediction", "probability", "loss", "text"], wanted]
    lines = list(error_files.in_a_card(files))
    assert "| bad | 4 | 3 | 1.000 | 0.750 | 0.857 |" in lines and "| good | 0 | 2 |" in lines
    (line,) = (line for line in lines if line.startswith("- good (99.0%)"))
    assert 'a, "b" &lt;c> \\| d' in line and line.endswith("..") and len(line) < 400
    many = Confusion(tuple("abcdefghijklmn"), np.eye(14, dtype=int))
    assert not any("confusion.csv" in line for line in error_files.in_a_card(error_files.error_files([many])))
    assert list(error_files.in_a_card({})) == []
    old = "error,text\ngood (99.0%) instead of bad,so\n"  # as version 0.3 wrote it
    assert list(error_files.in_a_card({"worst.csv": old}))[1:] == ["- good (99.0%) instead of bad: so"]
    for name, text in (
        ("confusion.csv", files["confusion.csv"][:-4]),
        ("worst.csv", "a\n1\n"),
        ("classes.csv", '"a" b'),
    ):
        with pytest.raises(InputError, match=f"{name} is .*: remove it"):
            list(error_files.in_a_card({name: text}))


def test_the_worst_have_the_cells_of_their_rows():
    """Before what is wrong with them, without the text's column; names that have another use get a number."""
    long = "so " * 60_000
    known = [
        {"row": 7, "cells": {"id": 3, "loss": None}, "text": long},
        {"row": 2, "cells": {"by": "Ann"}, "text": "one", "text_b": "two"},
    ]
    wrong = [Wrong(i, {"label": ["a", "b"], "prediction": [], "loss": 2.5}, "cut") for i in (1, 0)]
    files = error_files.error_files([Worst(tuple(wrong))], known.__getitem__, ";")
    csv.field_size_limit(1 << 30)
    header, *rows = csv.reader(io.StringIO(files["worst.csv"]))
    assert header == ["row", "by", "label", "prediction", "loss", "id", "loss_2", "text", "text_b"]
    assert rows == [
        ["2", "Ann", "a;b", "", "2.5", "", "", "one", "two"],
        ["7", "", "a;b", "", "2.5", "3", "", long, ""],
    ]
    csv.field_size_limit(1 << 17)
    assert list(error_files.in_a_card(files))[1] == "- nothing instead of a;b, loss 2.500: one"
    (header,) = csv.reader(io.StringIO(error_files.error_files([Worst(())])["worst.csv"]))
    assert header == ["row", "label", "prediction", "probability", "loss", "text"]

"""Files of errors: precision, recall and F1 by class beside scikit-learn's, and what a card shows of them."""

import csv
import io

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from txl_tf.errors import InputError
from txl_tf.metrics import error_files
from txl_tf.metrics.labelling import confusion
from txl_tf.metrics.panels import Confusion, Worst


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
    worst = Worst((("good (99.0%) instead of bad, loss 4.6", 'a, "b"\n\n<c> | d' + "x" * 400), ("two", "e")))
    files = error_files.error_files([Confusion(("bad", "good"), np.array([[3, 1], [0, 2]])), worst])
    tables = {name: list(csv.reader(io.StringIO(text))) for name, text in files.items()}
    assert tables["confusion.csv"] == [["label / prediction", "bad", "good"], ["bad", "3", "1"], ["good", "0", "2"]]
    assert tables["classes.csv"][0] == ["class", "examples", "predicted", "precision", "recall", "f1"]
    assert tables["classes.csv"][1][:5] == ["bad", "4", "3", "1.0", "0.75"]
    assert float(tables["classes.csv"][1][5]) == pytest.approx(2 * 3 / 7)
    assert tables["worst.csv"][1] == list(worst.rows[0])
    lines = list(error_files.in_a_card(files))
    assert "| bad | 4 | 3 | 1.000 | 0.750 | 0.857 |" in lines and "| good | 0 | 2 |" in lines
    (line,) = (line for line in lines if line.startswith("- good (99.0%)"))
    assert 'a, "b" &lt;c> \\| d' in line and line.endswith("..") and len(line) < 400
    many = Confusion(tuple("abcdefghijklmn"), np.eye(14, dtype=int))
    assert not any("confusion.csv" in line for line in error_files.in_a_card(error_files.error_files([many])))
    assert list(error_files.in_a_card({})) == []
    for name, text in (("confusion.csv", files["confusion.csv"][:-4]), ("worst.csv", "a\n"), ("classes.csv", '"a" b')):
        with pytest.raises(InputError, match=f"{name} is .*: remove it"):
            list(error_files.in_a_card({name: text}))

"""Metrics against scikit-learn and scipy on random cases, and where their definitions divide by zero."""

import math
import types
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from txl_tf.metrics import labelling
from txl_tf.tasks.classification import ClassResults
from txl_tf.tasks.regression import ScoreResults


def results(kind, outputs, label):
    return kind(outputs, types.SimpleNamespace(features={"label": label}))


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("classes", [2, 3, 20])
def test_metrics_of_classes(rng, classes):
    for n in (1, 2, 5, 300):
        for noise in (0.0, 0.3, 1.0):
            label = rng.integers(0, classes, n)
            predicted = np.where(rng.random(n) < noise, rng.integers(0, classes, n), label)
            wanted = {
                "accuracy": sklearn.metrics.accuracy_score(label, predicted),
                "macro_f1": sklearn.metrics.f1_score(label, predicted, average="macro"),
                "matthews": sklearn.metrics.matthews_corrcoef(label, predicted),
            }
            found = results(ClassResults, {"log_probs": np.eye(classes)[predicted]}, label).measure({})
            assert found == pytest.approx(wanted, abs=1e-12)
            table = sklearn.metrics.confusion_matrix(label, predicted, labels=range(classes))
            np.testing.assert_array_equal(labelling.confusion(label, predicted, classes), table)


def test_metrics_of_scores(rng):
    for n in (2, 3, 50, 1000):
        label = rng.normal(size=n).astype(np.float32)
        for score in (rng.normal(size=n), label + rng.normal(size=n), np.round(label), -2 * label):
            score = score.astype(np.float32)
            if np.ptp(score) == 0:
                continue
            found = results(ScoreResults, {"score": score}, label).measure({})
            wanted = scipy.stats.pearsonr(label.astype(float), score.astype(float)).statistic
            assert found["pearson"] == pytest.approx(wanted, abs=1e-9)
            assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(label, score).statistic, abs=1e-9)
    values = rng.integers(0, 6, 40)
    np.testing.assert_array_equal(labelling.ranks(values), scipy.stats.rankdata(values))


def test_where_definitions_divide_by_zero():
    constant, rising = np.full(5, 0.1), np.arange(5.0)
    assert math.isnan(labelling.pearson(rising, constant)) and math.isnan(labelling.spearman(constant, rising))
    ones = np.ones(4, int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert labelling.matthews(ones, ones) == sklearn.metrics.matthews_corrcoef(ones, ones) == 0
    assert labelling.macro_f1(ones, ones) == 1  # class 0 does not occur


def log_probs(confidence, predicted):
    table = np.full([len(predicted), 2], math.log(1 - confidence))
    table[np.arange(len(predicted)), predicted] = math.log(confidence)
    return table


def outputs(confidence, predicted, label):
    table = log_probs(confidence, predicted)
    return {"log_probs": table, "loss": -table[np.arange(len(label)), label]}


def test_a_collapsed_run_is_told_from_one_that_is_too_sure():
    label = np.array([0, 1] * 10)
    constant = results(ClassResults, outputs(0.6, np.zeros(20, int), label), label).collapse({})
    assert constant == "all 20 examples are predicted to be of one class"
    guessing = np.array([0, 1, 1, 0] * 5)
    found = results(ClassResults, outputs(0.6, guessing, label), label).collapse({})
    assert found.startswith("it is no better than always predicting the largest class (loss 0.7")
    assert found.endswith("there 0.6931)")
    right = label.copy()
    right[:5] = 1 - right[:5]
    too_sure = outputs(0.999, right, label)
    assert too_sure["loss"].mean() > 1 and results(ClassResults, too_sure, label).collapse({}) is None
    assert labelling.entropy(np.array([0, 3, 9])) == pytest.approx(scipy.stats.entropy([0.25, 0.75]))

    scores = np.linspace(-1, 1, 20)
    near = {"score": scores + 0.1, "loss": np.full(20, 0.01)}
    assert results(ScoreResults, near, scores).collapse({}) is None
    flat = {"score": np.full(20, 0.3), "loss": (scores - 0.3) ** 2}
    assert "nearly the same score" in results(ScoreResults, flat, scores).collapse({})
    wrong = {"score": -scores, "loss": 4 * scores**2}
    assert "always predicting the mean has" in results(ScoreResults, wrong, scores).collapse({})

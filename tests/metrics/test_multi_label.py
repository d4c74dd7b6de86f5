"""Metrics of texts with any number of labels, against scikit-learn and a search over all thresholds."""

import types

import numpy as np
import pytest
from sklearn import metrics

from txl_tf.metrics import labelling
from txl_tf.metrics.error_files import by_class
from txl_tf.tasks.multi_label import LabelSetResults


@pytest.fixture
def drawn(rng):
    label = (rng.random([40, 5]) < [0.6, 0.3, 0.1, 0.5, 0.02]).astype(np.uint8)
    return label, np.round(np.clip(0.4 * label + 0.6 * rng.random([40, 5]), 0, 1), 2).astype(np.float32)


def test_scores_are_scikit_learns(drawn):
    label, probabilities = drawn
    found = labelling.multi_label(label, probabilities, 0.5)
    predicted = probabilities >= 0.5
    wanted = {name: metrics.f1_score(label, predicted, average=name, zero_division=0) for name in ("micro", "macro")}
    assert (found["micro_f1"], found["macro_f1"]) == pytest.approx((wanted["micro"], wanted["macro"]))
    assert found["exact"] == pytest.approx(metrics.accuracy_score(label, predicted)) and found["threshold"] == 0.5
    examples, given, *rates = zip(*by_class(*labelling.label_counts(label, predicted)), strict=True)
    columns = metrics.precision_recall_fscore_support(label, predicted, zero_division=0)
    for ours, theirs in zip((*rates, examples), columns, strict=True):
        np.testing.assert_allclose(ours, theirs)
    assert list(given) == predicted.sum(axis=0).tolist()


def test_no_threshold_is_better_than_the_best(drawn):
    label, probabilities = drawn
    threshold = labelling.multi_label(label, probabilities)["threshold"]

    def score(at):
        return metrics.f1_score(label, probabilities >= at, average="micro", zero_division=0)

    assert score(threshold) == max(score(at) for at in np.arange(0, 1.005, 0.005)) > score(0.5)
    assert labelling.best_threshold(np.zeros([2, 2], int), np.full([2, 2], 0.3)) == pytest.approx(0.15)


def test_collapse():
    same, two = (
        LabelSetResults({"probabilities": np.array(rows)}, types.SimpleNamespace(features={})).collapse({})
        for rows in ([[0.9, 0.9]] * 3, [[0.9, 0.1], [0.1, 0.9]])
    )
    assert "the same labels" in same and two is None


def test_labels_have_collapsed_only_at_the_threshold_that_is_used():
    """At 0.5, that of a model that was not evaluated, no text has a label; elsewhere the best on dev counts."""
    outputs = {"probabilities": np.array([[0.4, 0.1], [0.1, 0.1]])}
    plain = LabelSetResults(outputs, types.SimpleNamespace(features={}))
    labelled = LabelSetResults(outputs, types.SimpleNamespace(features={"label": np.array([[1, 0], [0, 0]])}))
    assert plain.collapse({}) == "all 2 examples are predicted to have the same labels"
    assert plain.collapse({"threshold": 0.3}) is labelled.collapse({}) is None
    assert labelled.collapse({"threshold": 0.5}) is not None

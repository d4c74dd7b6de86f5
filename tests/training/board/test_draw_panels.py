"""What TensorBoard shows of an evaluation of a fine-tuned model."""

import dataclasses

import numpy as np
import pytest
import random_xlnet
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from txl_tf.data.examples.example_set import ExamplePlan
from txl_tf.data.tables.columns import Columns
from txl_tf.metrics.task_results import Confusion, Reliability, Worst, Wrong, heading
from txl_tf.tasks.classification import ClassResults, XLNetClassificationConfig
from txl_tf.tasks.multi_label import LabelSetResults, XLNetMultiLabelConfig
from txl_tf.tasks.multiple_choice import ChoiceResults, MultipleChoice, XLNetMultipleChoiceConfig
from txl_tf.tasks.regression import Regression, ScoreResults, XLNetRegressionConfig
from txl_tf.tasks.texts import table_examples
from txl_tf.training.board.draw_panels import confusion_picture, reliability_bins, reliability_picture, show_panels
from txl_tf.training.board.event_files import Board

LABELS = ("no", "yes", "so")
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [0.05, 0.9, 0.05]])
LABEL = np.array([0, 2, 0, 0])
LABEL_SETS = np.array([[1, 0, 1], [0, 1, 1]], np.uint8)


@pytest.fixture(scope="module")
def vocabulary():
    return random_xlnet.with_prefix()


def plan(config, vocabulary, t_len):
    return ExamplePlan(config().replace(data={"tgt_len": t_len}), vocabulary)


def outputs():
    loss = -np.log(PROBABILITIES[range(4), LABEL])
    return {"log_probs": np.log(PROBABILITIES), "loss": loss}


def test_panels_of_classes(vocabulary):
    rows = Regression().rows(["the River", ("one", "a dash"), "so", "the one"], Columns())
    examples = table_examples(rows, plan(XLNetClassificationConfig, vocabulary, 16), LABEL, LABELS)
    confusion, reliability, worst = ClassResults(outputs(), examples).panels(vocabulary)
    assert confusion.labels == LABELS and confusion.counts.tolist() == [[1, 1, 1], [0, 0, 0], [0, 1, 0]]
    np.testing.assert_allclose(reliability.confidence, [0.7, 0.8, 0.6, 0.9])
    assert reliability.right.tolist() == [True, False, False, False]
    numbers, columns, texts = zip(*worst.rows, strict=True)
    assert numbers == (3, 1, 2)
    assert heading(columns[0]) == f"yes (90.0%) instead of no, loss {-np.log(0.05):.3f}"
    assert texts == ("the one", "one\n\na dash", "so")  # by their losses; the right one is not shown


def test_panels_of_scores_and_choices(vocabulary):
    rows = Regression().rows(["the River", "so"], Columns())
    rows = [dataclasses.replace(row, label=label) for row, label in zip(rows, "13", strict=True)]
    examples = Regression().examples(rows, plan(XLNetRegressionConfig, vocabulary, 16))
    found = {"score": np.array([1.5, 1.0]), "loss": np.array([0.25, 4.0])}
    (worst,) = ScoreResults(found, examples).panels(vocabulary)
    shown = [(heading(one.columns), one.text) for one in worst.rows]
    assert shown == [("1 instead of 3, loss 4.000", "so"), ("1.5 instead of 1, loss 0.250", "the River")]
    values = [{"article": "the River", "question": "_ is", "options": ["one", "so", "a"]}] * 4
    questions = MultipleChoice().rows(values, Columns())
    rows = [dataclasses.replace(row, answer=int(label)) for row, label in zip(questions, LABEL, strict=True)]
    examples = MultipleChoice().examples(rows, plan(XLNetMultipleChoiceConfig, vocabulary, 24))
    reliability, worst = ChoiceResults(outputs(), examples).panels(vocabulary)
    assert reliability.right.tolist() == [True, False, False, False]
    assert heading(worst.rows[0].columns).startswith("option 1 (90.0%) instead of option 0, loss ")
    assert worst.rows[0].text == "chosen: so is\nright:  one is\n\nthe River"


def test_panels_of_labels_take_the_best_threshold(vocabulary, tmp_path):
    """At 0.5 nothing would be predicted; at the best threshold, 0.2, one of four is missed."""
    rows = Regression().rows(["the River", "so"], Columns())
    examples = table_examples(rows, plan(XLNetMultiLabelConfig, vocabulary, 16), LABEL_SETS, LABELS)
    found = {"probabilities": np.array([[0.4, 0.1, 0.3], [0.1, 0.3, 0.05]]), "loss": np.array([0.5, 1.0])}
    by_label, worst = LabelSetResults(found, examples).panels(vocabulary)
    assert [counts.tolist() for counts in by_label[1:]] == [[1, 1, 1], [1, 1, 2], [1, 1, 1]]
    (wrong,) = worst.rows
    assert (heading(wrong.columns), wrong.text) == ("yes instead of yes, so, loss 1.000", "so")
    board = Board(str(tmp_path), 0)
    show_panels(board, 7, [by_label])
    (event,) = EventAccumulator(board.folder).Reload().Tensors("dev/labels")
    assert "| so | 2 | 1 | 1.000 | 0.500 | 0.667 |" in tf.make_ndarray(event.tensor_proto)[()].decode()


def test_a_confusion_matrix_has_shares_of_rows_as_colours():
    axes = confusion_picture(("a", "b"), np.array([[3, 1], [0, 4]]), "title").axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.75, 0.25], [0.0, 1.0]])
    assert [text.get_text() for text in axes.texts] == ["3", "1", "0", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    counts = np.diag(np.arange(1, 61))
    axes = confusion_picture([f"class {i}" for i in range(60)], counts, "title").axes[0]
    assert axes.images[0].get_array().shape == (40, 40) and not axes.texts
    assert axes.get_yticklabels()[0].get_text() == "class 20"  # the most frequent are shown


def test_reliability_is_accuracy_by_confidence(rng):
    confidence, right = rng.uniform(0.3, 1, 500), rng.random(500) < 0.5
    counts, accuracy, mean, error = reliability_bins(confidence, right)
    total = 0.0
    for i in range(10):
        inside = (confidence >= i / 10) & (confidence < (i + 1) / 10)
        assert counts[i] == inside.sum()
        if counts[i]:
            assert accuracy[i] == pytest.approx(right[inside].mean())
            assert mean[i] == pytest.approx(confidence[inside].mean())
            total += abs(right[inside].sum() - confidence[inside].sum()) / 500
    assert error == pytest.approx(total)
    confidence[0] = np.nan
    assert "; 499 examples" in reliability_picture(confidence, right, "title").get_suptitle()
    assert reliability_bins(np.array([1.0]), np.array([True]))[0].tolist() == [0] * 9 + [1]
    figure = reliability_picture(np.full(4, 0.75), np.array([True, False, False, False]), "title")
    bars, examples = ([bar.get_height() for bar in axes.patches] for axes in figure.axes)
    assert bars == [0] * 7 + [0.25, 0, 0] and examples == [0] * 7 + [4, 0, 0]
    (segment,) = figure.axes[0].collections[0].get_segments()
    np.testing.assert_allclose(segment, [[0.7, 0.75], [0.8, 0.75]])


def test_panels_are_written(tmp_path):
    board = Board(str(tmp_path), 0)
    shown = [
        Confusion(LABELS, np.eye(3, dtype=int)),
        Reliability(np.array([0.5]), np.array([True])),
        Worst((Wrong(0, {"error": "bad | **heading**"}, "a\nb" + "x" * 2000),)),
    ]
    show_panels(board, 7, shown)
    show_panels(board, 8, [Worst(())])
    events = EventAccumulator(board.folder).Reload()
    assert {"dev/confusion", "dev/reliability", "dev/worst"} <= set(events.Tags()["tensors"])
    first, second = (tf.make_ndarray(event.tensor_proto)[()] for event in events.Tensors("dev/worst"))
    assert first.decode().startswith("**1. bad | **heading****\n\n    a\n    bxx") and len(first) < 1100
    assert second == b"No example of dev is predicted wrongly."

"""Entities and their scores, against seqeval."""

import json
import pathlib

import pytest

from txl_tf.metrics.entities import Tags, entity_scores, name_entities

CASES = json.loads((pathlib.Path(__file__).parent / "seqeval_scores.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_entities_and_scores_are_seqeval_s(case):
    """Its results are in the file; seqeval_scores.py wrote it."""
    labels = case["labels"]
    right, found = ([[labels.index(tag) for tag in row] for row in case[name]] for name in ("right", "found"))
    assert entity_scores(labels, right, found) == pytest.approx(case["scores"], abs=1e-15)
    for row, wanted in zip(right, case["entities"], strict=True):
        assert [[kind, first, end - 1] for kind, first, end in Tags(labels).entities(row)] == wanted


def test_nothing_found_is_zero_and_not_an_error():
    labels = ["O", "B-PER"]
    assert entity_scores(labels, [[0, 1]], [[0, 0]]) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0.5}
    assert entity_scores(labels, [[0, 0]], [[0, 0]]) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}


def test_parts_of_speech_are_words_each():
    assert not name_entities(["NOUN", "VERB"])
    assert not name_entities(["O"])
    assert name_entities(["O", "B-PER", "I-PER"])
    scores = entity_scores(["NOUN", "VERB"], [[0, 0, 1], [1]], [[0, 1, 1], [1]])
    assert scores == {"f1": 0.75, "precision": 0.75, "recall": 0.75, "accuracy": 0.75}

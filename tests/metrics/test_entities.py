"""Entities and their scores, against seqeval."""

import json
import pathlib

import pytest

from txl_tf.data.tasks.tagged.schemes import IO, IOB, OLDER, PLAIN, odd_tags, scheme_name, scheme_of
from txl_tf.metrics.entities import Tags, entity_scores

CASES = json.loads((pathlib.Path(__file__).parent / "seqeval_scores.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_entities_and_scores_are_seqeval_s(case):
    """Its results are in the file; seqeval_scores.py wrote it."""
    labels = case["labels"]
    right, found = ([[labels.index(tag) for tag in row] for row in case[name]] for name in ("right", "found"))
    for scheme in (scheme_of(labels), OLDER):
        assert entity_scores(labels, right, found, scheme) == pytest.approx(case["scores"], abs=1e-15)
        for row, wanted in zip(right, case["entities"], strict=True):
            assert [[kind, first, end - 1] for kind, first, end in Tags(labels, scheme).entities(row)] == wanted


def test_nothing_found_is_zero_and_not_an_error():
    labels = ["O", "B-PER"]
    assert entity_scores(labels, [[0, 1]], [[0, 0]], IOB) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0.5}
    assert entity_scores(labels, [[0, 0]], [[0, 0]], IOB) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}


def test_parts_of_speech_are_words_each():
    scores = entity_scores(["NOUN", "VERB"], [[0, 0, 1], [1]], [[0, 1, 1], [1]], scheme_of(["NOUN", "VERB"]))
    assert scores == {"f1": 0.75, "precision": 0.75, "recall": 0.75, "accuracy": 0.75}


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("NOUN VERB S", PLAIN),
        ("O", PLAIN),
        ("M S L", PLAIN),
        ("O B-PER I-PER", "IOB2"),
        ("O B_PER I_PER", "IOB2"),
        ("O PER-B PER_I LOC-B-B", "IOB2"),
        ("O B-PER I-PER L-PER U-PER", "BILOU"),
        ("B M E S", "BMES"),
        ("O B I", "IOB2"),
        ("B-NP I-NP", "IOB2"),
        ("O B-PER 0", ""),
        ("O PER", ""),
        ("B-PER NOUN", ""),
        ("O PER-B X", ""),
    ],
)
def test_the_scheme_follows_from_all_tags(tags, scheme):
    found = scheme_of(tags.split())
    assert (scheme_name(tags.split(), [tags.split()], found) if found is not None else "") == scheme


def test_odd_tags_are_those_without_prefix():
    assert odd_tags(["O", "B-PER", "0", "PER-I"]) == ["0"]
    assert odd_tags(["O", "PER", "LOC"]) == ["LOC", "PER"]


@pytest.mark.parametrize(
    "tags",
    [
        "B-PER I-PER I-PER O B-LOC B-LOC I-LOC",
        "B-PER I-PER L-PER O U-LOC B-LOC L-LOC",
        "B-PER M-PER E-PER O W-LOC B-LOC E-LOC",
        "B_PER M_PER E_PER O S_LOC B_LOC E_LOC",
        "PER-B PER-I PER-I O LOC-B LOC-B LOC-I",
    ],
)
def test_every_scheme_names_the_same_entities(tags):
    row = tags.split()
    labels = sorted(set(row))
    found = Tags(labels, scheme_of(labels)).entities([labels.index(tag) for tag in row])
    assert found == [("PER", 0, 3), ("LOC", 4, 5), ("LOC", 5, 7)]


def test_bare_kinds_and_plain_tags():
    labels = ["LOC", "O", "PER"]
    row = [2, 2, 1, 0, 2]
    assert Tags(labels, IO).entities(row) == [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5)]
    assert Tags(labels, PLAIN).entities(row) == [(labels[tag], i, i + 1) for i, tag in enumerate(row)]


def test_an_older_run_reads_only_its_letters():
    labels = ["B_PER", "I_PER", "O"]
    assert Tags(labels, OLDER).entities([0, 1, 2]) == Tags(labels, PLAIN).entities([0, 1, 2])
    assert Tags(labels, scheme_of(labels)).entities([0, 1, 2]) == [("PER", 0, 2)]

"""Entities and their scores, against seqeval."""

import json
import pathlib
from types import SimpleNamespace

import pytest

from txl_tf.tasks.tagging import Tagging
from txl_tf.tasks.tagging.examples import TaggedExamples
from txl_tf.tasks.tagging.schemes import (
    IO,
    IOB,
    OLDER,
    PLAIN,
    Entity,
    Tags,
    by_kind,
    entity_scores,
    mistakes,
    odd_tags,
    scheme_name,
    scheme_of,
)

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


def chunks(tags):
    """The entities of tags such as B-PER by seqeval's rules, word by word: (kind, first, last)."""
    found, kind, first, before = [], None, 0, "O"
    for i, tag in enumerate([*tags, "O"]):
        letter, _, own = tag.partition("-")
        goes_on = kind is not None and letter in "IE" and own == kind and before not in "ES"
        if kind is not None and not goes_on:
            found.append((kind, first, i - 1))
            kind = None
        if letter != "O" and kind is None:
            kind, first = own, i
        before = letter
    return found


@pytest.mark.parametrize("case", CASES)
def test_scores_by_kind_are_those_of_seqeval_s_report(case):
    """Its classification_report counts entities with equal kind, first and last word."""
    labels = case["labels"]
    assert [[list(one) for one in chunks(row)] for row in case["right"]] == case["entities"]
    right, found = ([[labels.index(tag) for tag in row] for row in case[name]] for name in ("right", "found"))
    table = by_kind(labels, right, found, scheme_of(labels))
    sides = [{(i, *one) for i, row in enumerate(case[name]) for one in chunks(row)} for name in ("right", "found")]
    for kind, *counts in zip(*table, strict=True):
        true, guessed = ({one for one in side if one[1] == kind} for side in sides)
        assert counts == [len(true & guessed), len(true), len(guessed)]
    assert set(table.labels) == {tag[2:] for tag in labels if tag != "O"}


def test_mistakes_are_pairs_of_entities_that_overlap():
    right = [Entity("A", 0, 2), Entity("A", 3, 4), Entity("B", 5, 6), Entity("B", 8, 9)]
    found = [Entity("A", 0, 2), Entity("B", 3, 4), Entity("B", 5, 7), Entity("A", 10, 12)]
    assert mistakes(right, found) == [
        (right[1], found[1]),  # another kind
        (right[2], found[2]),  # another end
        (right[3], None),  # missed
        (None, found[3]),  # nothing is there
    ]
    assert mistakes(right, right) == []
    two = [Entity("A", 0, 1), Entity("A", 1, 2)]
    assert mistakes(two, [Entity("A", 0, 2)]) == [(two[0], Entity("A", 0, 2)), (two[1], None)]


def test_the_most_frequent_tag_of_each_word():
    """A new word has the most frequent of all, O."""

    def examples(*texts):
        rows = [SimpleNamespace(words=words, tags=tags) for words, tags in texts]
        return TaggedExamples({}, {}, labels=("B-A", "B-B", "O"), texts=rows, scheme=IOB)

    train = examples((["x", "y", "x"], ["B-A", "O", "B-B"]), (["x", "z"], ["B-A", "O"]), (["w"], ["O"]))
    dev = examples((["x", "new"], ["B-A", "B-B"]), (["x", "y"], ["B-B", "O"]))
    corpus = SimpleNamespace(train=train, dev=dev, labels=train.labels)
    assert Tagging().baselines(corpus) == {"most_frequent_tag": pytest.approx(2 * 1 / (2 + 3))}


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
        ("O", IOB),
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

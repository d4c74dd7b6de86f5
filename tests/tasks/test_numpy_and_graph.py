"""A SavedModel's TensorFlow ops compute what Python computes in NumPy, on random texts.

The texts are empty, have wide characters, half of them no word, or tokens without a place.
"""

import numpy as np
import pytest
import random_xlnet
import tensorflow as tf

from txl_tf.data.examples.example_set import ExamplePlan
from txl_tf.data.examples.layout import pad_left
from txl_tf.models.heads import BestAnswers
from txl_tf.tasks.answering import QuestionsConfig, questions
from txl_tf.tasks.answering import graph as answer_graph
from txl_tf.tasks.answering.squad import Paragraph, SquadQuestion
from txl_tf.tasks.multiple_choice import with_options
from txl_tf.tasks.tagging import XLNetTaggingConfig, examples, schemes, words
from txl_tf.tasks.tagging import graph as tag_graph
from txl_tf.tasks.tagging.schemes import Tags
from txl_tf.tasks.tagging.texts import TaggedText

PIECES = [
    "the",
    "River",
    "na\u00efve",
    "1,000",
    "\u2603",
    "\U0001f600",
    "\u200b",
    "\u6771\u4eac",
    "\u304b\u3099",
    "-",
    "_",
    " ",
    "\n",
]
LABELS = ("O", "B-A", "I-A", "B-\u2603", "I-\u2603")
T = 24


@pytest.fixture(scope="module")
def vocabulary():
    return random_xlnet.with_prefix()


@pytest.fixture
def texts(rng):
    """Some texts, the first ones empty or without a word."""
    found = ["".join(rng.choice(PIECES, rng.integers(1, 60)) + rng.choice(["", " "])) for _ in range(12)]
    return ["", " \n", "\u200b", *found]


@pytest.mark.parametrize("runs", [False, True])
def test_words(texts, runs):
    found = tag_graph.word_places(tf.constant(texts), runs)
    rows = zip(found.begin.to_list(), found.end.to_list(), strict=True)
    assert [list(zip(begin, end, strict=True)) for begin, end in rows] == [words.word_places(x, runs) for x in texts]


def tagged(texts):
    return [TaggedText(text, tuple(words.word_places(text)), (), "") for text in texts]


@pytest.mark.parametrize("t_len", [8, T])
def test_parts_of_tagged_texts_and_the_tags_of_their_words(texts, vocabulary, t_len, rng):
    settings = XLNetTaggingConfig().replace(data={"tgt_len": t_len, "max_segments": 1})
    plan = ExamplePlan(settings, vocabulary, labels=LABELS, labelled=False, scheme="iob")
    made = examples.tagged_examples(tagged(texts), plan)
    ids, begin, end = vocabulary.encode_with_places_tensor(tf.constant(texts))
    parts, segments = tag_graph.parts_of(ids, vocabulary, t_len - examples.MARKS)
    for name, values in pad_left(parts, segments, t_len).items():
        np.testing.assert_array_equal(values, made.features[name], name)
    shape = made.features["tokens"].shape
    outputs = {"tag": rng.integers(0, len(LABELS), shape).astype(np.int32)}
    outputs["log_prob"] = rng.normal(size=shape).astype(np.float32)
    outputs["log_probs"] = rng.normal(size=[*shape, len(LABELS)]).astype(np.float32)
    placed = tag_graph.word_places(tf.constant(texts))
    only = examples.only(0, len(LABELS))
    given = [
        (tag_graph.of_pieces(parts, tf.constant(values)), default)
        for values, default in zip(outputs.values(), (0, 0.0, only), strict=True)
    ]
    *alone, of_words = tag_graph.at_words(begin, end, placed, given)
    legal = examples.legal_tags(of_words, placed.begin.row_lengths(), schemes.allowed(LABELS, "iob"))
    words_alone = {name: outputs[name] for name in ("tag", "log_prob")}
    for found, wanted in ((alone, made.tags(words_alone)), (legal, made.tags(outputs))):
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, np.concatenate(theirs))


@pytest.mark.parametrize("scheme", ["iob", "io", "plain", ""])
def test_entities(texts, scheme, rng):
    known, places = Tags(LABELS, scheme), tag_graph.word_places(tf.constant(texts))
    tags = [rng.integers(0, len(LABELS), len(row)).tolist() for row in places.begin.to_list()]
    found = tag_graph.entities(known, places, tf.constant(np.concatenate(tags), tf.int32))
    for text, row, kinds, begins, ends in zip(texts, tags, *(part.to_list() for part in found), strict=True):
        own = words.word_places(text)
        wanted = [(one.kind, own[one.first][0], own[one.end - 1][1]) for one in known.entities(row)]
        assert [(kind.decode(), b, e) for kind, b, e in zip(kinds, begins, ends, strict=True)] == wanted


def test_windows_and_their_best_answers(texts, vocabulary, rng):
    asked = [rng.choice(texts) for _ in texts]
    data = QuestionsConfig(tgt_len=T, max_query_len=6, doc_stride=5)
    paragraphs = [Paragraph(x, (SquadQuestion(str(i), q),)) for i, (x, q) in enumerate(zip(texts, asked, strict=True))]
    readings = list(questions.read_windows(paragraphs, vocabulary, data))
    placed = answer_graph.windows(vocabulary.encode_with_places_tensor, tf.constant(asked), tf.constant(texts), data)
    wanted = questions.examples(readings, vocabulary, T)
    for name, values in answer_graph.features(placed, vocabulary, T).items():
        np.testing.assert_array_equal(values, wanted[name], name)

    counts = np.cumsum([0, *(len(reading.windows) for reading in readings)])
    n = int(counts[-1])
    found = {
        "start": rng.integers(0, T, [n, 3]).astype(np.int32),
        "start_log_prob": rng.normal(size=[n, 3]).astype(np.float32),
        "end": rng.integers(0, T, [n, 3, 4]).astype(np.int32),
        "end_log_prob": rng.normal(size=[n, 3, 4]).astype(np.float32),
        "impossible": rng.normal(size=[n]).astype(np.float32),
    }
    best = answer_graph.best_answers(placed, BestAnswers(**map_to_tensors(found)), tf.constant(texts), 7)
    for i, reading in enumerate(readings):
        own = {name: values[counts[i] : counts[i + 1]] for name, values in found.items()}
        decoded = questions.decode(reading, own, max_answer_len=7)
        assert best["answers"][i].numpy().decode() == decoded.text
        assert best["no_answer_probability"][i].numpy() == pytest.approx(decoded.null_probability, abs=1e-6)
        if decoded.candidates:
            first = decoded.candidates[0]
            assert (best["begin"][i].numpy(), best["end"][i].numpy()) == (first.begin, first.end)
            assert best["probability"][i].numpy() == pytest.approx(np.exp(first.log_prob), rel=1e-5)


def map_to_tensors(arrays):
    return {name: tf.constant(values) for name, values in arrays.items()}


def test_options_in_questions(texts, rng):
    questions = [text + str(rng.choice(["", "_", "_ is _"])) for text in texts]
    options = [str(rng.choice([*texts, "\\0", "\\1", "$1", "x_"])) for _ in texts]
    found = [text.decode() for text in with_options(tf.constant(questions), tf.constant(options)).numpy()]
    pairs = zip(questions, options, strict=True)
    assert found == [q.replace("_", o) if "_" in q else f"{q} {o}" for q, o in pairs]

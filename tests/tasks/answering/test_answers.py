"""From likely starts and ends to answers, against brute force."""

import functools
import json

import numpy as np
import pytest
from xlnet_tokens import generated_lines, small_model

from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.tasks.answering import QuestionsConfig
from txl_tf.tasks.answering.answers import Answered, Candidate, decode, write_answers
from txl_tf.tasks.answering.questions import QuestionExamples, examples, read_windows
from txl_tf.tasks.answering.squad import Answer, Paragraph, SquadQuestion

T = 24
DATA = QuestionsConfig(tgt_len=T, max_query_len=6, doc_stride=5)


@functools.cache
def readings():
    vocabulary = XLNetVocabulary(small_model())
    lines = generated_lines(12, seed=7)
    paragraphs = [
        Paragraph(line, (SquadQuestion(str(i), "the fine?"),)) for i, line in enumerate(lines) if line.strip()
    ]
    return list(read_windows(paragraphs, vocabulary, DATA)), vocabulary


def random_logits(rng, reading):
    """Log-probabilities [W, T] of starts and [W, T, T] of ends, all different, and the logits of no answer [W]."""
    w = len(reading.windows)
    return -rng.random([w, T]) * 5, -rng.random([w, T, T]) * 5, rng.normal(size=w)


def best(start, end, impossible, n_starts, n_ends):
    """The model's output for these: its most likely starts and ends."""
    starts = np.argsort(-start)[:, :n_starts]
    given = np.take_along_axis(end, starts[:, :, None], axis=1)
    ends = np.argsort(-given)[:, :, :n_ends]
    return {
        "start": starts,
        "start_log_prob": np.take_along_axis(start, starts, axis=1),
        "end": ends,
        "end_log_prob": np.take_along_axis(given, ends, axis=2),
        "impossible": impossible,
    }


def context(window, token):
    first, size = window
    return min(token - first, first + size - 1 - token) + 0.01 * size


def brute_force(reading, start, end, max_answer_len):
    """All texts with the log-probability of their best span, best first."""
    found = {}
    for w, (first, size) in enumerate(reading.windows):
        for s in range(size):
            holding = [other for other in reading.windows if other.first <= first + s < other.first + other.size]
            if max(holding, key=lambda other: context(other, first + s)) != reading.windows[w]:
                continue
            for e in range(s, min(size, s + max_answer_len)):  # the last token of the paragraph's part, too
                text = reading.text[reading.pieces.begin[first + s] : reading.pieces.end[first + e]].rstrip()
                if text:
                    found[text] = max(found.get(text, -np.inf), start[w, s] + end[w, s, e])
    return sorted(found.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("max_answer_len", [1, 4, 64])
def test_all_spans_considered_it_is_brute_force(rng, max_answer_len):
    several = 0
    for reading in readings()[0]:
        start, end, impossible = random_logits(rng, reading)
        found = decode(reading, best(start, end, impossible, T, T), max_answer_len, n_best=5)
        wanted = brute_force(reading, start, end, max_answer_len)[:5]
        assert [candidate.text for candidate in found.candidates] == [text for text, _ in wanted]
        log_probs = np.array([log_prob for _, log_prob in wanted])
        np.testing.assert_allclose([candidate.log_prob for candidate in found.candidates], log_probs)
        np.testing.assert_allclose(
            [candidate.probability for candidate in found.candidates], np.exp(log_probs) / np.exp(log_probs).sum()
        )
        assert found.null_score == impossible.min()
        for text, begin, stop, *_ in found.candidates:
            assert reading.text[begin:stop] == text
        several += len(reading.windows) > 1
    assert several > 3


def test_few_starts_and_ends(rng):
    """Only spans in the paragraph's part are candidates; if the model gives none, the answer is ""."""
    reading = max(readings()[0], key=lambda one: len(one.windows))
    start, end, impossible = random_logits(rng, reading)
    given = best(start, end, impossible, 2, 3)
    allowed = dict(brute_force(reading, start, end, 64))
    for candidate in decode(reading, given).candidates:
        assert candidate.log_prob <= allowed[candidate.text] + 1e-9
    outside = given | {"start": np.full_like(given["start"], T - 1)}
    nothing = decode(reading, outside)
    assert (nothing.text, nothing.candidates, nothing.answer(None)) == ("", (), "")


def test_a_text_without_tokens_has_no_answer(rng):
    paragraph = Paragraph("\u0301", (SquadQuestion("a", "the fine?"),))
    [reading] = read_windows([paragraph], readings()[1], DATA)
    assert len(reading.pieces.ids) == 0 and reading.windows == ((0, 0),)
    assert examples([reading], readings()[1], T)["allowed"].sum() == 1
    assert decode(reading, best(*random_logits(rng, reading), T, T)).candidates == ()


def test_the_true_spans_are_decoded_to_the_right_answers(rng):
    """A model that is sure of an example's start and end gives the answer's characters, whatever window has them."""
    own, vocabulary = readings()
    paragraphs = []
    for reading in own:
        first = int(rng.integers(len(reading.pieces.ids)))
        last = min(first + 2, len(reading.pieces.ids) - 1)
        begin, end = int(reading.pieces.begin[first]), int(reading.pieces.end[last])
        if answer := reading.text[begin:end].rstrip():
            asked = SquadQuestion(reading.question.id, "the fine?", (Answer(answer, begin),))
            paragraphs.append(Paragraph(reading.text, (asked,)))
    asked = list(read_windows(paragraphs, vocabulary, DATA))
    features = examples(asked, vocabulary, T)
    found = {
        "start": features["start"][:, None],
        "end": features["end"][:, None, None],
        "start_log_prob": np.zeros([len(features["start"]), 1]),
        "end_log_prob": np.zeros([len(features["start"]), 1, 1]),
        "impossible": np.where(features["impossible"], 9.0, -9.0),
    }
    answered = QuestionExamples(features, {}, readings=lambda: asked).answered(found)
    found_again = 0
    for reading, one in zip(asked, answered, strict=True):
        own_window = reading.windows[reading.owners[reading.answer[0]]]
        if reading.answer[1] < sum(own_window):
            assert one.answer(0.0) == reading.question.answers[0].text
            assert one.null_score == -9
            found_again += 1
    assert found_again > 5


def test_the_threshold_decides_whether_there_is_an_answer(rng):
    found = decode(readings()[0][0], best(*random_logits(rng, readings()[0][0]), 5, 5))
    assert found.text and found.answer(None) == found.answer(found.null_score) == found.text
    assert found.answer(found.null_score - 1e-6) == ""


def test_files(tmp_path):
    candidate = Candidate("caf\u00e9 \ud800", 3, 9, -1.5, 1.0)
    answered = [Answered("a", -np.log(3), (candidate,)), Answered("b", np.log(3), (candidate,)), Answered("c", -9, ())]
    write_answers(answered, str(tmp_path / "new"), 0.0)
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "new").iterdir()}
    assert set(read) == {"predictions.json", "null_odds.json", "nbest_predictions.json"}
    assert read["predictions.json"] == {"a": candidate.text, "b": "", "c": ""}
    assert read["null_odds.json"] == pytest.approx({"a": 0.25, "b": 0.75, "c": 1 / (1 + np.exp(9))})
    assert read["nbest_predictions.json"] == {"a": [candidate._asdict()], "b": [candidate._asdict()], "c": []}
    write_answers(answered, str(tmp_path / "all"), None)
    assert json.loads((tmp_path / "all/predictions.json").read_text())["b"] == candidate.text

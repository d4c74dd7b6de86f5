"""Windows of paragraphs, and the examples made of them."""

import functools

import numpy as np
import pytest
from xlnet_tokens import small_model

from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.tasks.answering import QuestionsConfig
from txl_tf.tasks.answering.questions import Window, cut_windows, examples, owners, read_windows
from txl_tf.tasks.answering.squad import Answer, Paragraph, SquadQuestion

SEP, CLS = 4, 3


@functools.cache
def vocabulary():
    return XLNetVocabulary(small_model())


def official_windows(n, size, stride):
    """The loop of the official code."""
    found, start = [], 0
    while start < n:
        length = min(size, n - start)
        found.append(Window(start, length))
        if start + length == n:
            break
        start += min(length, stride)
    return found


def official_owner(windows, token):
    best = None
    for number, (first, size) in enumerate(windows):
        last = first + size - 1
        if not first <= token <= last:
            continue
        score = min(token - first, last - token) + 0.01 * size
        if best is None or score > best[0]:
            best = score, number
    return best[1]


def test_windows_and_their_owners_are_the_official_ones(rng):
    for _ in range(300):
        n, size, stride = rng.integers(1, 60), rng.integers(1, 20), rng.integers(1, 25)
        windows = cut_windows(int(n), int(size), int(stride))
        assert list(windows) == official_windows(n, size, stride)
        assert owners(windows).tolist() == [official_owner(windows, token) for token in range(n)]


def test_the_owners_of_a_long_text_need_little_memory():
    """Linear in the text: a row for each of these 40,000 windows would be 64 GB."""
    found = owners(cut_windows(200_000, 20, 5))
    assert found.shape == (200_000,) and (np.diff(found) >= 0).all() and found[-1] == 39_996


def paragraph(text, *questions):
    return Paragraph(text, tuple(questions))


def question(text, *answers):
    return SquadQuestion(text, text, tuple(Answer(*answer) for answer in answers), not answers)


def test_an_example_by_hand():
    own, text = vocabulary(), "the River (one) dash-ed, the fine End"
    asked = question("fine the River 1,000", ("(one)", 10))
    layout = QuestionsConfig(tgt_len=16, max_query_len=3, doc_stride=4)
    [reading] = read_windows([paragraph(text, asked)], own, layout)
    pieces, query = own.encode(text).tolist(), own.encode(asked.text).tolist()[:3]
    assert reading.query.tolist() == query
    assert text[reading.pieces.begin[reading.answer[0]] : reading.pieces.end[reading.answer[1]]] == "(one)"
    features = examples([reading], own, 16)
    assert len(reading.windows) == len(features["tokens"]) > 2
    whole = 0
    for row, (first, size) in enumerate(reading.windows):
        rest = 16 - size - 6
        example = {name: array[row].tolist() for name, array in features.items()}
        assert example["tokens"] == [*pieces[first : first + size], SEP, *query, SEP, CLS, *[0] * rest]
        assert example["segments"] == [0] * (size + 1) + [1] * 4 + [2] + [3] * rest
        assert example["padding"] == [False] * (16 - rest) + [True] * rest
        assert example["allowed"] == [True] * size + [False] * 5 + [True] + [False] * rest
        assert example["cls_index"] == size + 5
        inside = first <= reading.answer[0] and reading.answer[1] < first + size
        span = (reading.answer[0] - first, reading.answer[1] - first) if inside else (size + 5, size + 5)
        assert (example["start"], example["end"]) == span
        assert example["impossible"] == (not inside)
        whole += inside
    assert 0 < whole < len(reading.windows)


def test_the_first_answer_with_a_place_counts():
    own, text = vocabulary(), "the fine End"
    [pieces] = own.encode_with_places([text])
    answers = {
        "a": ([("End", None), ("fine", 4)], range(4, 8)),
        "b": ([("ine E", 5), ("the", 0)], range(5, 10)),
        "c": ([("End", None)], ()),
        "d": ([], ()),
    }
    asked = [question(name, *row[0]) for name, row in answers.items()]
    for reading in read_windows([paragraph(text, *asked)], own, QuestionsConfig(tgt_len=64, max_query_len=8)):
        characters = set(answers[reading.question.id][1])
        tokens = [i for i in range(len(pieces.ids)) if characters & {*range(pieces.begin[i], pieces.end[i])}]
        assert reading.answer == ((tokens[0], tokens[-1]) if tokens else None)
        features = examples([reading], own, 64)
        assert features["impossible"].tolist() == [not tokens]
        assert features["learned"].tolist() == [reading.question.id != "c"]


def test_questions_keep_their_order_and_paragraphs(monkeypatch):
    monkeypatch.setattr("txl_tf.tasks.answering.questions._AT_ONCE", 2)
    paragraphs = [paragraph(f"the River {i}", *(question(f"fine {i} {j}") for j in range(i))) for i in range(5)]
    readings = list(read_windows(paragraphs, vocabulary(), QuestionsConfig(tgt_len=64, max_query_len=8)))
    assert [(one.text, one.question) for one in readings] == [
        (part.text, asked) for part in paragraphs for asked in part.questions
    ]
    assert [one.query.tolist() for one in readings] == [
        vocabulary().encode(one.question.text).tolist()[:8] for one in readings
    ]


def test_a_text_needs_room():
    with pytest.raises(InputError, match=r"tgt_len=67 leaves no room .* at least max_query_len \+ 4 = 68"):
        QuestionsConfig(tgt_len=67)

"""SQuAD's scores, against cases worked out by hand and a search over all thresholds."""

import numpy as np
import pytest

from txl_tf.tasks.answering.squad import Answer, SquadQuestion, answer_scores, exact_match, normalised, word_f1


def question(name, *answers):
    return SquadQuestion(name, "?", tuple(Answer(answer, 0) for answer in answers), not answers)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Cat's\tA\u00a0B.", "cats b"),
        ("a.b", "ab"),  # the article is looked for after the punctuation is gone
        ("an-the", "anthe"),
        ("theatre", "theatre"),
        ("the", ""),
        ("“Émile”", "“émile”"),  # only ASCII punctuation is removed
        ("a_b", "ab"),
    ],
)
def test_normalisation(text, wanted):
    assert normalised(text) == wanted


def test_f1_counts_words_as_often_as_they_occur():
    assert word_f1("a cat and a cat", "Cat, cat, dog.") == pytest.approx(2 * 2 / (3 + 3))  # cat and cat; cat cat dog
    assert word_f1("cat cat cat", "cat") == pytest.approx(2 * 1 / (3 + 1))
    assert word_f1("dog", "cat") == 0
    assert word_f1("", "") == 1
    assert word_f1("the", "") == 1
    assert word_f1("", "cat") == word_f1("cat", "") == 0
    assert exact_match("The cat.", "cat") == 1
    assert exact_match("cats", "cat") == 0


def test_right_answers_score_exactly_100():
    questions = [question("a", "the", "The cat sat"), question("b"), question("c", "3,000"), question("d", "the")]
    scores = answer_scores(questions, ["cat sat", "", "3000", ""], np.zeros(4))
    parts = ("", "has_ans_", "no_ans_")
    assert {name: scores[name] for part in parts for name in (f"{part}exact", f"{part}f1")} == dict.fromkeys(
        [f"{part}{name}" for part in parts for name in ("exact", "f1")], 100.0
    )
    assert [scores[f"{part}total"] for part in parts] == [4, 3, 1]


def test_scores_are_means_over_questions_of_the_best_right_answer():
    questions = [question("a", "red house", "house"), question("b", "one two three four"), question("c")]
    scores = answer_scores(questions, ["House!", "two one", "x"], np.zeros(3))
    assert scores["exact"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 2 * 2 / 6 + 0) / 3)
    assert scores["has_ans_f1"] == pytest.approx(100 * (1 + 2 * 2 / 6) / 2)
    assert scores["no_ans_exact"] == 0


def test_a_file_without_impossible_questions_has_one_score():
    scores = answer_scores([question("a", "x")], ["x"], np.array([9.0]))
    assert scores == {"exact": 100.0, "f1": 100.0, "total": 1, "best_exact": 100.0, "best_f1": 100.0}


def test_the_threshold():
    questions = [question("a", "x"), question("b", "y"), question("c")]
    answers, null = ["x", "z", "w"], np.array([-1.0, 0.5, 0.5])
    assert answer_scores(questions, answers, null)["exact"] == pytest.approx(200 / 3)  # x, "", ""
    assert answer_scores(questions, answers, null - 0.5)["exact"] == pytest.approx(100 / 3)
    assert answer_scores(questions, answers, null + 2)["exact"] == pytest.approx(100 / 3)


def test_the_best_thresholds_are_those_of_a_search_over_all(rng):
    for _ in range(50):
        size = rng.integers(1, 9)
        questions = [question(str(i), *(["x y"] if rng.random() < 0.6 else [])) for i in range(size)]
        answers, null = rng.choice(["x y", "x", "z"], size).tolist(), rng.integers(-3, 3, size) / 4
        if all(one.answers for one in questions):
            continue
        scores = answer_scores(questions, answers, null)
        grid = np.arange(-2, 2, 1 / 8)
        for name in ("exact", "f1"):
            searched = [answer_scores(questions, answers, null - threshold)[name] for threshold in grid]
            assert scores[f"best_{name}"] == pytest.approx(max(searched))
            found = answer_scores(questions, answers, null - scores[f"best_{name}_threshold"])
            assert found[name] == pytest.approx(scores[f"best_{name}"])

"""SQuAD's scores of answers, in percent: exact match and F1, by the definition of its official evaluation.

Answers are compared as normalised text: lower case, without ASCII punctuation, the articles a, an and the, and extra
white space. Exact match is whether they are equal. F1 is the harmonic mean of precision and recall of words, where a
word counts as often as it occurs. If there are several right answers, the one with the best score counts. A question
without an answer has the right answer "", for which F1 equals exact match.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from txl_tf.errors import InputError

if TYPE_CHECKING:  # the module that reads questions loads TensorFlow
    from txl_tf.data.tasks.squad import SquadQuestion

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """A text as answers are compared; see the module."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(answer: str, right: str) -> float:
    """1 if two answers are equal when normalised, otherwise 0."""
    return float(normalised(answer) == normalised(right))


def word_f1(answer: str, right: str) -> float:
    """The F1 of an answer's words."""
    words, right_words = normalised(answer).split(), normalised(right).split()
    if not words or not right_words:
        return float(words == right_words)
    common = (collections.Counter(words) & collections.Counter(right_words)).total()
    return 2 * common / (len(words) + len(right_words))


def right_answers(question: SquadQuestion) -> list[str]:
    """The texts to compare with, but those that normalisation makes empty; [""] if there are none."""
    return [answer.text for answer in question.answers if normalised(answer.text)] or [""]


def answer_scores(
    questions: Sequence[SquadQuestion],
    answers: Mapping[str, str],
    null_scores: Mapping[str, float] | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """The scores of answers to questions, in percent.

    Args:
        questions: at least one, with their right answers.
        answers: by the questions' ids; "" for no answer.
        null_scores: for each question, the logit that there is no answer. If some questions have no answer, as in
            SQuAD 2.0, an answer counts as "" if this is above the threshold. None: `answers` count unchanged.
        threshold: see `null_scores`.

    Returns:
        "exact", "f1" and "total", the number of questions. If some questions have no answer, the same with the prefixes
        "has_ans_" and "no_ans_", as far as there are such questions. If there are null_scores, "best_exact" and
        "best_f1", the highest possible with any threshold, and, if some questions have no answer, these thresholds,
        "best_exact_threshold" and "best_f1_threshold".

    Raises:
        InputError: a question has no entry in `answers` or `null_scores`.
    """
    for name, table in (("answers", answers), ("scores of having no answer", null_scores)):
        missing = [question.id for question in questions if table is not None and question.id not in table]
        if missing:
            raise InputError(
                f"the {name} lack {len(missing):,} of {len(questions):,} questions, such as {missing[0]!r}"
            )
    has_answer = np.array([bool(question.answers) for question in questions])
    with_text = {name: _of_texts(measure, questions, answers) for name, measure in _MEASURES.items()}
    without = (~has_answer).astype(float)
    parts = {"": np.ones_like(has_answer)}
    null = np.full(len(questions), -np.inf)
    if not has_answer.all():
        parts |= {"has_ans_": has_answer, "no_ans_": ~has_answer}
        null = null if null_scores is None else np.array([null_scores[question.id] for question in questions])
    scores: dict[str, float] = {}
    for prefix, part in parts.items():
        if part.any():
            for name, values in with_text.items():
                scores[prefix + name] = 100 * float(np.where(null > threshold, without, values)[part].mean())
            scores[prefix + "total"] = int(part.sum())
    for name, values in with_text.items() if null_scores is not None else ():
        if has_answer.all():
            scores[f"best_{name}"] = scores[name]
        else:
            scores[f"best_{name}"], scores[f"best_{name}_threshold"] = _best(values, without, null)
    return scores


_MEASURES: dict[str, Callable[[str, str], float]] = {"exact": exact_match, "f1": word_f1}


def _of_texts(
    measure: Callable[[str, str], float], questions: Sequence[SquadQuestion], answers: Mapping[str, str]
) -> np.ndarray:
    """A measure of each question's answer: [n]."""
    return np.array([max(measure(answers[one.id], right) for right in right_answers(one)) for one in questions])


def _best(with_text: np.ndarray, without: np.ndarray, null_scores: np.ndarray) -> tuple[float, float]:
    """The highest mean score of all thresholds, in percent, and the lowest threshold that gives it.

    `with_text` and `without` are the questions' scores, [n], if the answer is the text, and if it is "". Questions with
    equal null_scores, [n], are on the same side of every threshold.
    """
    order = np.argsort(null_scores, kind="stable")
    null_scores = null_scores[order]
    totals = without.sum() + np.concatenate([[0], np.cumsum((with_text - without)[order])])
    thresholds = np.concatenate([null_scores[:1] - 1, null_scores])
    possible = np.append(thresholds[:-1] < thresholds[1:], True)  # the last of equal thresholds
    best = np.where(possible, totals, -1).argmax()
    return 100 * float(totals[best]) / len(order), float(thresholds[best])

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
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the module that reads questions loads TensorFlow
    from txl_tf.tasks.answering.squad import SquadQuestion

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
    questions: Sequence[SquadQuestion], answers: Sequence[str], null_scores: np.ndarray
) -> dict[str, float]:
    """The scores of answers to n questions, n > 0, in percent.

    Args:
        questions: with their right answers.
        answers: the text of each.
        null_scores: [n], the logits that there is no answer. If some questions have no answer, as in SQuAD 2.0, an
            answer counts as "" if this is above 0.

    Returns:
        "exact", "f1" and "total", n. If some questions have no answer, the same with the prefixes "has_ans_" and
        "no_ans_", as far as there are such questions. "best_exact" and "best_f1", the highest possible with any
        threshold in place of 0, and, if some questions have no answer, these thresholds, "best_exact_threshold" and
        "best_f1_threshold".
    """
    has_answer = np.array([bool(question.answers) for question in questions])
    pairs = [(answer, right_answers(one)) for one, answer in zip(questions, answers, strict=True)]
    with_text = {
        name: np.array([max(measure(answer, text) for text in right) for answer, right in pairs])
        for name, measure in (("exact", exact_match), ("f1", word_f1))
    }
    parts, empty, without = {"": np.ones_like(has_answer)}, np.zeros_like(has_answer), (~has_answer).astype(float)
    if not has_answer.all():
        parts |= {"has_ans_": has_answer, "no_ans_": ~has_answer}
        empty = null_scores > 0
    scores: dict[str, float] = {}
    for prefix, part in parts.items():
        if part.any():
            for name, values in with_text.items():
                scores[prefix + name] = 100 * float(np.where(empty, without, values)[part].mean())
            scores[prefix + "total"] = int(part.sum())
    for name, values in with_text.items():
        if has_answer.all():
            scores[f"best_{name}"] = scores[name]
        else:
            scores[f"best_{name}"], scores[f"best_{name}_threshold"] = _best(values, without, null_scores)
    return scores


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

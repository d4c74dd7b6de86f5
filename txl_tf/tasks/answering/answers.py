"""From the likely starts and ends in windows to the answers to questions, and files of them in SQuAD's formats."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.storage.files import require_new, write_result

if typing.TYPE_CHECKING:
    from txl_tf.tasks.answering.questions import QuestionWindows


class Candidate(typing.NamedTuple):
    """A likely answer: the paragraph's characters begin to end.

    log_prob: of its start and its end in its window, in nats.
    probability: of this candidate among the question's candidates that are kept.
    """

    text: str
    begin: int
    end: int
    log_prob: float
    probability: float


@dataclasses.dataclass(frozen=True)
class Answered:
    """A model's answer to a question.

    null_score: the logit that there is no answer: the lowest of all windows.
    candidates: the likely answers with different texts, best first; may be empty.
    """

    id: str
    null_score: float
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best answer, no matter whether there is one."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def null_probability(self) -> float:
        """The probability that there is no answer."""
        return float(np.exp(-np.logaddexp(0, -self.null_score)))

    def answer(self, threshold: float | None) -> str:
        """The answer, "" if the null_score is above the threshold; None: there always is an answer."""
        return "" if threshold is not None and self.null_score > threshold else self.text


def decode(
    reading: QuestionWindows, found: Mapping[str, np.ndarray], max_answer_len: int = 64, n_best: int = 5
) -> Answered:
    """The answers to a question, `n_best` at most.

    A candidate lies in one window's part of the paragraph and has from 1 to `max_answer_len` tokens. Its first token is
    one that has its most context in this window (see `questions.owners`). The official code also refuses answers that
    end in the last column but one of the paragraph's part. That looks like a slip, and we do not repeat it.

    `found` has by name arrays [W, ..]: the most likely answers in W windows; see `models.heads.BestAnswers`.
    """
    firsts = np.array([window.first for window in reading.windows])[:, None, None]
    sizes = np.array([window.size for window in reading.windows])[:, None, None]
    starts, ends = np.broadcast_arrays(found["start"][:, :, None], found["end"])
    owner = np.append(reading.owners, -1)  # after the paragraph there is none
    own = np.arange(len(firsts))[:, None, None] == owner[np.minimum(firsts + starts, len(reading.owners))]
    possible = (ends < sizes) & (starts <= ends) & (ends < starts + max_answer_len) & own
    log_probs = found["start_log_prob"][:, :, None] + found["end_log_prob"]
    kept: dict[str, tuple[int, int, float]] = {}
    places = np.argwhere(possible)
    for place in places[np.argsort(-log_probs[possible], kind="stable")]:
        w, s, e = place
        begin = int(reading.pieces.begin[reading.windows[w].first + starts[w, s, e]])
        end = int(reading.pieces.end[reading.windows[w].first + ends[w, s, e]])
        text = reading.text[begin:end].rstrip()  # the last token may be a space
        if text and text not in kept:
            kept[text] = begin, begin + len(text), float(log_probs[w, s, e])
        if len(kept) == n_best:
            break
    odds = np.exp([log_prob - max(row[2] for row in kept.values()) for *_, log_prob in kept.values()])
    candidates = [
        Candidate(text, *row, float(odd / odds.sum())) for (text, row), odd in zip(kept.items(), odds, strict=True)
    ]
    return Answered(reading.question.id, float(np.min(found["impossible"])), tuple(candidates))


ANSWER_FILES = ("predictions", "null_odds", "nbest_predictions")
"""The files that `write_answers` writes, each with .json."""


def require_no_answers(directory: str) -> None:
    """Raises InputError if `write_answers` would overwrite a file."""
    for name in ANSWER_FILES:
        require_new(tf.io.gfile.join(directory, f"{name}.json"), "squad_dir")


def write_answers(answered: Iterable[Answered], directory: str, threshold: float | None) -> None:
    """Writes the files for SQuAD's own evaluation into a new directory, and the candidates beside them.

    The files are predictions.json, {id: answer}; null_odds.json, {id: probability that there is no answer}, for its
    --na-prob-file; and nbest_predictions.json, {id: candidates}. For the threshold see `Answered.answer`.
    """
    require_no_answers(directory)
    answered = list(answered)
    tf.io.gfile.makedirs(directory)
    contents: tuple[dict[str, Any], ...] = (
        {one.id: one.answer(threshold) for one in answered},
        {one.id: one.null_probability for one in answered},
        {one.id: [candidate._asdict() for candidate in one.candidates] for one in answered},
    )
    for name, content in zip(ANSWER_FILES, contents, strict=True):
        text = json.dumps(content, indent=1)  # in ASCII: a text may hold a lone surrogate, which is not UTF-8
        write_result(tf.io.gfile.join(directory, f"{name}.json"), text + "\n")

"""Long work on texts, a part at a time: many blanks, scores of XLNet, and contexts of many windows.

Each part is a turn at the model. The results are those of one call of the signatures `fill`, `score` and `answer`.
"""

import dataclasses
import time
from typing import Any

import numpy as np
import tensorflow as tf

from serving.answers.batches import padded_rows, split_rows, stack_rows
from serving.answers.pace import Pace

KEPT = ("kept_tokens", "kept_log_probs", "kept_total")
"""The tensors of a beam search that goes on; their first axis is the text."""
FILLED = ("texts", "tokens", "log_probs", "total")
ANSWERED = ("answers", "begin", "end", "probability", "no_answer_probability")
SCORED_AT_ONCE = 16
"""Tokens of a score in one forward pass; more would not be faster."""


@dataclasses.dataclass(eq=False)
class FillRequest:
    """Texts of one request whose blanks are being filled.

    Attributes:
        texts: list of bytes.
        settings: the other inputs of `fill`, by name.
        done: how many tokens of each text are filled.
        steps: how many there are in the text that has most.
        kept: the tensors of `KEPT` by name, once one is filled.
        found: the outputs of `FILLED`, by name, when all are.
    """

    texts: list[bytes]
    settings: dict[str, Any]
    done: int = 0
    steps: int = 1
    kept: dict[str, Any] = dataclasses.field(default_factory=dict)
    found: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Scoring:
    """Texts of one request that are being scored.

    Attributes:
        texts: list of bytes.
        done: how many tokens of all texts are scored.
        tokens, lengths, log_probs: as from `score`; log_probs is 0 where there is none yet. None: nothing is done yet.
    """

    texts: list[bytes]
    done: int = 0
    tokens: Any = None
    lengths: Any = None
    log_probs: Any = None


@dataclasses.dataclass(eq=False)
class Asking:
    """Questions of one request whose contexts are being read.

    Attributes:
        columns: questions and contexts, lists of bytes by name.
        done: how many windows of all contexts are read.
        windows: how many there are; None: not known yet.
        kept: the results for these, dicts of tensors.
        found: the outputs of `ANSWERED`, by name, when all are read.
    """

    columns: dict[str, list[bytes]]
    done: int = 0
    windows: int | None = None
    kept: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    found: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class Parts:
    """Fills, scores and answers.

    Args:
        model: a Model.
        turns: its Turns.
        limits: a Limits.
        rows: texts in one call.

    Attributes:
        paces: the Paces of its calls.
    """

    def __init__(self, model, turns, limits, rows):
        self._model, self._turns, self._rows = model, turns, rows
        self._steps = Pace(limits.slice_seconds, first=1, most=64)
        self._tokens = Pace(limits.slice_seconds, first=SCORED_AT_ONCE, most=1024)
        self._windows = Pace(limits.slice_seconds, first=4, most=64)
        self.paces = (self._steps, self._tokens, self._windows)

    async def fill(self, texts, settings):
        """The outputs `FILLED` for texts, a list of rows by name; settings: the other inputs of `fill`."""
        outputs = {name: [] for name in FILLED}
        size = max(1, self._rows // settings["beam_size"])
        for begin in range(0, len(texts), size):
            filling = FillRequest(texts[begin : begin + size], settings)
            share = -(-self._rows // size) * len(filling.texts)  # of a batch
            again = begin > 0
            while filling.done < filling.steps:
                width = filling.kept["kept_tokens"].shape[2] if filling.done else max(map(len, texts)).bit_length()
                key = ("fill", *settings.values(), filling.done, width)
                await self._turns.run(self._fill, filling, key, rows=share, again=again)
                again = True
            for name in FILLED:
                outputs[name] += list(filling.found[name])
        return outputs

    async def score(self, texts):
        """For each text, the sum of its tokens' log-probabilities, the tokens, and their log-probabilities."""
        scores = []
        for begin in range(0, len(texts), self._rows):
            scoring = Scoring(texts[begin : begin + self._rows])
            again = begin > 0
            while scoring.lengths is None or scoring.done < scoring.lengths.sum():
                await self._turns.run(self._score, scoring, again=again)
                again = True
            rows = zip(scoring.tokens, scoring.log_probs, scoring.lengths, strict=True)
            scores += [(row[:n].sum(dtype=np.float64), ids[:n], row[:n]) for ids, row, n in rows]
        return scores

    async def answer(self, columns):
        """The outputs `ANSWERED` for questions and contexts, lists of bytes by name: a list of rows by name."""
        outputs = {name: [] for name in ANSWERED}
        for begin in range(0, len(columns["contexts"]), self._rows):
            asking = Asking({name: column[begin : begin + self._rows] for name, column in columns.items()})
            contexts, again = asking.columns["contexts"], begin > 0
            while not asking.found:
                key = None if asking.done else ("answer", max(map(len, contexts)).bit_length())
                await self._turns.run(self._answer, asking, key, rows=len(contexts), again=again)
                again = True
            for name in ANSWERED:
                outputs[name] += list(asking.found[name])
        return outputs

    def _fill(self, fillings):
        """A few more tokens for texts with the same number of them, in the model's thread."""
        settings, done = fillings[0].settings, fillings[0].done
        texts, size = _padded([filling.texts for filling in fillings])
        if done:
            kept = {name: stack_rows([filling.kept[name] for filling in fillings], size) for name in KEPT}
        else:
            kept = self._nothing(size)
        pace = (size * settings["beam_size"], max(map(len, texts)).bit_length())
        count, start = self._steps[pace], time.monotonic()
        out = self._model(
            "fill_part",
            texts=tf.constant(texts),
            begin=tf.constant(done),
            end=tf.constant(done + count),
            **{name: tf.constant(value) for name, value in settings.items()},
            **kept,
        )
        steps = out["steps"].numpy()
        self._steps.learn(pace, count, time.monotonic() - start)
        begin = 0
        for filling in fillings:
            end = begin + len(filling.texts)
            filling.steps = int(steps[begin:end].max())
            filling.done = min(done + count, filling.steps)
            if filling.done == filling.steps:
                filling.found = {name: out[name].numpy()[begin:end] for name in FILLED}
            else:
                filling.kept = {name: split_rows(out[name], begin, end) for name in KEPT}
            begin = end
        return fillings

    def _score(self, scorings):
        """A few more tokens of the texts of one request, in the model's thread."""
        (scoring,) = scorings
        pace = max(map(len, scoring.texts)).bit_length()
        count, start = self._tokens[pace], time.monotonic()
        out = self._model(
            "score_part",
            texts=tf.constant(scoring.texts),
            begin=tf.constant(scoring.done),
            end=tf.constant(scoring.done + count),
            at_once=tf.constant(min(count, SCORED_AT_ONCE)),
        )
        found = out["log_probs"].numpy()
        self._tokens.learn(pace, count, time.monotonic() - start)
        scoring.tokens, scoring.lengths = out["tokens"].numpy(), out["lengths"].numpy()
        scoring.log_probs = found if scoring.log_probs is None else scoring.log_probs + found
        scoring.done += count
        return scorings

    def _answer(self, askings):
        """A few more windows, in the model's thread: of one request, or the first ones of several."""
        done = askings[0].done
        columns = {name: [asking.columns[name] for asking in askings] for name in askings[0].columns}
        columns = {name: tf.constant(_padded(column)[0]) for name, column in columns.items()}
        pace = max(len(text) for asking in askings for text in asking.columns["contexts"]).bit_length()
        count, start = self._windows[pace], time.monotonic()
        out = dict(self._model("answer_part", **columns, begin=tf.constant(done), end=tf.constant(done + count)))
        windows = out.pop("windows").numpy()
        self._windows.learn(pace, count, time.monotonic() - start)
        first = row = 0  # of this request, among all windows and all questions
        for asking in askings:
            size = len(asking.columns["contexts"])
            asking.windows = int(windows[row : row + size].sum())
            end = min(first + asking.windows - done, count)
            if end > first:
                asking.kept.append({name: values[first:end] for name, values in out.items()})
                asking.done += end - first
            if asking.done == asking.windows:
                kept = {name: tf.concat([part[name] for part in asking.kept], axis=0) for name in out}
                own = {name: tf.constant(column) for name, column in asking.columns.items()}
                found = self._model("answer_whole", **own, **kept)
                asking.found = {name: found[name].numpy() for name in ANSWERED}
            first, row = min(first + asking.windows - done, count), row + size
        return askings

    def _nothing(self, rows):
        """The tensors of `KEPT` before anything is filled."""
        specs = self._model.signatures["fill_part"].structured_input_signature[1]
        return {name: tf.zeros([rows] + [0] * (specs[name].shape.rank - 1), specs[name].dtype) for name in KEPT}


def _padded(lists):
    """The texts of several lists in one, padded with the first text to a power of two; and their number."""
    texts = [text for own in lists for text in own]
    size = padded_rows(len(texts))
    return texts + texts[:1] * (size - len(texts)), size

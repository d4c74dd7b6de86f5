"""A long text is read segment by segment, so that others have their turns in between."""

import dataclasses
import functools
import time
from typing import Any

import numpy as np
import tensorflow as tf

from serving.answers.batches import padded_rows, split_rows, stack_rows
from serving.model import CACHE


@dataclasses.dataclass(eq=False)
class Reading:
    """The state of a text that is being read.

    Attributes:
        tokens: int32 [n], whole segments.
        targets: int32 [n], the token after each, or -1 where no log-probability is needed.
        cache: the tensors of `CACHE` by name, after the segments read so far.
        top: how many of the likeliest tokens to return after each token.
        memory: whether a segment sees those before it.
        log_probs: of the targets of each of these segments, list of float32 [S].
        likeliest: if top is not 0, the likeliest tokens and their log-probabilities after each token, the likeliest
            first: a list of (int [S, top], float32 [S, top]).
    """

    tokens: np.ndarray
    targets: np.ndarray
    cache: dict[str, Any]
    top: int = 0
    memory: bool = True
    log_probs: list[np.ndarray] = dataclasses.field(default_factory=list)
    likeliest: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)


async def read_segments(model, turns, tokens, targets, seconds, **wanted):
    """Reads a text from its beginning.

    Args:
        model: a Model with segments.
        turns: its Turns.
        tokens, targets: as in `Reading`.
        seconds: the longest time for a turn, about.
        wanted: top and memory, as in `Reading`.

    Returns:
        the Reading at its end.
    """
    reading = Reading(tokens, targets, model.empty_cache, **wanted)
    while len(reading.log_probs) * model.segment < len(tokens):
        await turns.run(functools.partial(_read, model, seconds), reading, again=True)
    return reading


def _read(model, seconds, readings):
    """Reads as many segments as there is time for, at least one."""
    (reading,), size, end = readings, model.segment, time.monotonic() + seconds
    while (begin := len(reading.log_probs) * size) < len(reading.tokens):
        tokens, targets = (part[begin : begin + size] for part in (reading.tokens, reading.targets))
        if reading.top:
            found = model("step", tokens=tf.constant(tokens[None]), **reading.cache)
            log_probs = found["log_probs"].numpy()[0]
            chosen = np.take_along_axis(log_probs, np.maximum(targets, 0)[:, None], axis=1)[:, 0]
            reading.log_probs.append(np.where(targets >= 0, chosen, 0))
            reading.likeliest.append(likeliest(log_probs, reading.top))
        else:
            found = model("read", tokens=tf.constant(tokens[None]), targets=tf.constant(targets[None]), **reading.cache)
            reading.log_probs.append(found["log_probs"].numpy()[0])
        if reading.memory:
            reading.cache = {name: found[name] for name in CACHE}
        if time.monotonic() > end:
            break
    return readings


def step_texts(model, items):
    """The new cache and the next token's log-probabilities [V], for texts that read the same number of tokens.

    Args:
        model: a Model.
        items: (tokens, int32 [1, n], cache) of each text.
    """
    size = padded_rows(len(items))
    tokens = stack_rows([tokens for tokens, _ in items], size)
    caches = {name: stack_rows([cache[name] for _, cache in items], size) for name in CACHE}
    out = model("step", tokens=tf.constant(tokens), **caches)
    log_probs = out["log_probs"][:, -1].numpy()
    return [({name: split_rows(out[name], i, i + 1) for name in CACHE}, log_probs[i]) for i in range(len(items))]


def likeliest(log_probs, count):
    """The likeliest tokens in each row of log-probabilities [n, V], the likeliest first: int and float [n, count]."""
    tokens = np.argpartition(-log_probs, min(count, log_probs.shape[1] - 1), axis=1)[:, :count]
    values = np.take_along_axis(log_probs, tokens, axis=1)
    order = np.lexsort((tokens, -values), axis=1)  # tokens with equal values by their numbers
    return np.take_along_axis(tokens, order, axis=1), np.take_along_axis(values, order, axis=1)

"""A Transformer-XL reads a long text segment by segment, so that others have their turns in between."""

import dataclasses
import functools
import time
from typing import Any

import numpy as np
import tensorflow as tf

from serving.model import CACHE


@dataclasses.dataclass(eq=False)
class Reading:
    """How far a text is read.

    Attributes:
        tokens: int32 [n], whole segments.
        targets: int32 [n], the token after each, or -1 if its log-probability is not wanted.
        cache: the tensors of `CACHE` by name, after the segments read so far.
        log_probs: of the targets of each of these segments, list of float32 [S].
    """

    tokens: np.ndarray
    targets: np.ndarray
    cache: dict[str, Any]
    log_probs: list[np.ndarray] = dataclasses.field(default_factory=list)


async def read_segments(model, turns, tokens, targets, seconds):
    """Reads a text from its beginning.

    Args:
        model: a Model with segments.
        turns: its Turns.
        tokens, targets: as in `Reading`.
        seconds: about the longest time for a turn.

    Returns:
        the Reading at its end.
    """
    reading = Reading(tokens, targets, model.empty_cache)
    while len(reading.log_probs) * model.segment < len(tokens):
        await turns.run(functools.partial(_read, model, seconds), reading, again=True)
    return reading


def _read(model, seconds, readings):
    """As many segments as there is time for, at least one."""
    (reading,), size, end = readings, model.segment, time.monotonic() + seconds
    while (begin := len(reading.log_probs) * size) < len(reading.tokens):
        found = model(
            "read",
            tokens=tf.constant(reading.tokens[None, begin : begin + size]),
            targets=tf.constant(reading.targets[None, begin : begin + size]),
            **reading.cache,
        )
        reading.cache = {name: found[name] for name in CACHE}
        reading.log_probs.append(found["log_probs"].numpy()[0])
        if time.monotonic() > end:
            break
    return readings

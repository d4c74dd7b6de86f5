"""Long evaluations on a CPU: by XLA or by TensorFlow's own kernels, whichever is faster there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from txl_tf.objectives.base import Scores, State

ScoreSteps = Callable[[Any, State, tf.Tensor], Scores]
"""score_steps(iterator, state, n): what `make_score_steps` returns."""

WORTH = 60.0
"""Seconds that an evaluation must still need before another method is tried, whose tracing takes a few of them."""
FASTER = 0.95
"""A method must take less than this part of the other one's time. With less the choice would change from run to run."""


class FasterSteps:
    """Scores by one method, and by another from when that has been measured to be clearly faster.

    Both must give the same scores up to rounding. Which is faster depends on the CPU, the softmax and the sizes, and
    is hard to predict: docs/results.md has examples. So one call of a long evaluation is a trial. What is found is kept
    for later evaluations.

    Args:
        first: the method to begin with.
        make_second: makes the other one, whose first call may take longer; None: there is none.
        clock: the time in seconds.
    """

    def __init__(
        self,
        first: ScoreSteps,
        make_second: Callable[[], ScoreSteps] | None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._steps = first
        self._make_second = make_second
        self._clock = clock
        self._calls = 0
        self._fastest = float("inf")  # seconds of a step by the first method
        self._trial: ScoreSteps | None = None
        self._decided = make_second is None

    def __call__(self, iterator: Any, state: State, n: int, left: int) -> Scores:
        """The Scores of n steps, by one of the methods.

        Args:
            iterator, state, n: as for ScoreSteps.
            left: how many steps the evaluation will have after these.
        """
        if self._decided:
            return self._steps(iterator, state, tf.constant(n))
        if self._trial is None and (n + left) * self._fastest > WORTH and self._calls > 1:
            assert self._make_second is not None  # or it were decided
            self._trial, self._calls = self._make_second(), 0
        start = self._clock()
        scores = (self._trial or self._steps)(iterator, state, tf.constant(n))
        self._calls += 1
        if self._calls > 1 and n > 1:  # a method's first call traces or compiles; a step alone has a call's whole cost
            self._timed((self._clock() - start) / n)
        return scores

    def _timed(self, seconds: float) -> None:
        """Takes note of the time of a step; that of the trial decides."""
        if self._trial is None:
            self._fastest = min(self._fastest, seconds)
            return
        if seconds < FASTER * self._fastest:
            self._steps = self._trial
        self._trial, self._decided = None, True

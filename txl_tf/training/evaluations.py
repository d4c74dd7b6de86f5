"""The evaluations of a run on valid, which it repeats until its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from txl_tf.progress import reported
from txl_tf.runs import model_dir as model_dirs
from txl_tf.training.board.draw_panels import show_panels
from txl_tf.training.board.gallery import Gallery
from txl_tf.training.board.json_log import JsonLog
from txl_tf.training.board.report import Report
from txl_tf.training.optimizer.average import WeightAverage

Evaluate = Callable[[Callable[..., None]], dict[str, Any]]


class EvaluationAbandonedError(Exception):
    """An evaluation was broken off, because the run must stop. The continued run repeats it."""


class Evaluations:
    """Evaluates a run's model, with averaged weights if there are any, and reports the results.

    Args:
        evaluate: as `train` has it from make_evaluator; None: the run is never evaluated.
        log: evaluations.jsonl, with the evaluations so far.
        report: the run's Report, which gets the results.
        gallery: what TensorBoard shows of the weights; None without `evaluate`.
        average: the run's averaged weights.
        shown: whether progress is shown.
    """

    def __init__(
        self,
        evaluate: Evaluate | None,
        log: JsonLog,
        report: Report,
        gallery: Gallery | None,
        average: WeightAverage,
        shown: bool,
    ):
        self._evaluate, self._log, self._report = evaluate, log, report
        self._gallery, self._average, self._shown = gallery, average, shown

    def misses(self, step: int) -> bool:
        """Whether the run is evaluated at all, and was not at this step."""
        return self._evaluate is not None and all(line["step"] != step for line in self._log.lines)

    def since_best(self) -> int:
        """The number of evaluations after the best one; 0 if there are none."""
        scores = [model_dirs.score(line) for line in self._log.lines]
        return len(scores) - 1 - scores.index(min(scores)) if scores else 0

    def best_step(self) -> int:
        """The step of the best evaluation."""
        return min(self._log.lines, key=model_dirs.score)["step"]

    def evaluate(self, step: int, signal: Callable[[], int]) -> bool:
        """Evaluates at this step; returns whether the result is the best so far.

        A `signal` that is not 0 breaks it off; then it returns False.
        """

        def check(*state: Any) -> None:
            if signal():
                raise EvaluationAbandonedError
            if state:
                progress(*state[:2])

        assert self._evaluate
        try:
            with self._average.in_use(), reported("evaluating", " steps", leave=False, shown=self._shown) as progress:
                result = self._evaluate(check)
        except EvaluationAbandonedError:
            return False
        panels = result.pop("panels", ())
        self._report.evaluation(step, result)
        show_panels(self._report.board, step, panels)
        best = min(map(model_dirs.score, self._log.lines), default=math.inf)
        self._log.append({"step": step} | result)
        return model_dirs.score(result) < best

    def show(self, step: int) -> None:
        """Writes histograms, samples and attention maps to TensorBoard."""
        assert self._gallery
        self._gallery.show_histograms(step)
        with self._average.in_use():
            self._gallery.show(step)

"""Bad steps, whose loss or gradient was not finite: their numbers, and the first values that were not finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from txl_tf.runs.model_dir import BAD_STEPS_FILE
from txl_tf.training.board.json_log import JsonLog
from txl_tf.training.step import BadStep

_LISTED = 3


class BadSteps:
    """Records the bad steps of a run in its model_dir, after `step` updates, and prints how to find the cause.

    `activations` are the objective's, in the order in which they are computed, `variables` the paths of those trained.
    With `writes` this process writes the run's files.
    """

    def __init__(
        self, model_dir: str, step: int, activations: Sequence[str], variables: Sequence[str], writes: bool = True
    ):
        self.model_dir = model_dir
        self.activations = activations
        self.variables = variables
        self.writes = writes
        self.log = JsonLog(tf.io.gfile.join(model_dir, BAD_STEPS_FILE), step, writes)

    def record(self, step: int, bad: BadStep) -> None:
        """Records the first bad step, if there is one, of a host loop that began after `step` updates."""
        place = int(bad.place)
        if place < 0:
            return
        activations = _not_finite(self.activations, bad.finite.activations)
        variables = _not_finite(self.variables, bad.finite.variables)
        line = {"step": step + place + 1, "activation": activations[0] if activations else None, "variables": variables}
        self.log.append(line)
        if self.writes:
            print(describe(line, self.model_dir), flush=True)


def describe(line: dict, model_dir: str) -> str:
    """A line of bad_steps.jsonl as readable text."""
    variables = line["variables"]
    listed = ", ".join(variables[:_LISTED]) + (
        f" and {len(variables) - _LISTED} more" if len(variables) > _LISTED else ""
    )
    where = f"first in the activation {line['activation']}" if line["activation"] else "all activations are finite"
    return (
        f"step {line['step']:,} skipped: loss or gradient not finite; {where}; gradients not finite: "
        f"{listed or 'none, only the norm of all'}; to see the operation: "
        f"python scripts/replay_step.py --model_dir={model_dir} --step={line['step']}"
    )


def _not_finite(names: Sequence[str], finite: tf.Tensor) -> list[str]:
    return [name for name, is_finite in zip(names, np.asarray(finite), strict=True) if not is_finite]

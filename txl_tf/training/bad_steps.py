"""Bad steps, whose loss or gradient was not finite: their numbers, and how to find the cause."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.runs.model_dir import BAD_STEPS_FILE
from txl_tf.training.board.json_log import JsonLog


class BadSteps:
    """Records the bad steps of a run in its model_dir, after `step` updates, and prints how to find the cause.

    With `writes` this process writes the run's files.
    """

    def __init__(self, model_dir: str, step: int, writes: bool = True):
        self.model_dir, self.writes = model_dir, writes
        self.log = JsonLog(tf.io.gfile.join(model_dir, BAD_STEPS_FILE), step, writes)

    def record(self, step: int) -> None:
        """Records a bad step by its number, from 1."""
        self.log.append({"step": step})
        if self.writes:
            print(
                f"step {step:,} skipped: loss or gradient not finite; to see where it began: "
                f"python scripts/replay_step.py --model_dir={self.model_dir} --step={step}",
                flush=True,
            )

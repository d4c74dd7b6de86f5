"""The objective of fine-tuning; the task says what is lost and predicted."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.objectives.base import Loss, Objective

Examples = dict[str, tf.Tensor]
"""tokens, segments, padding [b, T] or [b, n, T]; label [b, ..], where it is known; weight [b]."""


class TaskObjective(Objective):
    """One forward pass, a loss for each example, no state; `task` is the FineTuning."""

    def __init__(self, model: Any, config: Any, task: Any):
        self.model, self.config, self.task = model, config, task

    def initial_state(self, lanes: int) -> tuple[()]:
        """Nothing is carried from batch to batch."""
        return ()

    def __call__(self, batch: Examples, state: tuple[()], seed: Any, training: bool) -> Loss:
        """The loss of a batch; see Objective. The weight is the number of targets."""
        logits = self.task.logits(self.model, batch, self.config, seed=seed, training=training)
        losses = self.task.losses(logits, batch)
        weight = tf.cast(batch["weight"], losses.dtype)
        total = tf.reduce_sum(tf.math.multiply_no_nan(losses, weight))
        return Loss(total, tf.reduce_sum(self.task.targets(batch, weight)), state)

"""The interface between an objective and training or evaluation.

An objective computes sums over targets from a batch and a state, never means. The training step adds the sums of all
replicas and groups of lanes, and divides once. So the loss is the mean over the targets of the whole batch, however
many of them each replica has.

A batch and a state are nests of tensors whose first axis is the lanes (b on a replica). A state is a value, such as
mems: it is passed from step to step, and saved in checkpoints.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from txl_tf.layers.dropout import Seeds

Batch = Any
State = Any


class Loss(typing.NamedTuple):
    """The result of an objective for a batch, with the state after it.

    total: scalar, the sum of the targets' losses, in nats; it is differentiated.
    weight: scalar, the divisor for the mean: the number of targets, or the sum of their weights.
    penalties: scalars, one for each of the objective's `penalties`: sums as `total`. The step differentiates them, too,
        but the loss does not include them.
    """

    total: tf.Tensor
    weight: tf.Tensor
    state: State
    penalties: tuple[tf.Tensor, ...] = ()


class Objective(Protocol):
    """A training objective: computes the loss of a batch.

    Attributes:
        penalties: the names of the penalties in `Loss`.
        usual_weight: the `Loss.weight` of a usual batch of all replicas. The learning rate of a step is then multiplied
            by its weight / usual_weight. None: it is not.
    """

    penalties: tuple[str, ...] = ()
    usual_weight: float | None = None

    def initial_state(self, lanes: int) -> State:
        """The state before the first batch."""

    def __call__(self, batch: Batch, state: State, seed: Seeds | None, training: bool) -> Loss:
        """The loss of a batch; `seed` is for dropout and all other random numbers."""


class ScoredBatch(typing.NamedTuple):
    """The result of a scorer for a batch, with the state after it.

    targets: int32 [b, n]; -1: no target.
    nll: [b, n], the targets' negative log-likelihoods in nats.
    bins: int32 [b, n] for each of the scorer's `breakdowns`, in their order: each target's bin.
    """

    targets: tf.Tensor
    nll: tf.Tensor
    state: State
    bins: tuple[tf.Tensor, ...] = ()


class Scorer(Protocol):
    """Evaluates an objective: computes the loss of each target.

    Attributes:
        settings: the settings that the result depends on, by name, for the line that reports it.
        breakdowns: properties of targets by which the loss is also reported: {name: labels of its bins}.
    """

    settings: dict[str, Any]
    breakdowns: dict[str, tuple[str, ...]]

    def initial_state(self, lanes: int) -> State:
        """The state before the first batch."""

    def refresh(self) -> None:
        """Must be called after the model's weights have changed."""

    def __call__(self, batch: Batch, state: State) -> ScoredBatch:
        """The scores of a batch."""


class AttentionView(typing.NamedTuple):
    """Attention for TensorBoard.

    batches: nest of tensors [n, 1, ..], batches of one lane of valid, in order; the last one is shown.
    probabilities: (batches) -> {stream: [N, H, Q, K]} of the last batch, with the model's current weights.
    queries: {stream: [Q]}, the queries' positions in the segment, ascending. The name of a model's only stream is "".
    m_len: how many of the K keys are memory.
    """

    batches: Batch
    probabilities: Callable[[Batch], dict[str, tf.Tensor]]
    queries: dict[str, np.ndarray]
    m_len: int


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

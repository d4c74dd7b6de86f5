"""What training and evaluation ask of an objective.

An objective turns a batch and a state into sums over targets, never means: the training step adds sums up over
replicas and groups of lanes and divides once, so that the loss is the mean over the targets of the whole batch, however
they fall on replicas.

A batch and a state are nests of tensors whose first axis is the lanes (b of a replica). A state is a value, such as
mems: it is handed from step to step, and saved in checkpoints.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from txl_tf.layers.dropout import Seeds

Batch = Any
State = Any


class Loss(typing.NamedTuple):
    """What an objective makes of a batch.

    total: scalar, the sum of the targets' losses, in nats; to be differentiated.
    weight: scalar, what to divide it by for a mean: the number of targets, or the sum of their weights.
    state: the state after the batch.
    finite: bool [W], which of the objective's `activations` are finite throughout.
    """

    total: tf.Tensor
    weight: tf.Tensor
    state: State
    finite: tf.Tensor


class Objective(Protocol):
    """What is learned.

    Attributes:
        activations: names of what `Loss.finite` speaks of, in the order in which they are computed.
    """

    activations: tuple[str, ...]

    def initial_state(self, lanes: int) -> State:
        """The state before the first batch."""

    def __call__(self, batch: Batch, state: State, seed: Seeds | None, training: bool) -> Loss:
        """The loss of a batch; `seed` is of its dropout and whatever else is random."""


class Scores(typing.NamedTuple):
    """What a scorer makes of a batch.

    targets: int32 [b, n]; -1 where there is nothing to score.
    nll: [b, n], the targets' negative log-likelihoods in nats.
    state: the state after the batch.
    """

    targets: tf.Tensor
    nll: tf.Tensor
    state: State


class Scorer(Protocol):
    """How an objective is evaluated: target by target.

    Attributes:
        settings: what the result depends on, by name, for the line that reports it.
    """

    settings: dict[str, Any]

    def initial_state(self, lanes: int) -> State:
        """The state before the first batch."""

    def refresh(self) -> None:
        """Takes note that the model's weights have changed."""

    def __call__(self, batch: Batch, state: State) -> Scores:
        """The scores of a batch."""


class FiniteWatch:
    """Notes which activations are finite throughout; what `run_stack` takes as `watch`."""

    def __init__(self) -> None:
        self.found: dict[str, tf.Tensor] = {}

    def __call__(self, name: str, activation: tf.Tensor) -> None:
        """Looks at one activation."""
        with tf.name_scope("watch"):
            # By its sum, which is not finite if a term is not. On a TPU that costs half of looking at each number.
            dtype = tf.float32 if activation.dtype == tf.bfloat16 else activation.dtype
            self.found[name] = tf.math.is_finite(tf.reduce_sum(tf.cast(activation, dtype)))

    def stacked(self, names: tuple[str, ...]) -> tf.Tensor:
        """Bool [W], in the order of `names`."""
        return tf.stack([self.found[name] for name in names])


class AttentionView(typing.NamedTuple):
    """How TensorBoard shows an objective's attention.

    batches: nest of tensors [n, 1, ..], batches of one lane of valid, in order; the last one is shown.
    probabilities: (batches) -> [N, H, T, K] in the last batch, made from the model's present weights.
    m_len: how many of the K keys are memory.
    """

    batches: Batch
    probabilities: Callable[[Batch], tf.Tensor]
    m_len: int

"""The base class of sequence objectives: one forward pass, a loss for each example, no state."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import tensorflow as tf

from txl_tf.layers.dropout import Seeds
from txl_tf.models.stack import Watch
from txl_tf.models.xlnet.head_config import XLNetHeadRunConfig
from txl_tf.models.xlnet.with_head import XLNetWithHead
from txl_tf.objectives.base import FiniteWatch, Loss, Objective

Examples = dict[str, tf.Tensor]
"""tokens, segments, padding [b, T] or [b, n, T]; label [b], where it is known; weight [b]."""


class SequenceObjective(Objective, abc.ABC):
    """The objective of a task whose examples are sequences; subclasses define the loss of an example.

    The model is an XLNet with outputs for sequences or tokens. Longer texts than tgt_len are read in segments of it.
    """

    label_type: ClassVar[str] = "int32"

    def __init__(self, model: XLNetWithHead, config: XLNetHeadRunConfig):
        self.model = model
        self.segment_len = config.data.tgt_len
        self.activations = (*model.activations, "loss")

    @abc.abstractmethod
    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """The loss of each example, [b], from the model's outputs."""

    @abc.abstractmethod
    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predictions from the model's outputs, tensors [b, ..]."""

    @classmethod
    def batch_spec(cls, config: XLNetHeadRunConfig, lanes: int, training: bool) -> Examples:
        """The TensorSpecs of a batch."""
        shape = cls.shape(config, lanes)
        return {
            "tokens": tf.TensorSpec(shape, tf.int32),
            "segments": tf.TensorSpec(shape, tf.int32),
            "padding": tf.TensorSpec(shape, tf.bool),
            "label": tf.TensorSpec([lanes, *cls.label_shape(config)], cls.label_type),
            "weight": tf.TensorSpec([lanes], tf.float32),
        }

    @classmethod
    def shape(cls, config: XLNetHeadRunConfig, lanes: int) -> list[int]:
        """The shape of a batch's tokens: [b, S T]."""
        return [lanes, config.data.tgt_len * config.max_segments]

    @classmethod
    def label_shape(cls, config: Any) -> list[int]:
        """The shape of the label of an example."""
        return []

    def targets(self, label: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """How many targets each example has, [b], times its weight [b]; by default one."""
        return weight

    def initial_state(self, lanes: int) -> tuple[()]:
        """Nothing is carried from batch to batch."""
        return ()

    def __call__(self, batch: Examples, state: tuple[()], seed: Seeds | None, training: bool) -> Loss:
        """The loss of a batch; see Objective. The weight is the number of targets."""
        watch = FiniteWatch()
        losses = self.losses(self.logits(batch, seed, training, watch), batch["label"])
        weight = tf.cast(batch["weight"], losses.dtype)
        total = tf.reduce_sum(tf.math.multiply_no_nan(losses, weight))
        watch("loss", total)
        return Loss(total, tf.reduce_sum(self.targets(batch["label"], weight)), state, watch.stacked(self.activations))

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """The predictions for a batch; see TaskObjective."""
        logits = self.logits(batch)
        found = self.predictions(logits)
        return found | ({"loss": self.losses(logits, batch["label"])} if "label" in batch else {})

    def logits(
        self, batch: Examples, seed: Seeds | None = None, training: bool = False, watch: Watch | None = None
    ) -> tf.Tensor:
        """The model's outputs for a batch; arguments as for `__call__` and `XLNet.call`."""
        return self.model(
            batch["tokens"],
            segments=batch["segments"],
            padding=batch["padding"],
            seed=seed,
            training=training,
            watch=watch,
            segment_len=self.segment_len,
        )

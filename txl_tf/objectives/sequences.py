"""The objectives of tasks whose examples are sequences."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import tensorflow as tf

from txl_tf.models.xlnet.head_config import XLNetHeadRunConfig, XLNetMultiLabelConfig, XLNetTaggingConfig
from txl_tf.objectives.base import TaskObjective

Examples = dict[str, tf.Tensor]
"""tokens, segments, padding [b, T] or [b, n, T]; label [b], where it is known; weight [b]."""


class SequenceObjective(TaskObjective):
    """The objective of a task whose examples are sequences; subclasses define losses and predictions.

    The model is an XLNet with outputs for sequences or tokens. Longer texts than tgt_len are read in segments of it.
    """

    label_type: ClassVar[str] = "int32"

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

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """The predictions for a batch; see TaskObjective."""
        logits = self.logits(batch)
        found = self.predictions(logits)
        return found | ({"loss": self.losses(logits, batch)} if "label" in batch else {})

    def logits(self, batch: Examples, **options: Any) -> tf.Tensor:
        """The model's outputs for a batch; see TaskObjective."""
        given = {name: batch[name] for name in ("segments", "padding")}
        return self.model(batch["tokens"], **given, **options, segment_len=self.config.data.tgt_len)


class Classification(SequenceObjective):
    """Softmax over C classes; label: int [b]."""

    def losses(self, logits: tf.Tensor, batch: Examples) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, C]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """log_probs [b, C], in nats."""
        return {"log_probs": tf.nn.log_softmax(logits)}


class MultipleChoice(Classification):
    """Softmax over the n sequences of an example, from one logit for each; label: int [b]."""

    @classmethod
    def shape(cls, config: XLNetHeadRunConfig, lanes: int) -> list[int]:
        """The shape of a batch's tokens: [b, 4, T], as RACE has four options."""
        return [lanes, 4, config.data.tgt_len]

    def losses(self, logits: tf.Tensor, batch: Examples) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, n, 1]."""
        return super().losses(logits[..., 0], batch)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """log_probs [b, n], in nats."""
        return super().predictions(logits[..., 0])


class Regression(SequenceObjective):
    """One score for a sequence; label: float [b]."""

    label_type = "float32"

    def losses(self, logits: tf.Tensor, batch: Examples) -> tf.Tensor:
        """(score - label)**2, [b]; logits [b, 1]."""
        return tf.math.squared_difference(logits[:, 0], tf.cast(batch["label"], logits.dtype))

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """score [b]."""
        return {"score": logits[:, 0]}


class MultiLabel(SequenceObjective):
    """A sigmoid for each of C labels; label: float [b, C], 1 for the labels that a sequence has, else 0."""

    @classmethod
    def label_shape(cls, config: XLNetMultiLabelConfig) -> list[int]:
        """[C]."""
        return [config.model.n_class]

    def losses(self, logits: tf.Tensor, batch: Examples) -> tf.Tensor:
        """The mean over labels of -log p(has it, or has it not), [b], in nats; logits [b, C]."""
        label = tf.cast(batch["label"], logits.dtype)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits), axis=-1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """probabilities [b, C], of each label by itself."""
        return {"probabilities": tf.sigmoid(logits)}


class Tagging(SequenceObjective):
    """Softmax over the tags at every word's first piece; all words count alike.

    label: int [b, L], -1 at other pieces. Longer texts than tgt_len are read in segments of it.
    """

    @classmethod
    def label_shape(cls, config: XLNetTaggingConfig) -> list[int]:
        """[S T]."""
        return [config.data.tgt_len * config.max_segments]

    def losses(self, logits: tf.Tensor, batch: Examples) -> tf.Tensor:
        """The sum of -log p(tag) over the words of each example, [b], in nats; logits [b, L, C]."""
        label = batch["label"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
        return tf.reduce_sum(losses * tf.cast(label >= 0, logits.dtype), axis=1)

    def targets(self, batch: Examples, weight: tf.Tensor) -> tf.Tensor:
        """The words of each example, [b], times its weight."""
        return weight * tf.reduce_sum(tf.cast(batch["label"] >= 0, weight.dtype), axis=1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """tag, int32 [b, L], the likeliest, and log_prob [b, L], its log-probability in nats."""
        log_probs = tf.nn.log_softmax(logits)
        tag = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
        return {"tag": tag, "log_prob": tf.reduce_max(log_probs, axis=-1)}

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """The predictions at all columns, and the loss: the mean over an example's words; see TaskObjective."""
        found = super().outputs(batch)
        if "loss" in found:
            found["loss"] /= tf.maximum(self.targets(batch, tf.ones_like(found["loss"])), 1)
        # Padded at the front, the outputs of all batches have one shape.
        before = self.label_shape(self.config)[0] - found["tag"].shape[1]
        return found | {name: tf.pad(found[name], [[0, 0], [before, 0]]) for name in ("tag", "log_prob")}

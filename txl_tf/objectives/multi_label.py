"""Multi-label classification: the cross entropy of each label by itself."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.models.xlnet.head_config import XLNetMultiLabelConfig
from txl_tf.objectives.sequences import SequenceObjective


class MultiLabel(SequenceObjective):
    """A sigmoid for each of C labels; label: float [b, C], 1 for the labels that a sequence has, else 0."""

    @classmethod
    def label_shape(cls, config: XLNetMultiLabelConfig) -> list[int]:
        """[C]."""
        return [config.model.n_class]

    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """The mean over labels of -log p(has it, or has it not), [b], in nats; logits [b, C]."""
        label = tf.cast(label, logits.dtype)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits), axis=-1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """probabilities [b, C], of each label by itself."""
        return {"probabilities": tf.sigmoid(logits)}

"""Regression: the squared error of a sequence's score."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.objectives.sequences import SequenceObjective


class Regression(SequenceObjective):
    """One score for a sequence; label: float [b]."""

    label_type = "float32"

    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """(score - label)**2, [b]; logits [b, 1]."""
        return tf.math.squared_difference(logits[:, 0], tf.cast(label, logits.dtype))

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """score [b]."""
        return {"score": logits[:, 0]}

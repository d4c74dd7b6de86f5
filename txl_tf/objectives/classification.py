"""Classification: the negative log-likelihood of a sequence's class."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.objectives.sequences import SequenceObjective


class Classification(SequenceObjective):
    """Softmax over C classes; label: int [b]."""

    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, C]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """log_probs [b, C], in nats."""
        return {"log_probs": tf.nn.log_softmax(logits)}

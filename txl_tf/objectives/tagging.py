"""Tagging: the negative log-likelihood of the tags of a text's words."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.models.xlnet.head_config import XLNetTaggingConfig
from txl_tf.models.xlnet.with_tags import XLNetWithTags
from txl_tf.objectives.sequences import Examples, SequenceObjective


class Tagging(SequenceObjective):
    """Softmax over the tags at every word's first piece; all words count alike.

    label: int [b, L], -1 at other pieces. Longer texts than tgt_len are read in segments of it.
    """

    def __init__(self, model: XLNetWithTags, config: XLNetTaggingConfig):
        super().__init__(model, config)
        self._columns = config.data.tgt_len * config.data.max_segments

    @classmethod
    def label_shape(cls, config: XLNetTaggingConfig) -> list[int]:
        """[S T]."""
        return [config.data.tgt_len * config.max_segments]

    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """The sum of -log p(tag) over the words of each example, [b], in nats; logits [b, L, C]."""
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
        return tf.reduce_sum(losses * tf.cast(label >= 0, logits.dtype), axis=1)

    def targets(self, label: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """The words of each example, [b], times its weight."""
        return weight * tf.reduce_sum(tf.cast(label >= 0, weight.dtype), axis=1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """tag, int32 [b, L], the likeliest, and log_prob [b, L], its log-probability in nats."""
        log_probs = tf.nn.log_softmax(logits)
        tag = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
        return {"tag": tag, "log_prob": tf.reduce_max(log_probs, axis=-1)}

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """The predictions at all columns, and the loss: the mean over an example's words; see TaskObjective."""
        found = super().outputs(batch)
        if "loss" in found:
            found["loss"] /= tf.maximum(self.targets(batch["label"], tf.ones_like(found["loss"])), 1)
        before = self._columns - found["tag"].shape[1]  # so that the outputs of all batches have one shape
        return found | {name: tf.pad(found[name], [[0, 0], [before, 0]]) for name in ("tag", "log_prob")}

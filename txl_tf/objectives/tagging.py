"""Tagging: the negative log-likelihood of the tags of a text's words."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.layers.dropout import Seeds
from txl_tf.models.stack import Watch
from txl_tf.models.xlnet.head_config import XLNetTaggingConfig
from txl_tf.models.xlnet.with_tags import XLNetWithTags
from txl_tf.objectives.base import FiniteWatch, Loss, Objective

Examples = dict[str, tf.Tensor]
"""tokens, segments, padding [b, L]; label [b, L], where it is known: -1 where there is none; weight [b]."""


class Tagging(Objective):
    """Softmax over the tags at every word's first piece; all words count the same.

    Args:
        model: an XLNetWithTags.
        config: an XLNetTaggingConfig; longer texts than its tgt_len are read in segments of tgt_len tokens.
    """

    def __init__(self, model: XLNetWithTags, config: XLNetTaggingConfig):
        self.model = model
        self.segment_len, self._columns = config.data.tgt_len, config.data.tgt_len * config.data.max_segments
        self.activations = (*model.activations, "loss")

    def initial_state(self, lanes: int) -> tuple[()]:
        """Nothing is carried from batch to batch."""
        return ()

    def __call__(self, batch: Examples, state: tuple[()], seed: Seeds | None, training: bool) -> Loss:
        """The loss of a batch; see Objective. The weight is the number of words."""
        watch = FiniteWatch()
        losses, words = self._losses(self._logits(batch, seed, training, watch), batch["label"])
        weight = tf.cast(batch["weight"], losses.dtype)
        total = tf.reduce_sum(tf.math.multiply_no_nan(losses, weight))
        watch("loss", total)
        return Loss(total, tf.reduce_sum(weight * words), state, watch.stacked(self.activations))

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """At all columns the likeliest tag and its log-probability, as `best`, and the loss: the mean over an
        example's words."""
        logits = self._logits(batch)
        found = self.best(logits)
        before = self._columns - logits.shape[1]  # so that the outputs of all batches have one shape
        found = {name: tf.pad(values, [[0, 0], [before, 0]]) for name, values in found.items()}
        if "label" in batch:
            losses, words = self._losses(logits, batch["label"])
            found["loss"] = losses / tf.maximum(words, 1)
        return found

    def best(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """tag, int32 [b, L], the likeliest, and log_prob [b, L], its log-probability in nats."""
        log_probs = tf.nn.log_softmax(logits)
        tag = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
        return {"tag": tag, "log_prob": tf.reduce_max(log_probs, axis=-1)}

    def _losses(self, logits: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The sum of -log p(tag) over the words of each example, in nats, and their number, [b] each."""
        there = tf.cast(label >= 0, logits.dtype)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
        return tf.reduce_sum(losses * there, axis=1), tf.reduce_sum(there, axis=1)

    def _logits(
        self, batch: Examples, seed: Seeds | None = None, training: bool = False, watch: Watch | None = None
    ) -> tf.Tensor:
        return self.model(
            batch["tokens"],
            segments=batch["segments"],
            padding=batch["padding"],
            seed=seed,
            training=training,
            watch=watch,
            segment_len=self.segment_len,
        )

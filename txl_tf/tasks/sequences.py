"""The parts that tasks share whose examples are sequences, each with outputs of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txl_tf.tasks.base import FineTuning

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class SequenceTask(FineTuning):
    """A task with C outputs for a sequence; by default softmax over C classes, label int [b]."""

    head = "xlnet_with_logits/head/"

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.xlnet.with_head import XLNetWithLogits

        return XLNetWithLogits(settings)

    def logits(self, model: Any, batch: dict[str, tf.Tensor], config: Any, **options: Any) -> tf.Tensor:
        """Outputs for sequences or tokens; longer texts than tgt_len are read in segments of it."""
        given = {name: batch[name] for name in ("segments", "padding")}
        return model(batch["tokens"], **given, **options, segment_len=config.data.tgt_len)

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, C]."""
        import tensorflow as tf

        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)

    def outputs(self, model: Any, batch: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        logits = self.logits(model, batch, config)
        found = self.predictions(logits, config)
        if "label" in batch:
            losses = self.losses(logits, batch)
            found["loss"] = losses / tf.maximum(self.targets(batch, tf.ones_like(losses)), 1)
        return found

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """log_probs [b, C], in nats."""
        import tensorflow as tf

        return {"log_probs": tf.nn.log_softmax(logits)}

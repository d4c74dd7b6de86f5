"""Multiple choice: which of an example's sequences is the right one."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.models.xlnet.head_config import XLNetHeadRunConfig
from txl_tf.objectives.classification import Classification


class MultipleChoice(Classification):
    """Softmax over the n sequences of an example, from one logit for each; label: int [b]."""

    @classmethod
    def shape(cls, config: XLNetHeadRunConfig, lanes: int) -> list[int]:
        """The shape of a batch's tokens: [b, 4, T], as RACE has four options."""
        return [lanes, 4, config.data.tgt_len]

    def losses(self, logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, n, 1]."""
        return super().losses(logits[..., 0], label)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """log_probs [b, n], in nats."""
        return super().predictions(logits[..., 0])

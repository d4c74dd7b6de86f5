"""Dynamic loss scaling, for gradients in float16 (Micikevicius et al. 2018, arXiv 1710.03740)."""

from __future__ import annotations

import tensorflow as tf

FIRST, LEAST, LARGEST = 2.0**15, 1.0, 2.0**24
PATIENCE = 2000
"""Good steps in a row that double the scale."""


class LossScale:
    """A factor of the loss while it is differentiated, so that small gradients do not become 0 in float16.

    A step in which gradients overflow is skipped and halves the scale; PATIENCE good steps in a row double it. Other
    bad steps do not change it. Create it in the strategy's scope.

    scale: float32 variable.
    good_steps: int64 variable, good steps since the scale last changed.
    """

    def __init__(self) -> None:
        self.scale = tf.Variable(FIRST, dtype=tf.float32, trainable=False)
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)

    def factor(self, weight: tf.Tensor) -> tf.Tensor:
        """The factor of a sum of losses over targets, float32, given their `weight`.

        It includes the division by the weight: without that, gradients of a sum over thousands of targets would
        overflow at any useful scale.
        """
        return self.scale / tf.cast(tf.where(tf.equal(weight, 0), tf.ones_like(weight), weight), tf.float32)

    def overflowed(self, loss: tf.Tensor, norm: tf.Tensor) -> tf.Tensor:
        """Whether a step's gradients are not finite because of the scale: bool.

        Otherwise the step is bad: the loss is not finite either, or the scale is at its minimum.
        """
        return tf.math.is_finite(loss) & ~tf.math.is_finite(norm) & (self.scale > LEAST)

    def update(self, good: tf.Tensor, overflowed: tf.Tensor) -> None:
        """Changes the scale after a step; runs inside `strategy.run`."""
        count = self.good_steps + tf.cast(good, tf.int64)
        grows = count >= PATIENCE
        scale = tf.where(overflowed, self.scale / 2, tf.where(grows, self.scale * 2, self.scale))
        self.scale.assign(tf.clip_by_value(scale, LEAST, LARGEST))
        self.good_steps.assign(tf.where(overflowed | grows, tf.zeros_like(count), count))

    def by_path(self) -> dict[str, tf.Variable]:
        """The variables, for checkpoints."""
        return {"loss_scale": self.scale, "loss_scale_steps": self.good_steps}

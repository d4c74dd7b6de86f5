"""Adam under the paper's schedule: linear warmup, then a cosine to min_lr_ratio."""

import math

import keras
import tensorflow as tf


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of update `step` (from 0): linear to the peak, then half a cosine down (official tf/train.py).

    step < W:  peak * step / W
    else:      peak * (r + (1 - r) * (1 + cos(pi * (step - W) / (S - W))) / 2)

    with W warmup steps, S steps in all, r the final ratio.

    Args:
        config: a TrainConfig.
    """

    def __init__(self, config):
        self.peak = config.learning_rate
        self.final_ratio = config.min_lr_ratio
        self.warmup_steps = config.warmup_steps
        self.train_steps = config.train_steps

    def __call__(self, step):
        """The rate, float32."""
        step = tf.cast(step, tf.float32)
        progress = (step - self.warmup_steps) / (self.train_steps - self.warmup_steps)
        cosine = (1 + tf.cos(math.pi * tf.clip_by_value(progress, 0.0, 1.0))) / 2
        decayed = self.final_ratio + (1 - self.final_ratio) * cosine
        warmup = step / max(self.warmup_steps, 1)
        return self.peak * tf.where(step < self.warmup_steps, warmup, decayed)

    def get_config(self):
        """The schedule's numbers."""
        return dict(vars(self))


class ReducedGradientsAdam(keras.optimizers.Adam):
    """Adam for gradients that are already summed over replicas.

    Keras sums gradients over replicas inside `apply`. Clipping by the global norm needs the sum before that, so the
    training step reduces them itself, and a second sum would multiply them by the replica count.
    """

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars


def make_optimizer(config, variables):
    """The optimizer of a TrainConfig, built for `variables`; call it in the strategy's scope.

    Unbuilt, Keras would create its slots inside `strategy.run`, which fails.
    """
    optimizer = ReducedGradientsAdam(learning_rate=WarmupCosine(config), epsilon=1e-8, name="adam")
    optimizer.build(variables)
    return optimizer

"""Learning-rate schedules: linear warmup, then cosine or linear decay to min_lr_ratio."""

import math
import typing

import keras
import tensorflow as tf

from txl_tf.settings.run import TrainConfig


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of update `step` (from 0): linear from 0 to the peak, then decay to a fraction of the peak.

    step < W:  peak * step / W
    else:      peak * (r + (1 - r) * remaining((step - W) / (S - W)))

    with W warmup steps, S steps in total, r the final ratio. Subclasses define `remaining`, which falls from 1 to 0.
    With average_lr_ratio = a, S is average_from_step, and from there on the rate is a * peak. Otherwise, if the run was
    extended, S is the smallest of its `ends` above the step, so that earlier steps keep their rates.
    """

    def __init__(self, config: TrainConfig):
        self.peak = config.learning_rate
        self.final_ratio = config.min_lr_ratio
        self.warmup_steps = config.warmup_steps
        self.ends = (config.average_from_step,) if config.average_lr_ratio else config.ends
        self.second_ratio = config.average_lr_ratio

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate, a float32 scalar."""
        step = tf.cast(step, tf.float32)
        total = tf.constant(self.ends[-1], tf.float32)
        for end in reversed(self.ends[:-1]):
            total = tf.where(step < end, float(end), total)
        progress = (step - self.warmup_steps) / (total - self.warmup_steps)
        remaining = self.remaining(tf.clip_by_value(progress, 0.0, 1.0))
        decayed = self.final_ratio + (1 - self.final_ratio) * remaining
        warmup = step / max(self.warmup_steps, 1)
        part = tf.where(step < self.warmup_steps, warmup, decayed)
        if self.second_ratio:
            part = tf.where(step < self.ends[-1], part, self.second_ratio)
        return self.peak * part

    def remaining(self, progress: tf.Tensor) -> tf.Tensor:
        """The part of the decay that remains: 1 at progress 0, and 0 at progress 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define `remaining`")

    def get_config(self) -> dict[str, typing.Any]:
        """The numbers that define the schedule."""
        return dict(vars(self))


class WarmupCosine(WarmupSchedule):
    """Decay by half a cosine (official Transformer-XL, tf/train.py)."""

    def remaining(self, progress: tf.Tensor) -> tf.Tensor:
        """(1 + cos(pi * progress)) / 2."""
        return (1 + tf.cos(math.pi * progress)) / 2


class WarmupLinear(WarmupSchedule):
    """Linear decay (official XLNet, model_utils.py, and the XLNet paper)."""

    def remaining(self, progress: tf.Tensor) -> tf.Tensor:
        """1 - progress."""
        return 1 - progress


_SCHEDULES = {"cosine": WarmupCosine, "linear": WarmupLinear}


def make_schedule(config: TrainConfig) -> WarmupSchedule:
    """The schedule of a TrainConfig, by its lr_schedule."""
    return _SCHEDULES[config.lr_schedule](config)

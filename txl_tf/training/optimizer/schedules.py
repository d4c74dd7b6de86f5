"""Learning-rate schedules: linear warmup, then cosine or linear decay to min_lr_ratio."""

import math
from collections.abc import Callable

import tensorflow as tf

from txl_tf.settings.run import TrainConfig

_REMAINING: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "cosine": lambda progress: (1 + tf.cos(math.pi * progress)) / 2,  # official Transformer-XL, tf/train.py
    "linear": lambda progress: 1 - progress,  # official XLNet, model_utils.py, and the XLNet paper
}
"""By lr_schedule the part of the decay that remains: 1 at progress 0, and 0 at progress 1."""


class Schedule:
    """Learning rate of update `step` (from 0): linear from 0 to the peak, then decay to a fraction of the peak.

    step < W:  peak * step / W
    else:      peak * (r + (1 - r) * remaining((step - W) / (S - W)))

    with W warmup steps, S steps in total, r the final ratio, and `remaining` by the config's lr_schedule.
    With average_lr_ratio = a, S is average_from_step, and from there on the rate is a * peak. Otherwise, if the run was
    extended, S is the smallest of its `ends` above the step, so that earlier steps keep their rates.
    """

    def __init__(self, config: TrainConfig):
        self.config = config
        self.ends = (config.average_from_step,) if config.average_lr_ratio else config.ends

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate, a float32 scalar."""
        config, warmup_steps = self.config, self.config.warmup_steps
        step = tf.cast(step, tf.float32)
        total = tf.constant(self.ends[-1], tf.float32)
        for end in reversed(self.ends[:-1]):
            total = tf.where(step < end, float(end), total)
        progress = (step - warmup_steps) / (total - warmup_steps)
        remaining = _REMAINING[config.lr_schedule](tf.clip_by_value(progress, 0.0, 1.0))
        decayed = config.min_lr_ratio + (1 - config.min_lr_ratio) * remaining
        warmup = step / max(warmup_steps, 1)
        part = tf.where(step < warmup_steps, warmup, decayed)
        if config.average_lr_ratio:
            part = tf.where(step < self.ends[-1], part, config.average_lr_ratio)
        return config.learning_rate * part

"""Averages of the weights over updates, which often evaluate better than the last weights; both are saved."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import tensorflow as tf

from txl_tf.settings.run import TrainConfig
from txl_tf.training.sharding import PartVariable, Sharding, in_replica


class WeightAverage:
    """The average of the weights over updates; has no variables if the config asks for no average.

    With w_i the weights after update i (from 1), after update t

        ema_decay = d:          sum_i d^(t-i) w_i / sum_i d^(t-i), without the initial weights
        average_from_step = S:  the mean of w_S .. w_t, the tail average of AWD-LSTM (Merity et al. 2017, section 2.2,
                                with S given, not triggered); before S: the current weights

    both as average += rate(t) * (w_t - average). Create it in the strategy's scope, with the optimizer's sharding.
    """

    def __init__(self, config: TrainConfig, sharding: Sharding):
        self.config = config
        self.sharding = sharding
        count = len(sharding.variables) if config.averages_weights else 0
        self.averages = [sharding.copy(i) for i in range(count)]
        parts = {i: average for i, average in enumerate(self.averages) if isinstance(average, PartVariable)}
        self._fill = sharding.filler(parts) if count else sharding.fill

    def update(self, updates: tf.Tensor, good: bool | tf.Tensor = True) -> None:
        """Adds the current weights, after int `updates`, to the average; runs inside `strategy.run`.

        If `good` is False the update was skipped, and the average does not change.
        """
        rate = tf.where(good, self._rate(tf.cast(updates, tf.float32)), 0.0)
        for i, average in enumerate(map(in_replica, self.averages)):
            weight = tf.convert_to_tensor(self.sharding.weight(i))
            average.assign_add(tf.cast(rate, weight.dtype) * (weight - average))

    def _rate(self, updates: tf.Tensor) -> tf.Tensor:
        decay, first = self.config.ema_decay, self.config.average_from_step
        if decay:
            return (1 - decay) / -tf.math.expm1(updates * math.log(decay))
        return 1 / tf.maximum(updates - first + 1, 1)

    def by_path(self) -> dict[str, tf.Variable | PartVariable]:
        """The averages by the Keras paths of their variables, for checkpoints."""
        paths = [variable.path for variable in self.sharding.variables]
        return {paths[i]: average for i, average in enumerate(self.averages)}

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """In this context the model's weights are the averages."""
        self._swap()
        try:
            self._fill()
            yield
        finally:
            self.sharding.empty()
            self._swap()

    def _swap(self) -> None:
        for i, average in enumerate(self.averages):
            if i not in self.sharding.cut:
                weight = tf.convert_to_tensor(self.sharding.variables[i])
                self.sharding.variables[i].assign(average)
                average.assign(weight)

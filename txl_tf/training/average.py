"""Averages of the weights over updates, which often evaluate better than the last weights; both are saved."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import keras
import tensorflow as tf

from txl_tf.config import TrainConfig


class WeightAverage:
    """The average of the weights over updates; has no variables if the config asks for no average.

    With w_i the weights after update i (from 1), after update t

        ema_decay = d:          sum_i d^(t-i) w_i / sum_i d^(t-i), without the initial weights
        average_from_step = S:  the mean of w_S .. w_t, the tail average of AWD-LSTM (Merity et al. 2017, section 2.2,
                                with S given, not triggered); before S: the current weights

    both as average += rate(t) * (w_t - average).

    Args:
        config: a TrainConfig.
        variables: the model's trainable Keras variables. Create it in the strategy's scope.
    """

    def __init__(self, config: TrainConfig, variables: list[keras.Variable]):
        self.config = config
        self.variables = variables if config.averages_weights else []
        # No aggregation: each replica updates its own copy. The copies stay equal, since the weights do.
        self.averages = [tf.Variable(variable, trainable=False) for variable in self.variables]

    def update(self, updates: tf.Tensor, good: bool | tf.Tensor = True) -> None:
        """Adds the weights after update number `updates`, int, to the average; runs inside `strategy.run`.

        If not `good`, bool, the update was skipped and the average does not change.
        """
        rate = tf.where(good, self._rate(tf.cast(updates, tf.float32)), 0.0)
        for average, variable in zip(self.averages, self.variables, strict=True):
            weights = tf.convert_to_tensor(variable)
            average.assign_add(tf.cast(rate, weights.dtype) * (weights - average))

    def _rate(self, updates: tf.Tensor) -> tf.Tensor:
        decay, first = self.config.ema_decay, self.config.average_from_step
        if decay:
            return (1 - decay) / -tf.math.expm1(updates * math.log(decay))
        return 1 / tf.maximum(updates - first + 1, 1)

    def by_path(self) -> dict[str, tf.Variable]:
        """The averages by the Keras paths of their variables, for checkpoints."""
        return {variable.path: average for variable, average in zip(self.variables, self.averages, strict=True)}

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """In this context the model's weights are the averages."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for average, variable in zip(self.averages, self.variables, strict=True):
            weights = tf.convert_to_tensor(variable)
            variable.assign(average)
            average.assign(weights)

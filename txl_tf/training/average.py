"""Averages of the weights over updates, which often evaluate better than the last weights; both are saved."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.config import TrainConfig
from txl_tf.training.sharding import PartVariable, Sharding, in_replica


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
        replicas: their number; None: that of the current strategy.
    """

    def __init__(self, config: TrainConfig, variables: Sequence[keras.Variable], replicas: int | None = None):
        self.config = config
        self.variables = list(variables) if config.averages_weights else []
        self.sharding = Sharding(config, self.variables, replicas)
        self.averages = [self.sharding.variable(i, each.dtype, each) for i, each in enumerate(self.variables)]

    def update(self, updates: tf.Tensor, good: bool | tf.Tensor = True, replica: Any = None) -> None:
        """Adds the weights after update number `updates`, int, to the average; runs inside `strategy.run`.

        Args:
            updates: their number, int.
            good: bool; if False the update was skipped, and the average does not change.
            replica: the replica's context; None: the current one.
        """
        replica = replica or tf.distribute.get_replica_context()
        rate = tf.where(good, self._rate(tf.cast(updates, tf.float32)), 0.0)
        for i, (average, variable) in enumerate(zip(self.averages, self.variables, strict=True)):
            weights = self.sharding.own(replica, i, tf.convert_to_tensor(variable.value))
            average = in_replica(average)
            average.assign_add(tf.cast(rate, weights.dtype) * (weights - average))

    def _rate(self, updates: tf.Tensor) -> tf.Tensor:
        decay, first = self.config.ema_decay, self.config.average_from_step
        if decay:
            return (1 - decay) / -tf.math.expm1(updates * math.log(decay))
        return 1 / tf.maximum(updates - first + 1, 1)

    def by_path(self) -> dict[str, tf.Variable | PartVariable]:
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
            variable.assign(average.whole() if isinstance(average, PartVariable) else average)
            average.assign(weights)

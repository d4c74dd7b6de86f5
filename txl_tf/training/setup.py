"""The beginning of a run: its settings, data, model, optimizer and devices, made together here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.devices import distribute, host_memory
from txl_tf.objectives.base import State
from txl_tf.runs.parameters import count_layers, freeze
from txl_tf.settings.run import Config, TrainConfig
from txl_tf.training.checkpoint import Checkpoints
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.step import HostLoop, Sums, make_host_loop


class TrainingSetup:
    """A run before its first step: its model, optimizer, average, objective and data.

    Args:
        make_objective: makes the Objective with its new model; called in the strategy's scope.
        data: has `batches(step, **hosts)`, the tf.data.Dataset from this step on; see `distribute_batches`.
        batch_size: the data's number of lanes.
        strategy: from `distribute.make_strategy`; None: no devices, for a step that is only lowered to a program.
        replicas: their number; None: the strategy's.
        check: called with the objective, before the model's weights take memory; may raise to refuse the run.
    """

    def __init__(
        self,
        settings: TrainConfig,
        make_objective: Callable[[], Any],
        data: Any,
        batch_size: int,
        strategy: tf.distribute.Strategy | None = None,
        replicas: int | None = None,
        check: Callable[[Any], None] | None = None,
    ):
        self.settings, self.data, self._batch_size = settings, data, batch_size
        self._strategy = strategy or tf.distribute.get_strategy()
        with self._strategy.scope():
            keras.utils.set_random_seed(settings.seed)
            with host_memory.values_at_the_end():
                self.objective = make_objective()
                self.model: keras.Model = self.objective.model
                freeze(self.model, settings.freeze)
                if check:
                    check(self.objective)
            variables = self.model.trainable_variables
            n_layer = count_layers(variable.path for variable in self.model.variables)
            self.optimizer = Adam(settings, variables, replicas, self.model.compute_dtype, n_layer)
            self.average = WeightAverage(settings, self.optimizer.sharding)

    @classmethod
    def of(
        cls, config: Config, data: Any, strategy: tf.distribute.Strategy | None = None, **given: Any
    ) -> TrainingSetup:
        """The beginning of a Config's run; data: of `Task.training_data`, or None; given: further arguments."""

        def make_objective() -> Any:
            return families.task_of(config).objective(families.make_model(config), config)

        given = {"batch_size": config.data.batch_size} | given
        return cls(config.train, make_objective, data, strategy=strategy, **given)

    def initial_state(self) -> State:
        """The state before the first step, as per-replica values."""
        return distribute.initial_state(self._strategy, self.objective.initial_state, self._batch_size)

    def first_sums(self) -> Sums:
        """The Sums before the first step."""
        penalties = (0.0,) * len(self.objective.penalties)
        return Sums(penalties=penalties, overflows=0.0 if self.optimizer.loss_scale else None)

    def checkpoints(self, model_dir: str, state: State) -> Checkpoints:
        """The Checkpoints of a run in model_dir. state: from `initial_state`."""
        kept = (self.model, self.optimizer, self.average, state, self.first_sums().stacked())
        return Checkpoints(model_dir, self._strategy, *kept, self.settings.keep_checkpoints)

    def batches(self, step: int) -> Iterator[Any]:
        """The batches from a step on, distributed."""
        return iter(distribute.distribute_batches(self._strategy, lambda **hosts: self.data.batches(step, **hosts)))

    def host_loop(self) -> HostLoop:
        """See `make_host_loop`."""
        return make_host_loop(self._strategy, self.objective, self.optimizer, self.settings, self.average)

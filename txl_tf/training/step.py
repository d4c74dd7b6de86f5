"""The training step, and the host loop that passes the state from step to step on the device."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.devices.distribute import compiles, run
from txl_tf.devices.host_memory import without_leftovers
from txl_tf.layers.dropout import step_seeds
from txl_tf.objectives.base import Batch, Objective, State
from txl_tf.ops import halved_squares
from txl_tf.ops.fewer import weight_gradients
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.optimizer.loss_scale import LossScale


class Sums(typing.NamedTuple):
    """Sums over steps, computed by the host loop, which passes them on as one float64 [n].

    loss: sum over the good steps of a log window, in nats per target.
    grad_norm: sum of the gradients' norms before clipping, over the same steps.
    skipped: number of the window's skipped steps, whose loss or gradient was not finite.
    skipped_in_a_row: number of steps skipped since the last good one, in this window and before it.
    penalties: sums as `loss`, of each of the objective's penalties.
    overflows: number of the window's steps whose gradients overflowed at the loss scale; None: there is no loss scale.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    skipped: float = 0.0
    skipped_in_a_row: float = 0.0
    penalties: tuple[float, ...] = ()
    overflows: float | None = None

    @classmethod
    def of(cls, values: Sequence[Any], objective: Objective) -> Sums:
        """The Sums of the values that `stacked` returns."""
        loss, norm, skipped, in_a_row, *rest = values
        n = len(objective.penalties)
        return cls(loss, norm, skipped, in_a_row, tuple(rest[:n]), rest[n] if len(rest) > n else None)

    def next_window(self) -> Sums:
        """The sums at the beginning of the next window."""
        return Sums(
            skipped_in_a_row=self.skipped_in_a_row,
            penalties=(0.0,) * len(self.penalties),
            overflows=None if self.overflows is None else 0.0,
        )

    def stacked(self) -> tf.Tensor:
        """The sums as one float64 [n], for the host loop."""
        values = (*self[:4], *self.penalties, *([] if self.overflows is None else [self.overflows]))
        return tf.stack([tf.convert_to_tensor(value, tf.float64) for value in values])

    def with_step(
        self, loss: tf.Tensor, norm: tf.Tensor, overflowed: tf.Tensor, penalties: Sequence[tf.Tensor]
    ) -> Sums:
        """The sums with one more step, given its loss, norm, whether it overflowed, and penalties, scalar tensors."""
        good = is_good(loss, norm)
        bad = tf.cast(~(good | overflowed), loss.dtype)
        return Sums(
            loss=self.loss + tf.where(good, loss, 0),
            grad_norm=self.grad_norm + tf.where(good, norm, 0),
            skipped=self.skipped + bad,
            skipped_in_a_row=(self.skipped_in_a_row + bad) * tf.cast(~good, loss.dtype),
            penalties=tuple(
                total + tf.where(good, new, 0) for total, new in zip(self.penalties, penalties, strict=True)
            ),
            overflows=None if self.overflows is None else self.overflows + tf.cast(overflowed, loss.dtype),
        )

    def means(self, steps: int) -> tuple[float, ...]:
        """Mean loss, gradient norm and penalties of a window of `steps` steps; NaN if no step was good."""
        good = steps - self.skipped - (self.overflows or 0)
        return tuple(total / good if good else math.nan for total in (self.loss, self.grad_norm, *self.penalties))


def is_good(loss: tf.Tensor, norm: tf.Tensor) -> tf.Tensor:
    """Whether loss and gradient norm are finite. Both are over all replicas, so every replica gets the same answer."""
    return tf.math.is_finite(loss) & tf.math.is_finite(norm)


class StepResult(typing.NamedTuple):
    """The result of `train_step`.

    loss: nats per target, the mean over the global batch.
    norm: of the gradients before clipping.
    state: this replica's state after the batch.
    overflowed: bool, whether the step was skipped only because of the loss scale.
    penalties: of the objective, per target, as `loss`.
    """

    loss: tf.Tensor
    norm: tf.Tensor
    state: State
    overflowed: tf.Tensor
    penalties: tuple[tf.Tensor, ...] = ()


def train_step(
    objective: Objective,
    optimizer: Adam,
    config: TrainConfig,
    seed: tf.Tensor,
    batch: Batch,
    state: State,
    average: WeightAverage | None = None,
    replica: Any = None,
) -> StepResult:
    """One update on one replica; runs inside `strategy.run`.

    Losses, weights and gradients are sums over targets. They are summed over replicas and divided once. So the loss is
    the mean over the targets of the whole batch, 0 if there are none, and the gradient of this mean is clipped.

    A step that is not good (`is_good`) is skipped, but counts as a step. Weights, moments and averages do not change.
    The initial state is returned, since the state may be the cause; only if the gradients overflowed at the loss scale,
    the new state is kept, since it is finite.

    All random numbers of a lane follow from the run's seed, the step and the number of the lane in the global batch.
    So they do not depend on the number of replicas, and are the same in a resumed run.

    Args:
        seed: int32 [2], of the run.
        batch, state: of this replica.
        average: a WeightAverage, which is updated.
        replica: the replica's context; None: the current one.
    """
    replica = replica or tf.distribute.get_replica_context()
    lanes = tf.nest.flatten(batch)[0].shape[0]
    first_lane = replica.replica_id_in_sync_group * lanes
    with optimizer.sharding.joined(replica):
        sums, new_state = loss_and_gradients(
            objective,
            optimizer.variables,
            config,
            (seed, optimizer.iterations, first_lane),
            batch,
            state,
            optimizer.loss_scale,
        )
    gradients, sums = optimizer.sharding.sum(replica, sums.gradients, sums._replace(gradients=[]))
    weight = tf.where(tf.equal(sums.weight, 0), tf.ones_like(sums.weight), sums.weight)  # nothing to learn: loss 0
    with tf.name_scope("global_norm"):
        squares = optimizer.sharding.sum_over_shards(replica, halved_squares(gradients))
        norm = tf.sqrt(2 * tf.reduce_sum(squares)) / weight
    loss = sums.total / weight
    good, overflowed = is_good(loss, norm), tf.constant(False)
    if optimizer.loss_scale:
        overflowed = optimizer.loss_scale.overflowed(loss, norm)
        optimizer.loss_scale.update(good, overflowed)
    clip = config.clip / tf.maximum(norm, config.clip) if config.clip else 1.0
    part = None if objective.usual_weight is None else weight / objective.usual_weight
    optimizer.apply(gradients, clip / weight, good, replica, part)
    if average is not None:
        average.update(optimizer.iterations, good)
    first_state = objective.initial_state(lanes)
    state = tf.nest.map_structure(lambda new, first: tf.where(good | overflowed, new, first), new_state, first_state)
    penalties = tuple(penalty / weight for penalty in sums.penalties)
    return StepResult(loss, norm, state, overflowed, penalties)


class LossSums(typing.NamedTuple):
    """Sums over the lanes that were read.

    total, weight, penalties: of the objective's Loss.
    gradients: of the total and the penalties, for each trainable variable.
    """

    total: tf.Tensor
    weight: tf.Tensor
    gradients: list[tf.Tensor]
    penalties: tuple[tf.Tensor, ...] = ()


def loss_and_gradients(
    objective: Objective,
    variables: Sequence[Any],
    config: TrainConfig,
    place: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    batch: Batch,
    state: State,
    loss_scale: LossScale | None = None,
) -> tuple[LossSums, State]:
    """The sums of these lanes, and their new state.

    With accumulate_steps = A the lanes are read in A groups, one after the other. The result is the same, but memory
    holds the activations of only one group at a time.

    Args:
        place: the run's seed int32 [2], the number of updates made, and the first lane's number in the global batch.
        batch, state: nests of [lanes, ..].
        loss_scale: applied while the loss is differentiated; the returned gradients are divided by it again.
    """
    run_seed, step, first_lane = place
    groups = config.accumulate_steps
    lanes = tf.nest.flatten(batch)[0].shape[0] // groups

    def read_group(i: int | tf.Tensor, batch: Batch, state: State) -> tuple[LossSums, State]:
        seeds = step_seeds(run_seed, step, first_lane + i * lanes + tf.range(lanes))
        with tf.GradientTape(watch_accessed_variables=False) as tape:  # frozen weights have no gradient
            values = [variable.value for variable in variables]
            tape.watch(values)
            loss = objective(batch, state, seeds, training=True)
            learned = functools.reduce(tf.add, loss.penalties, loss.total)
            factor = loss_scale and loss_scale.factor(loss.weight)
            learned = learned if factor is None else learned * factor
        gradients = weight_gradients([tf.convert_to_tensor(each) for each in tape.gradient(learned, values)])
        if factor is not None:  # in the dtype of the weights
            gradients = [gradient / tf.cast(factor, gradient.dtype) for gradient in gradients]
        dtype = variables[0].dtype
        total, weight = (tf.cast(value, dtype) for value in (loss.total, loss.weight))
        penalties = tuple(tf.cast(penalty, dtype) for penalty in loss.penalties)
        return LossSums(total, weight, gradients, penalties), loss.state

    if groups == 1:
        return read_group(0, batch, state)

    def cut(tensor: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tensor, [groups, tensor.shape[0] // groups, *tensor.shape[1:]])

    batch, state = tf.nest.map_structure(cut, (batch, state))
    old = tf.nest.flatten(state)

    def add_group(i: tf.Tensor, sums: LossSums, arrays: list[tf.TensorArray]) -> tuple:
        group_batch, group_state = tf.nest.map_structure(lambda tensor: tensor[i], (batch, state))
        more, new = read_group(i, group_batch, group_state)
        arrays = [array.write(i, tensor) for array, tensor in zip(arrays, tf.nest.flatten(new), strict=True)]
        return i + 1, tf.nest.map_structure(tf.add, sums, more), arrays

    dtype = variables[0].dtype
    zeros = LossSums(
        tf.zeros([], dtype),
        tf.zeros([], dtype),
        [tf.zeros(variable.shape, variable.dtype) for variable in variables],
        tuple(tf.zeros([], dtype) for _ in objective.penalties),
    )
    arrays = [tf.TensorArray(tensor.dtype, groups, element_shape=tensor.shape[1:]) for tensor in old]
    _, sums, arrays = tf.while_loop(lambda i, *_: i < groups, add_group, (0, zeros, arrays), maximum_iterations=groups)
    new = [tf.reshape(array.stack(), [-1, *tensor.shape[2:]]) for array, tensor in zip(arrays, old, strict=True)]
    return sums, tf.nest.pack_sequence_as(state, new)


HostLoop = Callable[..., tuple[State, tf.Tensor, tf.Tensor]]


def make_host_loop(
    strategy: tf.distribute.Strategy,
    objective: Objective,
    optimizer: Adam,
    config: TrainConfig,
    average: WeightAverage | None = None,
) -> HostLoop:
    """Returns a function that runs n steps in one call, with the state as per-replica values.

    It is loop(iterator, state, sums, n) -> (state, sums, bad). `sums` is a stacked Sums. `bad` is the loop's first
    skipped step, counted from 0, or -1 if there is none. n is an int tensor, so that other counts do not retrace.
    """
    seed = tf.constant([config.seed, 0])

    def replica_step(batch: Batch, state: State) -> StepResult:
        return train_step(objective, optimizer, config, seed, batch, state, average)

    compiled = config.jit_compile and compiles(strategy)
    if compiled:
        replica_step = tf.function(replica_step, jit_compile=True, autograph=False)

    def first_of(value: Any) -> tf.Tensor:
        return strategy.experimental_local_results(value)[0]  # the value is the same on every replica

    @tf.function(autograph=False)  # nothing here needs autograph, which slows tracing
    def host_loop(iterator: Any, state: State, sums: tf.Tensor, n: tf.Tensor) -> tuple[State, tf.Tensor, tf.Tensor]:
        def take_step(i: tf.Tensor, state: State, sums: tf.Tensor, bad: tf.Tensor) -> tuple:
            result = run(strategy, replica_step, args=(iterator.get_next(), state))
            whole = tf.nest.map_structure(first_of, result._replace(state=()))
            loss, norm, *penalties = (
                tf.cast(value, sums.dtype) for value in (whole.loss, whole.norm, *whole.penalties)
            )
            bad = tf.where((bad < 0) & ~is_good(loss, norm) & ~whole.overflowed, i, bad)
            summed = Sums.of(tf.unstack(sums), objective).with_step(loss, norm, whole.overflowed, penalties)
            sums = summed.stacked()
            return i + 1, result.state, sums, bad

        start = (tf.constant(0), state, sums, tf.constant(-1))
        return tf.while_loop(lambda i, *_: i < n, take_step, start)[1:]

    return without_leftovers(host_loop) if compiled else host_loop

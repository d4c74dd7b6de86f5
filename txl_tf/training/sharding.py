"""Weights and moments sharded over replicas: each replica keeps and updates a shard of every matrix.

This is stage 1 of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054), as Xu et al. 2020 (arXiv 2004.13336) use it on
TPUs: a replica gets the summed gradients only for its shards, updates these, and then every replica gathers the new
weights. Here the gather comes at the beginning of a step, in the dtype that the model computes in, so whole weights
exist only within steps. If they were variables, a step would read and write all of them once more at its end.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.devices import distribute
from txl_tf.devices.collectives import all_gather, own_part, part_axis, reduce_scatter
from txl_tf.models.given_weights import given_weights
from txl_tf.settings.run import TrainConfig


class PartVariable:
    """A variable of which every replica holds its own shard, zeros at first; create it in the strategy's scope.

    It is sharded along `axis` into one shard for each replica.

    shape, dtype: of the whole.
    variable: inside `strategy.run` this replica's shard.
    """

    def __init__(self, shape: Sequence[int], dtype: tf.DType | str, axis: int, replicas: int):
        self.strategy = tf.distribute.get_strategy()
        self.shape, self.dtype = tf.TensorShape(shape), tf.as_dtype(dtype)
        self.axis, self.replicas = axis, replicas
        part = [size // replicas if i == axis else size for i, size in enumerate(shape)]
        # ON_READ says that the replicas' values differ. TPUStrategy tells the compiler that mirrored variables are
        # equal.
        self.variable = tf.Variable(
            functools.partial(tf.zeros, part, dtype),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.NONE,
        )

    def whole(self) -> tf.Tensor:
        """The whole, gathered on the host; outside `strategy.run`. If there are several workers, all must call it."""
        return distribute.gather(self.strategy, self.variable, self.axis)

    def assign(self, value: tf.Tensor) -> None:
        """Gives every replica its shard of a whole, outside `strategy.run`."""
        with tf.device("CPU:0"):
            parts = tf.split(value, self.replicas, self.axis)
        copies = self.strategy.experimental_local_results(self.variable)
        for number, copy in zip(distribute.local_replicas(self.strategy), copies, strict=True):
            copy.assign(parts[number])


class Sharding:
    """Which shard of each weight a replica updates; with one replica, or without shard_optimizer, the whole weight.

    Between steps a sharded weight exists only as shards. Each step gathers them (`joined`). The model's own variables
    are used only outside steps: `fill` gives them the weights, and `empty` frees their memory. Make it in the
    strategy's scope; arguments as for `Adam`.

    cut: {number of a sharded weight: axis}; every replica updates all of the other weights.
    parts: {number of a sharded weight: PartVariable}.
    dtype: of the weights, of their summed gradients, and of values computed from these.
    sum_dtype: in which the gradients of sharded weights are summed over replicas.
    """

    def __init__(
        self,
        config: TrainConfig,
        variables: Sequence[keras.Variable],
        replicas: int | None = None,
        compute_dtype: str | None = None,
    ):
        self.strategy = tf.distribute.get_strategy()
        self.replicas = (replicas or self.strategy.num_replicas_in_sync) if config.shard_optimizer else 1
        self.variables = variables
        self.dtype = tf.as_dtype(variables[0].dtype)
        self.compute_dtype = compute_dtype or self.dtype
        self.sum_dtype = tf.bfloat16 if config.bfloat16_gradients else self.dtype
        self.shapes = [tuple(variable.shape) for variable in variables]
        axes = {i: part_axis(shape, self.replicas) for i, shape in enumerate(self.shapes)}
        # Biases are small, may have any rank, and may be shared by all layers.
        self.cut = {i: axis for i, axis in axes.items() if axis is not None and not variables[i].path.endswith("bias")}
        self.parts = {i: self.copy(i) for i in self.cut}
        self.fill = self.filler(self.parts)

    def fraction(self) -> float:
        """The fraction of the weights that are sharded."""
        sizes = [math.prod(shape) for shape in self.shapes]
        return sum(sizes[i] for i in self.cut) / sum(sizes)

    def variable(self, i: int, dtype: tf.DType | str) -> tf.Variable | PartVariable:
        """Zeros with the shape of weight number i, sharded if the weight is."""
        if i in self.cut:
            return PartVariable(self.shapes[i], dtype, self.cut[i], self.replicas)
        # No aggregation: each replica updates its own copy. The copies stay equal, since their inputs are equal.
        return tf.Variable(functools.partial(tf.zeros, self.shapes[i], dtype), trainable=False)

    def copy(self, i: int) -> tf.Variable | PartVariable:
        """A variable with the value of the model's variable number i, sharded if the weight is; before any step."""
        copy = self.variable(i, self.dtype)
        copy.assign(tf.convert_to_tensor(self.variables[i]))
        return copy

    def by_path(self) -> dict[str, PartVariable]:
        """The sharded weights, by their Keras paths, for checkpoints."""
        return {self.variables[i].path: part for i, part in self.parts.items()}

    def weight(self, i: int) -> tf.Variable:
        """Weight number i, or this replica's shard of it."""
        return self.parts[i].variable if i in self.cut else self.variables[i].value

    def joined(self, replica: Any) -> contextlib.AbstractContextManager[None]:
        """In this context the model computes with the gathered weights, inside `strategy.run`.

        Models read matrices only in their compute dtype, so the shards are sent in it. The gradients with respect to
        the variables' values still have the dtype of the weights.
        """
        wholes = self._joined(replica, {i: self.parts[i].variable for i in self.cut}, self.compute_dtype)
        return given_weights((self.variables[i], whole) for i, whole in wholes.items())

    def _joined(self, replica: Any, parts: Mapping[int, Any], dtype: tf.DType | str) -> dict[int, tf.Tensor]:
        """Whole weights, rounded to `dtype`."""
        sent = [tf.cast(part, dtype) for part in parts.values()]
        wholes = all_gather(replica, sent, [self.cut[i] for i in parts])
        return {i: tf.cast(whole, self.dtype) for i, whole in zip(parts, wholes, strict=True)}

    def filler(self, parts: Mapping[int, PartVariable]) -> Callable[[], None]:
        """A function that gives the model's variables the values of `parts`, outside `strategy.run`."""
        variables = {i: part.variable for i, part in parts.items()}

        @tf.function(autograph=False)
        def wholes() -> Any:
            return self.strategy.run(lambda: self._joined(tf.distribute.get_replica_context(), variables, self.dtype))

        def fill() -> None:
            for i, whole in wholes().items() if variables else ():
                self._replace(i, self.strategy.experimental_local_results(whole))

        return fill

    def empty(self) -> None:
        """Frees the memory of the sharded weights' variables in the model until `fill`, outside `strategy.run`."""
        nothing = [tf.zeros([0], self.dtype)] * len(distribute.local_replicas(self.strategy))
        for i in self.cut:
            self._replace(i, nothing)

    def _replace(self, i: int, values: Sequence[tf.Tensor]) -> None:
        """Gives the model's variable number i a value on each of this process's replicas, of any shape."""
        copies = self.strategy.experimental_local_results(self.variables[i].value)
        for copy, value in zip(copies, values, strict=True):
            with tf.device(copy.device):  # not by `assign`, which allows no other shape
                tf.raw_ops.AssignVariableOp(resource=copy.handle, value=value, validate_shape=False)

    def own(self, replica: Any, i: int, tensor: tf.Tensor) -> tf.Tensor:
        """This replica's shard of a tensor with the shape of weight number i; the tensor if the weight is whole."""
        return own_part(replica, tensor, self.cut[i]) if i in self.cut else tensor

    def sum(self, replica: Any, gradients: Sequence[tf.Tensor], others: Any) -> tuple[list[tf.Tensor], Any]:
        """The sums over replicas of all weights' gradients, and of a nest of other tensors, in one exchange.

        For sharded weights, each replica gets only its shard of the summed gradient.
        """
        whole = [i for i in range(len(gradients)) if i not in self.cut]
        found, others = replica.all_reduce(tf.distribute.ReduceOp.SUM, ([gradients[i] for i in whole], others))
        sums = dict(zip(whole, found, strict=True))
        sent = [tf.cast(gradients[i], self.sum_dtype) for i in self.cut]
        for i, part in zip(self.cut, reduce_scatter(replica, sent, list(self.cut.values())), strict=True):
            sums[i] = tf.cast(part, self.dtype)
        return [sums[i] for i in range(len(gradients))], others

    def sum_over_shards(self, replica: Any, numbers: tf.Tensor) -> tf.Tensor:
        """The sums over replicas of numbers [V], one for each weight, that replicas computed from their shards."""
        if not self.cut:
            return numbers
        is_cut = tf.constant([i in self.cut for i in range(len(self.shapes))])
        first = tf.equal(replica.replica_id_in_sync_group, 0)  # weights that are not sharded count once
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(is_cut | first, numbers, 0))


def in_replica(variable: tf.Variable | PartVariable) -> tf.Variable:
    """Inside `strategy.run`, the variable that this replica reads and writes."""
    return variable.variable if isinstance(variable, PartVariable) else variable

"""The steps that training and evaluation run, traced and lowered to HLO without weights in memory.

A step's variables can be larger than this machine's memory, and a compiler needs only their shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager.polymorphic_function import compiler_ir

from txl_tf import families
from txl_tf.devices import host_memory
from txl_tf.inference.causal.draw_token import Choice
from txl_tf.inference.generation.generator import CHUNK, Generator
from txl_tf.ops import platform
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.settings.run import Config
from txl_tf.training.setup import TrainingSetup
from txl_tf.training.sharding import in_replica
from txl_tf.training.step import train_step


class Step(NamedTuple):
    """A lowered step: `hlo`, a serialized HloModuleProto, and {name: (shape, dtype)} of its parameters, in order."""

    hlo: bytes
    parameters: dict[str, tuple[list[int], str]]


def train(config: Config, batch_size: int, replicas: int = 1, target: str = "tpu") -> Step:
    """The Step of training on one batch of `batch_size` lanes: a Config's `train_step` with all its settings.

    It is the step of one of `replicas`, with the all-reduces between them, on a "tpu" or a "gpu".
    """
    with host_memory.without_initial_values():
        begun = TrainingSetup.of(config, data=None, batch_size=batch_size, replicas=replicas)
    objective, optimizer, average = begun.objective, begun.optimizer, begun.average
    seed = np.array([config.train.seed, 0], np.int32)

    def step(batch, state):
        return train_step(
            objective, optimizer, config.train, tf.constant(seed), batch, state, average, _Replica(replicas)
        )

    variables = variables_by_path(begun.model)
    variables |= {f"adam/{path}": in_replica(value) for path, value in optimizer.by_path().items()}
    variables |= {path: in_replica(value) for path, value in optimizer.sharding.by_path().items()}
    variables |= {f"average/{path}": in_replica(value) for path, value in average.by_path().items()}
    batch = batch_spec(config, batch_size)
    return _lower(step, batch, _specs(objective.initial_state, batch_size), variables, target)


def evaluate(config: Config, batch_size: int, replicas: int = 1, target: str = "tpu") -> Step:
    """The Step of scoring one batch of `batch_size` lanes, as a Config's evaluation does.

    Replicas have nothing to do with each other in it.
    """
    del replicas
    task = families.task_of(config, families.Pretraining)
    with host_memory.without_initial_values():
        model = families.make_model(config)
        scorer = task.scorer(model, config)
    batch = task.batch_spec(config, batch_size, False)
    return _lower(scorer, batch, _specs(scorer.initial_state, batch_size), variables_by_path(model), target)


def predict(config: Config, batch_size: int, replicas: int = 1, target: str = "tpu") -> Step:
    """The Step of a fine-tuned model's outputs for one batch of `batch_size` examples without labels.

    Replicas have nothing to do with each other in it.
    """
    del replicas
    task = families.task_of(config, families.FineTuning)
    with host_memory.without_initial_values():
        model = families.make_model(config)
    known_later = ("label", "weight")
    batch = {name: spec for name, spec in batch_spec(config, batch_size).items() if name not in known_later}
    variables = variables_by_path(model)
    return _lower(lambda batch, state: (task.outputs(model, batch, config), state), batch, (), variables, target)


def generate(config: Config, batch_size: int, replicas: int = 1, target: str = "tpu") -> Step:
    """The Step of CHUNK tokens of `batch_size` texts: each is read, if it is given, or the most likely one is chosen.

    It has a loop over the tokens, whose length compilers do not always find. Replicas have nothing to do with each
    other in it.
    """
    del replicas
    with host_memory.without_initial_values(), platform.traced_for(target):
        model = families.make_model(config)
        generator = Generator(model, config.for_evaluation()[1])
        draft = _specs(generator.begin, batch_size)

    def step(given, draft):
        choice = Choice.of([0] * batch_size, temperature=0.0)  # constants, so that nothing is sorted
        return generator.decode(draft, given, tf.constant(CHUNK), choice)

    given = tf.TensorSpec([batch_size, CHUNK], tf.int32)
    return _lower(step, given, draft, variables_by_path(model), target)


def batch_spec(config: Config, batch_size: int) -> Any:
    """The TensorSpecs, in a nest, of a batch to train on; a fine-tuned model is a classifier."""
    task: Any = families.task_of(config)
    if isinstance(task, families.Pretraining):
        return task.batch_spec(config, batch_size, True)
    about = {"label": tf.TensorSpec([batch_size], tf.int32), "weight": tf.TensorSpec([batch_size], tf.float32)}
    return task.row_specs(config.data.tgt_len, batch_size) | about


class _Replica(NamedTuple):
    """The replica context that `train_step` needs, in the HLO operations that TPUStrategy's becomes."""

    num_replicas_in_sync: int

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor | int:
        return tf.cast(gen_xla_ops.xla_replica_id(), tf.int32) if self.num_replicas_in_sync > 1 else 0

    def all_reduce(self, reduce_op: tf.distribute.ReduceOp, values: Any) -> Any:
        assert reduce_op == tf.distribute.ReduceOp.SUM
        if self.num_replicas_in_sync == 1:
            return values
        everyone = [list(range(self.num_replicas_in_sync))]
        return tf.nest.map_structure(
            lambda value: gen_xla_ops.xla_all_reduce(value, everyone, reduce_op="Add", mode="CrossReplica"), values
        )


def _specs(initial_state, batch_size):
    """The shapes of the tensors that `initial_state` would make."""
    state = tf.function(lambda: initial_state(batch_size)).get_concrete_function().structured_outputs
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), state)


def _lower(step: Callable, batch: Any, state: Any, variables: dict[str, tf.Variable], target: str) -> Step:
    def call(batch, state):
        return step(batch, state)

    with platform.traced_for(target):
        traced = tf.function(call, jit_compile=True, autograph=False).get_concrete_function(batch, state)
    inputs = tf.nest.flatten(traced.structured_input_signature)
    hlo = compiler_ir.from_concrete_function(traced, inputs)(stage="hlo_serialized")
    parts = {"batch": batch, "state": state}
    given = {f"{part}/{i}": spec for part, nest in parts.items() for i, spec in enumerate(tf.nest.flatten(nest))}
    captured = {id(variable.handle): (name, variable) for name, variable in variables.items()}
    read = {id(variable.handle): variable for variable in traced.variables}
    for i, tensor in enumerate(traced.captured_inputs):
        name, value = captured.get(id(tensor), (f"constant/{i}", read.get(id(tensor), tensor)))
        given[name] = value
    return Step(hlo, {name: (value.shape.as_list(), value.dtype.name) for name, value in given.items()})

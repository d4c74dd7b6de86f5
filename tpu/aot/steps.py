"""The steps that training and evaluation run, traced and lowered to HLO without weights in memory."""

import contextlib
from typing import NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager.polymorphic_function import compiler_ir
from tensorflow.python.ops import random_ops_util

from txl_tf.inference.evaluate import make_reader, score_step
from txl_tf.layers import platform
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.average import WeightAverage
from txl_tf.training.optimizer import make_optimizer
from txl_tf.training.step import train_step


class Step(NamedTuple):
    """A lowered step: `hlo`, a serialized HloModuleProto, and the names of its parameters, in order."""

    hlo: bytes
    parameters: list


def train(config, batch_size, replicas=1):
    """The Step of training one segment of `batch_size` lanes: a Config's `train_step` with all its settings.

    It is the step of one of `replicas`, with the all-reduces that join them.
    """
    with _weightless():
        model = TransformerXL(config.model)
        optimizer = make_optimizer(config.train, model.trainable_variables)
        average = WeightAverage(config.train, model.trainable_variables)
    seed = np.array([config.train.seed, 0], np.int32)

    def step(inputs, targets, mems):
        with mock.patch.object(tf.distribute, "get_replica_context", lambda: _Replica(replicas)):
            return train_step(model, optimizer, config.train, tf.constant(seed), inputs, targets, mems, average)

    named = {id(variable.value.handle): variable.path for variable in model.variables}
    named |= {id(value.handle): f"adam/{path}" for path, value in optimizer.by_path().items()}
    named |= {id(value.handle): f"average/{path}" for path, value in average.by_path().items()}
    return _lower(step, batch_size, config.data.tgt_len, _specs(model.initial_mems, batch_size), named)


def evaluate(config, batch_size, replicas=1):
    """The Step of scoring one segment of `batch_size` lanes: the `score_step` of a Config's evaluation.

    Replicas have nothing to do with each other in it.
    """
    del replicas
    evaluation, reach = config.for_evaluation()
    with _weightless():
        model = TransformerXL(config.model)
        initial_state, read = make_reader(model, reach, evaluation.tgt_len)

    def step(inputs, targets, state):
        return score_step(model, read, inputs, targets, state)

    named = {id(variable.value.handle): variable.path for variable in model.variables}
    return _lower(step, batch_size, evaluation.tgt_len, _specs(initial_state, batch_size), named)


class _Replica(NamedTuple):
    """What `train_step` asks of its replica context, in the operations that TPUStrategy's becomes in HLO."""

    num_replicas_in_sync: int

    @property
    def replica_id_in_sync_group(self):
        return tf.cast(gen_xla_ops.xla_replica_id(), tf.int32) if self.num_replicas_in_sync > 1 else 0

    def all_reduce(self, reduce_op, values):
        assert reduce_op == tf.distribute.ReduceOp.SUM
        if self.num_replicas_in_sync == 1:
            return values
        everyone = [list(range(self.num_replicas_in_sync))]
        return tf.nest.map_structure(
            lambda value: gen_xla_ops.xla_all_reduce(value, everyone, reduce_op="Add", mode="CrossReplica"), values
        )


def _specs(initial_state, batch_size):
    """The shapes of what `initial_state` would make."""
    state = tf.function(lambda: initial_state(batch_size)).get_concrete_function().structured_outputs
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), state)


def _lower(step, batch_size, tgt_len, state, named):
    tokens = tf.TensorSpec([batch_size, tgt_len], tf.int32)
    with _random_numbers_of_a_tpu(), mock.patch.object(platform, "on_tpu", lambda: True):
        traced = tf.function(step, jit_compile=True).get_concrete_function(tokens, tokens, state)
    inputs = tf.nest.flatten(traced.structured_input_signature)
    hlo = compiler_ir.from_concrete_function(traced, inputs)(stage="hlo_serialized")
    names = ["inputs", "targets"] + [f"state/{i}" for i in range(len(inputs) - 2)]
    names += [named.get(id(tensor), f"constant/{i}") for i, tensor in enumerate(traced.captured_inputs)]
    return Step(hlo, names)


@contextlib.contextmanager
def _weightless():
    """While this lasts, variables are made without running their initializers, and take no memory.

    A training step's variables can be larger than this machine's memory, and a compiler asks for their shapes alone.
    """

    def create(next_creator, **kwargs):
        initializer = kwargs["initial_value"]
        if callable(initializer):
            with tf.Graph().as_default():
                value = initializer()
            # Memory that nobody writes to is only promised, never taken.
            kwargs["initial_value"] = tf.raw_ops.Empty(shape=value.shape, dtype=value.dtype)
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create):
        yield


def _random_numbers_of_a_tpu():
    """While this lasts, seeds become the keys of random numbers as they do on a TPU: unchanged.

    The lowering here believes it is for a CPU, where each seed is first scrambled by a dozen small operations.
    """

    def key_and_counter(seed, alg):
        del alg
        return tf.reshape(tf.bitcast(tf.cast(seed, tf.uint32), tf.uint64), [1]), tf.zeros([2], tf.uint64)

    return mock.patch.object(random_ops_util, "_get_key_counter", key_and_counter)

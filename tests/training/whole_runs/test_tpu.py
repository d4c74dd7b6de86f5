"""Training on a TPU, traced by the real TPUStrategy without one."""

import collections
import dataclasses

import pytest
import replicas
import tensorflow as tf
from causal_runs import initial_mems, loss_and_gradients, make_host_loop
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from txl_tf.devices import distribute
from txl_tf.models.transformer_xl.config import TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.step import Sums

MODEL = TransformerXLConfig(
    vocab_size=64,
    n_layer=2,
    d_model=16,
    d_embed=16,
    n_head=2,
    d_head=8,
    d_inner=32,
    dropout=0.1,
    dropatt=0.1,
    mem_len=8,
    dtype="mixed_bfloat16",
)
CORES, B, T = 4, 8, 6
DYNAMIC = {"Where", "Unique", "UniqueV2", "UniqueWithCounts", "StringFormat", "PyFunc", "EagerPyFunc", "Assert"}
"""Ops whose results have a shape that depends on their input's values, or that a TPU does not have."""


def nodes(graph):
    return [node for function in graph.as_graph_def().library.function for node in function.node_def]


either_run = pytest.mark.parametrize(
    ("model_changes", "train_changes", "positions"),
    [
        ({}, {"average_from_step": 5}, "full"),
        (
            {"cutoffs": (10, 30), "div_val": 2, "mem_init": "empty", "remat": True, "same_length": True},
            {"accumulate_steps": 2, "ema_decay": 0.9, "bfloat16_moments": True}
            | {"weight_decay": 0.1, "layer_decay": 0.5, "lr_schedule": "linear"},
            "half",
        ),
        ({}, {"shard_optimizer": True, "ema_decay": 0.9}, "full"),
        ({}, {"shard_optimizer": True, "bfloat16_gradients": True}, "full"),
    ],
)


@either_run
def test_the_host_loop_traces_under_tpu_strategy(model_changes, train_changes, positions):
    config = TrainConfig(train_steps=10, **train_changes)
    with tf.Graph().as_default() as graph:
        strategy = replicas.tpu_cores(CORES)
        with strategy.scope():
            model = TransformerXL(dataclasses.replace(MODEL, **model_changes))
            optimizer = Adam(config, model.trainable_variables)
            average = WeightAverage(config, optimizer.sharding)

        class Batches:
            def get_next(self):
                return [strategy.run(lambda: tf.zeros([B // CORES, T], tf.int32)) for _ in range(2)]

        first_mems = initial_mems(strategy, model, B)
        host_loop = make_host_loop(strategy, model, optimizer, config, average, loss_positions=positions)
        mems, _ = host_loop(Batches(), first_mems, Sums().stacked(), tf.constant(3))
    for before, after in zip(tf.nest.flatten(first_mems), tf.nest.flatten(mems), strict=True):
        for tensor in (*before.values, *after.values):
            assert tensor.shape == [B // CORES, *([8, 16] if tensor.shape.rank == 3 else [])]
    traced, weights = nodes(graph), len(model.trainable_variables)
    ops = collections.Counter(node.op for node in traced)
    assert ops["TPUReplicateMetadata"] and not DYNAMIC & set(ops)
    cut = len(optimizer.sharding.cut)
    assert (cut > 0) == config.shard_optimizer
    assert ops["XlaReduceScatter"] == ops["XlaCallModule"] == cut
    sum_dtype = tf.bfloat16 if config.bfloat16_gradients else tf.float32
    assert {node.attr["T"].type for node in traced if node.op == "XlaReduceScatter"} <= {sum_dtype.as_datatype_enum}
    assert ops["CrossReplicaSum"] >= weights - cut + 1
    assert ops["ResourceApplyAdam"] == (0 if config.bfloat16_moments else weights)


@either_run
def test_loss_gradients_and_mems_are_lowered_for_a_tpu(model_changes, train_changes, positions):
    """By TensorFlow's TPU wheel, with its kernels for TPUs; it lowers no variables, so weights are constants here."""
    if distribute.has_xla():
        pytest.skip("needs TensorFlow's TPU wheel: make test-tpu")
    # Accumulation's loop would keep its weights as variables.
    config = TrainConfig(train_steps=10, **train_changes | {"accumulate_steps": 1})
    model = TransformerXL(dataclasses.replace(MODEL, **model_changes))
    arguments = [tf.zeros([B, T], tf.int32)] * 2 + tf.nest.flatten(model.initial_mems(B))

    @tf.function(autograph=False)
    def step(inputs, targets, *mems):
        mems = tf.nest.pack_sequence_as(model.initial_mems(B), mems)
        seed = tf.constant([1, 0])
        return loss_and_gradients(model, config, seed, inputs, targets, mems, loss_positions=positions)

    step = convert_variables_to_constants_v2(step.get_concrete_function(*arguments), lower_control_flow=False)
    compiled = tf.function(step, jit_compile=True, autograph=False)
    hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo", platform_name="TPU")
    assert hlo.startswith("HloModule") and " dot(" in hlo
    assert "<=" not in hlo, "a dimension that is known only as a bound"

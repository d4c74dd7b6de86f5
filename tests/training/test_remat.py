"""Recomputing layers in the backward pass, and one group of lanes after another: the same step in less memory."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from causal_runs import initial_mems, loss_and_gradients, make_host_loop
from tensorflow.compiler.xla.service import hlo_pb2

from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.same_run import refuse_other_settings
from txl_tf.training.step import Sums

CONFIG = TransformerXLConfig(
    vocab_size=32,
    n_layer=2,
    d_model=32,
    d_embed=32,
    n_head=2,
    d_head=16,
    d_inner=64,
    dropout=0.1,
    dropatt=0.1,
    mem_len=32,
)
B, T = 2, 32


def gradients_of(**changes):
    """A function (tokens, mems) -> loss and gradients of a model with dropout, and the model's first mems."""
    keras.utils.set_random_seed(1)
    model = TransformerXL(dataclasses.replace(CONFIG, **changes))

    def compute(tokens, mems):
        with tf.GradientTape() as tape:
            hidden, new_mems = model(tokens, mems, seed=tf.constant([1, 2]), training=True)
            loss = tf.reduce_mean(model.nll(hidden, tokens))
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients], new_mems

    return compute, model.initial_mems(B)


def temporary_bytes(function, *args):
    """What XLA sets aside for a compiled function's intermediate results, by its own account."""
    function = tf.function(function, jit_compile=True)
    serialized = function.experimental_get_compiler_ir(*args)(stage="optimized_hlo_proto_serialized")
    allocations = hlo_pb2.HloProto.FromString(serialized).buffer_assignment.buffer_allocations
    kept = ("is_entry_computation_parameter", "maybe_live_out", "is_constant", "is_thread_local")
    return sum(part.size for part in allocations if not any(getattr(part, name) for name in kept))


@pytest.fixture
def tokens(rng):
    return tf.constant(rng.integers(0, CONFIG.vocab_size, [B, T]), tf.int32)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"untie_r": True, "pre_lnorm": True, "dropout_type": "variational"},
        {"attn_type": "shaw"},
        {"attn_type": "vaswani"},
        {"attn_type": "alrfou"},
    ],
)
def test_loss_and_every_gradient_are_the_same(tokens, changes):
    (plain, mems), (remat, _) = gradients_of(**changes), gradients_of(remat=True, **changes)
    for want, got in zip(tf.nest.flatten(plain(tokens, mems)), tf.nest.flatten(remat(tokens, mems)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


@pytest.mark.xla
@pytest.mark.slow
def test_xla_needs_less_memory(tokens):
    (plain, mems), (remat, _) = gradients_of(), gradients_of(remat=True)
    assert temporary_bytes(remat, tokens, mems) < 0.8 * temporary_bytes(plain, tokens, mems)


@pytest.mark.xla
@pytest.mark.slow
def test_groups_of_lanes_need_less_memory(tokens):
    """One lane at a time instead of two."""
    keras.utils.set_random_seed(1)
    model = TransformerXL(CONFIG)

    def bytes_needed(groups):
        config = TrainConfig(accumulate_steps=groups)

        def compute(tokens, mems):
            return loss_and_gradients(model, config, tf.constant([1, 2]), tokens, tokens, mems)

        return temporary_bytes(compute, tokens, model.initial_mems(B))

    assert bytes_needed(2) < 0.7 * bytes_needed(1)


@pytest.mark.slow
def test_training_on_two_replicas_is_the_same(rng, two_replicas):
    tokens = rng.integers(0, CONFIG.vocab_size, [2, 4, 1, T]).astype(np.int32)
    config, weights = TrainConfig(train_steps=2, learning_rate=1e-2, jit_compile=False), []
    for remat in (False, True):
        with two_replicas.scope():
            keras.utils.set_random_seed(1)
            model = TransformerXL(dataclasses.replace(CONFIG, n_layer=1, remat=remat))
            optimizer = Adam(config, model.trainable_variables)
        dataset = tf.data.Dataset.from_tensor_slices(tuple(tokens))
        iterator = iter(distribute.distribute_batches(two_replicas, lambda dataset=dataset, **hosts: dataset))
        loop = make_host_loop(two_replicas, model, optimizer, config)
        before = model.get_weights()
        loop(iterator, initial_mems(two_replicas, model, B), Sums().stacked(), tf.constant(2))
        weights.append(model.get_weights())
    for start, plain, remat in zip(before, *weights, strict=True):
        np.testing.assert_array_equal(remat, plain)
        assert (plain != start).any()


def test_a_run_that_needs_memory_may_go_on_with_it():
    refuse_other_settings(
        TransformerXLRunConfig(CONFIG), TransformerXLRunConfig(dataclasses.replace(CONFIG, remat=True)), "runs/x"
    )
    with pytest.raises(InputError, match="dropout"):
        refuse_other_settings(
            TransformerXLRunConfig(CONFIG), TransformerXLRunConfig(dataclasses.replace(CONFIG, dropout=0.2)), "runs/x"
        )

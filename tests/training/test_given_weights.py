"""Weights that a step gives to a model instead of its variables: the same loss, and gradients of their own."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from aot import steps

from txl_tf import families
from txl_tf.layers.dropout import step_seeds
from txl_tf.models.given_weights import given_weights
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.settings.run import TrainConfig
from txl_tf.training.sharding import Sharding

SIZES = {"vocab_size": 40, "n_layer": 2, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "mem_len": 4}
DTYPE = {"dtype": "mixed_bfloat16", "dropout": 0.1, "dropatt": 0.1}
B, T = 2, 16


def transformer_xl(**model):
    tails = {"d_embed": 16, "cutoffs": (10, 20), "div_val": 2}
    return TransformerXLRunConfig().replace(model=SIZES | DTYPE | tails | model, data={"tgt_len": T})


def pretraining(**model):
    sizes = SIZES | DTYPE | {"reuse_len": 4} | model
    return XLNetRunConfig().replace(model=sizes, data={"tgt_len": T}, objective={"perm_size": 4, "num_predict": 2})


def classification(**model):
    sizes = SIZES | DTYPE | {"reuse_len": 0, "mem_len": 0, "n_class": 3} | model
    return families.tuned_configs()["classification"]().replace(model=sizes, data={"tgt_len": T, "batch_size": B})


def matrices(model):
    """What --shard_optimizer cuts for two replicas."""
    variables = model.trainable_variables
    return [variables[i] for i in Sharding(TrainConfig(shard_optimizer=True), variables, replicas=2).cut]


def some_batch(config, rng):
    def draw(spec):
        if spec.dtype.is_integer:
            return tf.constant(rng.integers(0, 3, spec.shape), spec.dtype)
        return tf.ones(spec.shape, spec.dtype) if spec.dtype.is_floating else tf.zeros(spec.shape, spec.dtype)

    return tf.nest.map_structure(draw, steps.batch_spec(config, B))


@pytest.fixture(params=[transformer_xl, pretraining, classification])
def make_config(request):
    return request.param


@functools.cache
def loss_and_gradients(make_config, given=None, **changes):
    """The loss, and {path: gradient with respect to the matrix or to what is given instead}."""
    config = make_config(**changes)
    keras.utils.set_random_seed(3)
    task = families.task_of(config)
    model = families.make_model(config)
    objective = task.objective(model, config)
    batch, state = some_batch(config, np.random.default_rng(0)), objective.initial_state(B)
    seeds = step_seeds(tf.constant([1, 0]), tf.constant(0), tf.range(B))
    weights = [(variable, given(variable.value)) for variable in matrices(model)] if given else []
    with tf.GradientTape() as tape, given_weights(weights):
        values = [variable.value for variable in matrices(model)]
        tape.watch(values)
        loss = objective(batch, state, seeds, training=True)
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss.total, values)]
    return loss.total, dict(zip((variable.path for variable in matrices(model)), gradients, strict=True))


def rounded(value):
    return tf.cast(tf.cast(value, tf.bfloat16), tf.float32)


def test_models_read_matrices_in_their_compute_dtype(make_config):
    """Rounded matrices give the same bits, so a step may send them as bfloat16."""
    loss, gradients = loss_and_gradients(make_config)
    same, others = loss_and_gradients(make_config, rounded)
    assert loss == same
    for path, gradient in gradients.items():
        np.testing.assert_array_equal(others[path], gradient, err_msg=path)


def test_given_weights_replace_the_variables_values(make_config):
    found, _ = loss_and_gradients(make_config, lambda value: 0.5 * value)
    assert abs(found - loss_and_gradients(make_config)[0]) > 1e-4


@pytest.mark.parametrize("make_config", [transformer_xl, pretraining])
def test_layers_that_are_computed_again_have_the_same_gradients(make_config):
    _, gradients = loss_and_gradients(make_config, rounded)
    _, others = loss_and_gradients(make_config, rounded, remat=True)
    assert all(np.any(gradient) for path, gradient in gradients.items() if "/layer_" in path)
    for path, gradient in gradients.items():
        np.testing.assert_array_equal(others[path], gradient, err_msg=path)

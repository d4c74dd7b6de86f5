"""Activation and slowness penalties against NumPy, in the objective and in a step."""

import dataclasses

import numpy as np
import pytest
import reference
import tensorflow as tf
from small_run import change

from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.objectives.causal_lm import CausalLM, activation_penalty, slowness_penalty
from txl_tf.training.step import loss_and_gradients

ALPHA, BETA = 0.2, 0.1


def expected(hidden, raw, counted):
    """alpha * mean h^2 and beta * mean (h_t - h_{t-1})^2, times the number of counted states."""
    activation = np.mean([hidden[b, t] ** 2 for b, t in np.argwhere(counted)])
    pairs = [(b, t) for b, t in np.argwhere(counted) if t > 0 and counted[b, t - 1]]
    slowness = np.mean([(raw[b, t] - raw[b, t - 1]) ** 2 for b, t in pairs])
    return ALPHA * activation * counted.sum(), BETA * slowness * counted.sum()


def test_sums_equal_numpy(rng):
    hidden, raw = rng.normal(size=[2, 3, 5, 4])
    counted = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
    found = ALPHA * activation_penalty(hidden, counted), BETA * slowness_penalty(raw, counted)
    np.testing.assert_allclose(found, expected(hidden, raw, counted), rtol=1e-12)
    assert float(slowness_penalty(raw[:, :1], counted[:, :1])) == 0  # no neighbours


@pytest.mark.parametrize("ext_len", [0, 3])
def test_what_is_learned_is_loss_and_penalties_and_only_the_loss_is_reported(rng, ext_len):
    model_config = dataclasses.replace(reference.SMALL, mem_len=0, ext_len=ext_len)
    model = TransformerXL(model_config)
    base = change(TransformerXLRunConfig(model_config), data={"tgt_len": 4, "batch_size": 3})
    config = change(base, objective={"activation_penalty": ALPHA, "slowness_penalty": BETA})
    tokens, targets = rng.integers(0, 11, [2, 3, 4]).astype(np.int32)
    targets[:, 3] = -1

    def run(config):
        objective = CausalLM(model, config)
        state = objective.initial_state(3)
        place = (tf.constant([1, 0]), tf.constant(0), tf.constant(0))
        sums, _ = loss_and_gradients(
            objective, model.trainable_variables, config.train, place, (tokens, targets), state
        )
        return sums

    plain, both = run(base), run(config)
    assert plain.penalties == () and float(plain.total) == float(both.total)
    read = dataclasses.replace(model_config.reach, ext_len=0)
    hidden = model(tokens, reach=read)[0]
    np.testing.assert_allclose(both.penalties, expected(hidden.numpy(), hidden.numpy(), targets >= 0), rtol=1e-9)
    grouped = run(change(config, train={"accumulate_steps": 3}))
    np.testing.assert_allclose(grouped.penalties, both.penalties, rtol=1e-9)

    # The gradient of the sum, by finite differences along one weight's elements.
    bias = model.decoder_layers[-1].feed_forward_norm.beta
    index = [id(variable) for variable in model.trainable_variables].index(id(bias))
    start, found = bias.numpy(), []
    for element in range(3):
        total = []
        for sign in (1, -1):
            moved = start.copy()
            moved[element] += sign * 1e-5
            bias.assign(moved)
            sums = run(config)
            total.append(float(sums.total) + sum(map(float, sums.penalties)))
        found.append((total[0] - total[1]) / 2e-5)
    bias.assign(start)
    np.testing.assert_allclose(both.gradients[index][:3], found, rtol=1e-5)

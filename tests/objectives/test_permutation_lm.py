import math

import keras
import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models

from txl_tf.config import CONTEXT, FUNCTIONAL, TARGET, PermutationLMConfig, TrainConfig
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.objectives.permutation_lm import PermutationBatch, PermutationLM, PermutationScorer, target_positions
from txl_tf.training.step import loss_and_gradients

B, T, P, M, R, V, D = 4, 8, 3, 5, 4, 11, 8
CONFIG = PermutationLMConfig(num_predict=P, perm_size=4)


def draw_batch(rng):
    rank = np.stack([np.concatenate([rng.permutation(R), rng.permutation(T - R)]) for _ in range(B)])
    kind = np.full([B, T], CONTEXT)
    kind[:, [0, 2, 5, 6]] = TARGET  # one more than there are predictions
    kind[1, :6] = CONTEXT  # and fewer
    kind[:, -1] = FUNCTIONAL
    arrays = [rng.integers(0, V, [B, T]), rng.integers(0, 3, [B, T]), rank, kind]
    integers = [tf.constant(array, tf.int32) for array in arrays]
    return PermutationBatch(*integers, tf.constant([False, True, False, True]))


def make_objective(rng, **settings):
    weights = reference.random_weights(rng, V, d_model=D)
    model = xlnet_models.make_model(weights, mem_len=M, reuse_len=R, **settings)
    return weights, PermutationLM(model, CONFIG)


def test_the_loss_is_the_reference_s_over_two_steps(rng):
    weights, objective = make_objective(rng)
    state = objective.initial_state(B)
    memory = [[np.zeros([M, D])] * 2 for _ in range(B)]
    for _ in range(2):
        batch = draw_batch(rng)
        loss = objective(batch, state, None, training=False)
        targets, nll, scored = PermutationScorer(objective.model, CONFIG)(batch, state)
        total = count = 0
        for b in range(B):
            tokens, segments, rank, kind = (part[b].numpy() for part in batch[:4])
            places = np.flatnonzero(kind == TARGET)[:P]
            direction = -1 if batch.backward[b] else 1
            streams = reference.xlnet(
                weights,
                tokens,
                memory[b],
                segments,
                reference.permutation_visible(rank, kind, R),
                targets=places,
                direction=direction,
                mem_len=M,
                reuse_len=R,
            )
            memory[b] = streams.memory
            own = -reference.log_probs(weights, streams.output)[np.arange(len(places)), tokens[places]]
            np.testing.assert_array_equal(targets[b], [*tokens[places], *[-1] * (P - len(places))])
            np.testing.assert_allclose(nll[b], [*own, *[0] * (P - len(places))], atol=1e-6)
            total, count = total + own.sum(), count + len(places)
        np.testing.assert_allclose(loss.total, total, rtol=1e-6)
        assert loss.weight == count == B * P - 2
        assert loss.finite.numpy().all() and len(loss.finite) == len(objective.activations)
        np.testing.assert_array_equal(loss.state.hidden, scored.hidden)
        state = loss.state


def test_which_positions_are_predicted():
    is_target = tf.constant([[0, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]) == 1
    assert target_positions(is_target, 2).numpy().tolist() == [[1, 3], [4, -1], [-1, -1], [0, 1]]


def test_a_fresh_model_knows_nothing(rng):
    keras.utils.set_random_seed(0)
    config = XLNetConfig(V, 2, D, 2, 4, 12, mem_len=M, reuse_len=R)
    objective = PermutationLM(XLNet(config), CONFIG)
    loss = objective(draw_batch(rng), objective.initial_state(B), None, training=False)
    assert float(loss.total / loss.weight) == pytest.approx(math.log(V), rel=0.05)


def test_without_bi_data_no_lane_runs_backward(rng):
    _, objective = make_objective(rng)
    batch, state = draw_batch(rng), objective.initial_state(B)
    forward = PermutationLM(objective.model, CONFIG, bi_data=False)(batch, state, None, False)
    same = objective(batch._replace(backward=tf.zeros([B], tf.bool)), state, None, False)
    np.testing.assert_allclose(forward.total, same.total, rtol=1e-12)
    assert abs(forward.total - objective(batch, state, None, False).total) > 1e-3


def test_groups_of_lanes_are_one_batch_with_dropout(rng):
    _, objective = make_objective(rng, dropout=0.3, dropatt=0.3)
    batch, state = draw_batch(rng), objective.initial_state(B)
    spec = PermutationBatch.spec(B, T)
    assert all(one.is_compatible_with(other) for one, other in zip(spec, batch, strict=True))
    variables = objective.model.trainable_variables

    def read(groups):
        config = TrainConfig(accumulate_steps=groups)
        seed = (tf.constant([1, 2]), tf.constant(7), tf.constant(0))
        return tf.function(lambda: loss_and_gradients(objective, variables, config, seed, batch, state))()

    (whole, new), (parts, same) = read(1), read(2)
    np.testing.assert_allclose(parts.total, whole.total, rtol=1e-12)
    assert parts.weight == whole.weight and not whole.bad.numpy().any()
    np.testing.assert_allclose(same.hidden, new.hidden, atol=1e-12)
    for one, other in zip(parts.gradients, whole.gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)

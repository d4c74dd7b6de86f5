import math
import types

import keras
import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models

from txl_tf.models.xlnet.config import XLNetConfig, XLNetEvalConfig
from txl_tf.models.xlnet.model import Text, XLNet
from txl_tf.objectives.permutation_lm import (
    PermutationBatch,
    PermutationLM,
    PermutationScorer,
    target_positions,
    target_ranks,
    target_runs,
    view_of,
)
from txl_tf.settings.pretraining import CONTEXT, FUNCTIONAL, TARGET, PairsConfig, PermutationLMConfig
from txl_tf.settings.run import TrainConfig
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
    return weights, PermutationLM(model, run_config())


def run_config(rule=CONFIG, bi_data=True, **evaluation):
    """The part of an XLNetRunConfig that an objective reads. A real one does not allow segments as short as these."""
    evaluation = XLNetEvalConfig(**evaluation)
    return types.SimpleNamespace(objective=rule, data=PairsConfig(B, T, bi_data), eval=evaluation)


def scorer_of(objective, rule=CONFIG, **evaluation):
    return PermutationScorer(objective.model, run_config(rule, **evaluation))


def test_the_loss_is_the_reference_s_over_two_steps(rng):
    weights, objective = make_objective(rng)
    state = objective.initial_state(B)
    memory = [[np.zeros([M, D])] * 2 for _ in range(B)]
    for _ in range(2):
        batch = draw_batch(rng)
        loss = objective(batch, state, None, training=False)
        targets, nll, scored, _ = scorer_of(objective)(batch, state)
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
        np.testing.assert_array_equal(loss.state.hidden, scored.hidden)
        state = loss.state


def test_which_positions_are_predicted():
    is_target = tf.constant([[0, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]) == 1
    assert target_positions(is_target, 2).numpy().tolist() == [[1, 3], [4, -1], [-1, -1], [0, 1]]


def test_ranks_and_runs_are_counted_one_by_one(rng):
    for batch in (draw_batch(rng) for _ in range(5)):
        kind = rng.choice([CONTEXT, FUNCTIONAL, TARGET, TARGET, TARGET], [B, T])
        ranks = target_ranks(batch.rank, tf.constant(kind == TARGET), R).numpy()
        runs = target_runs(tf.constant(kind == TARGET), R).numpy()
        for b, i in np.argwhere(kind == TARGET):
            seen = reference.permutation_visible(batch.rank[b].numpy(), kind[b], R)[i]
            part = slice(0, R) if i < R else slice(R, T)
            assert ranks[b, i] == np.count_nonzero((seen & (kind[b] == TARGET))[part])
            letters = "".join("x" if other == TARGET else "." for other in kind[b])
            before, after = letters[part][: i - part.start], letters[part][i - part.start :]
            assert runs[b, i] == len(before) - len(before.rstrip("x")) + len(after) - len(after.lstrip("x"))


def test_a_score_comes_with_the_bins_of_its_target(rng):
    """With more ranks than bins, and more adjacent targets than the longest span."""
    _, objective = make_objective(rng)
    batch = draw_batch(rng)
    kind = np.full([B, T], TARGET)
    kind[0, 1] = CONTEXT
    batch = batch._replace(kind=tf.constant(kind, tf.int32))
    config = PermutationLMConfig(num_predict=T - 1, perm_size=4, max_span=3)
    scorer = scorer_of(objective, config)
    assert scorer.breakdowns == {"rank": ("0", "1", "2", "3"), "span": ("1", "2", "3+")}
    scores = scorer(batch, scorer.initial_state(B))
    ranks, spans = (bins.numpy() for bins in scores.bins)
    want = [
        np.argsort(np.argsort(part[kind_part == TARGET]))
        for part, kind_part in ((batch.rank[0, :R].numpy(), kind[0, :R]), (batch.rank[0, R:].numpy(), kind[0, R:]))
    ]
    np.testing.assert_array_equal(ranks[0], np.concatenate(want))
    np.testing.assert_array_equal(spans[0], [0, 1, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(spans[1:], np.full([B - 1, T - 1], 2))
    many = scorer_of(objective, PermutationLMConfig(num_predict=21, perm_size=4)).breakdowns["rank"]
    assert many == ("0-1", "2", "3-4", "5", "6", "7-8", "9", "10")


@pytest.mark.parametrize("mem_len", [0, 9])
def test_memory_of_another_length_in_evaluation_is_as_of_a_model_with_that_length(mem_len, rng):
    weights, objective = make_objective(rng)
    other = PermutationLM(xlnet_models.make_model(weights, mem_len=mem_len, reuse_len=R), run_config())
    scorers = scorer_of(objective, mem_len=mem_len), scorer_of(other), scorer_of(objective)
    assert [scorer.settings["mem_len"] for scorer in scorers] == [mem_len, mem_len, M]
    states = [scorer.initial_state(B) for scorer in scorers]
    for _ in range(3):
        batch = draw_batch(rng)
        scores = [scorer(batch, state) for scorer, state in zip(scorers, states, strict=True)]
        states = [score.state for score in scores]
    np.testing.assert_array_equal(scores[0].nll, scores[1].nll)
    assert np.abs(scores[0].nll - scores[2].nll).max() > 1e-3


def test_the_view_of_attention_shows_both_streams_after_the_segments_before(rng):
    _, objective = make_objective(rng)
    model, batches = objective.model, [draw_batch(rng) for _ in range(3)]
    one_lane = [tf.nest.map_structure(lambda part: part[:1], batch) for batch in batches]
    segments = tf.nest.map_structure(lambda *parts: tf.stack(parts), *one_lane)
    view = view_of(segments, model, CONFIG)
    found = tf.function(view.probabilities)(segments)
    assert view.queries["content"].tolist() == list(range(T)) and view.queries["query"].tolist() == [0, 2, 5]
    rank, kind = batches[-1].rank[0].numpy(), batches[-1].kind[0].numpy()
    visible = reference.permutation_visible(rank, kind, R)
    for stream, hidden in (("content", ~(visible | np.eye(T, dtype=bool))), ("query", ~visible[[0, 2, 5]])):
        probabilities = found[stream].numpy()
        assert probabilities.shape == (2, 2, len(hidden), M + T)
        np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-9)
        assert not probabilities[..., M:][..., hidden].any()
        assert (probabilities[..., M:][..., ~hidden] > 0).all() and (probabilities[..., :M] > 0).all()

    mems = objective.initial_state(1)
    for batch in one_lane[:2]:
        mems = objective.scores(batch._replace(backward=tf.constant([False])), mems).state
    layers = []
    text = Text(one_lane[-1].segments, tf.constant(visible[None]))
    look = lambda _, probabilities: layers.append(probabilities[0])  # noqa: E731
    model(one_lane[-1].tokens, mems, text=text, targets=tf.constant([[0, 2, 5]]), look=look)
    for layer, probabilities in enumerate(layers):
        np.testing.assert_allclose(found["content"][layer], probabilities[:, :T], atol=1e-12)
        np.testing.assert_allclose(found["query"][layer], probabilities[:, T:], atol=1e-12)


def test_a_fresh_model_knows_nothing(rng):
    keras.utils.set_random_seed(0)
    config = XLNetConfig(V, 2, D, 2, 4, 12, mem_len=M, reuse_len=R)
    objective = PermutationLM(XLNet(config), run_config())
    loss = objective(draw_batch(rng), objective.initial_state(B), None, training=False)
    assert float(loss.total / loss.weight) == pytest.approx(math.log(V), rel=0.05)


def test_without_bi_data_no_lane_runs_backward(rng):
    _, objective = make_objective(rng)
    batch, state = draw_batch(rng), objective.initial_state(B)
    forward = PermutationLM(objective.model, run_config(bi_data=False))(batch, state, None, False)
    same = objective(batch._replace(backward=tf.zeros([B], tf.bool)), state, None, False)
    np.testing.assert_allclose(forward.total, same.total, rtol=1e-12)
    assert abs(forward.total - objective(batch, state, None, False).total) > 1e-3


@pytest.mark.slow
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
    assert parts.weight == whole.weight
    np.testing.assert_allclose(same.hidden, new.hidden, atol=1e-12)
    for one, other in zip(parts.gradients, whole.gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)

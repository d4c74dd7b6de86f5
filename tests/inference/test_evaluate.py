"""Evaluation against the model with mems, lane by lane."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from causal_runs import evaluate
from causal_runs import evaluator as make_evaluator
from random_model import CONFIG, random_model
from replicas import one_device, two_replicas

from txl_tf.inference.evaluate import make_score_steps
from txl_tf.models.transformer_xl.config import EvalConfig, Reach
from txl_tf.objectives.base import ScoredBatch


def run(corpus, reach=CONFIG.reach, replicas=1, batch_size=2, tgt_len=16, config=CONFIG, jit_compile=False, **options):
    """The result, and (ids, log-probabilities) of all scored tokens."""
    strategy = two_replicas() if replicas == 2 else one_device()
    with strategy.scope():
        model = random_model(config)
    recorded = []
    record = lambda *tokens: recorded.extend(tokens)  # noqa: E731
    evaluation = EvalConfig(batch_size=batch_size, tgt_len=tgt_len, jit_compile=jit_compile)
    return evaluate(model, corpus, "valid", evaluation, reach, strategy, record=record, **options), recorded


def lanes(corpus, count):
    """The split's tokens in lanes whose lengths differ by at most one."""
    tokens = []
    for shard in corpus.split("valid").passes[0]:
        for record in tf.data.TFRecordDataset(corpus.path(shard.file)):
            tokens.extend(np.frombuffer(record.numpy(), corpus.dtype))
    return [np.asarray(lane, np.int32) for lane in np.array_split(np.array(tokens), count)]


def reference(corpus, reach, predict):
    """Log-probabilities of each lane's tokens but the first, by predict(model, inputs [1, n], reach)."""
    model = random_model(CONFIG)
    scores = []
    for lane in lanes(corpus, 2):
        hidden = predict(model, lane[None, :-1], reach)
        scores.extend(-model.nll(hidden, lane[None, 1:])[0])
    return np.array(scores)


def with_mems(model, inputs, reach):
    step = tf.function(lambda segment, mems: model(segment, mems, reach=reach), autograph=False)
    mems, hidden = model.initial_mems(1, reach), []
    for start in range(0, inputs.shape[1], 16):
        states, mems = step(tf.constant(inputs[:, start : start + 16]), mems)
        hidden.append(states)
    return tf.concat(hidden, axis=1)


def fresh_windows(model, inputs, reach):
    del reach
    windows = [inputs[:, :n] for n in range(1, 8)]  # shorter ones, where the text begins
    windows.append(np.lib.stride_tricks.sliding_window_view(inputs[0], 8))
    last = [model(window, reach=Reach(0, clamp_len=20))[0][:, -1] for window in windows]
    return tf.concat(last, axis=0)[None]


@pytest.mark.parametrize("reach", [CONFIG.reach, Reach(30, clamp_len=9, same_length=True, mem_init="empty")])
def test_every_token_is_scored_once_as_the_model_with_mems_does(corpus, reach):
    result, (ids, log_probs) = run(corpus, reach)
    np.testing.assert_array_equal(ids, np.concatenate([lane[1:] for lane in lanes(corpus, 2)]))
    np.testing.assert_allclose(log_probs, reference(corpus, reach, with_mems), rtol=0, atol=2e-4)
    assert result["loss"] == pytest.approx(-log_probs.astype(np.float64).mean(), abs=1e-9)
    assert result["tokens"] == len(ids) == corpus.split("valid").tokens - 2
    assert result["tokens_dropped"] == 0


def test_same_length_makes_the_result_independent_of_the_segment_length(corpus):
    reach = Reach(24, same_length=True)
    _, (_, one) = run(corpus, reach, tgt_len=16)
    _, (_, other) = run(corpus, reach, tgt_len=7)
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-4)


def test_the_batch_size_matters_only_where_a_lane_begins(corpus):
    """There a token has less context; each lane's first token is not scored. One of the two runs under XLA."""
    reach = Reach(24, same_length=True)
    one, (_, whole) = run(corpus, reach, batch_size=1, jit_compile=True)
    three, (_, parts) = run(corpus, reach, batch_size=3)
    assert (one["tokens"], three["tokens"]) == tuple(corpus.split("valid").tokens - lane_count for lane_count in (1, 3))
    start, begun = 0, 0
    for lane in lanes(corpus, 3):
        there = whole[start : start + len(lane) - 1]
        here = parts[begun : begun + len(lane) - 1]
        seen = CONFIG.n_layer * reach.mem_len  # how far back anything is seen, from layer to layer
        np.testing.assert_allclose(here[seen:], there[seen:], rtol=0, atol=2e-4)
        assert start == 0 or np.abs(here[:seen] - there[:seen]).max() > 1e-2
        start, begun = start + len(lane), begun + len(lane) - 1


def test_two_replicas_give_the_result_of_one(corpus):
    one, (ids, log_probs) = run(corpus, batch_size=4)
    two, (ids_2, log_probs_2) = run(corpus, batch_size=4, replicas=2)
    np.testing.assert_array_equal(ids, ids_2)
    np.testing.assert_allclose(log_probs, log_probs_2, rtol=0, atol=2e-5)
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-6)


def test_sliding_window_predicts_each_token_from_a_fresh_window(corpus):
    result, (_, log_probs) = run(corpus, sliding_window=8)
    expected = reference(corpus, CONFIG.reach, fresh_windows)
    np.testing.assert_allclose(log_probs, expected, rtol=0, atol=2e-4)
    assert result["sliding_window"] == 8


@pytest.mark.parametrize(("replicas", "settings"), [(1, {}), (1, {"attn_type": "shaw"}), (2, {})])
def test_an_evaluator_follows_the_weights_without_tracing_again(corpus, monkeypatch, replicas, settings):
    config = dataclasses.replace(CONFIG, **settings)
    strategy = two_replicas() if replicas == 2 else one_device()
    with strategy.scope():
        model = random_model(config)
    traces, nll = [], model.nll
    monkeypatch.setattr(model, "nll", lambda *args: traces.append(1) or nll(*args))
    arguments = (
        model,
        corpus,
        "valid",
        EvalConfig(batch_size=2, tgt_len=16, jit_compile=False),
        config.reach,
        strategy,
    )
    evaluator = make_evaluator(*arguments)
    before = evaluator()["loss"]
    traced = len(traces)
    assert traced > 0
    for variable in model.trainable_variables:
        variable.assign(variable * 0.9)
    after = evaluator()["loss"]
    assert len(traces) == traced
    assert after == evaluate(*arguments)["loss"] != before


@pytest.mark.parametrize("known", [True, False])
def test_bits_per_byte_follow_from_the_bytes_of_the_split(corpus, known):
    given = corpus if known else dataclasses.replace(corpus, texts={})
    result, _ = run(given)
    assert result["bpc"] == pytest.approx(result["loss"] / np.log(2))
    if not known:  # a corpus of an earlier version: nothing is guessed
        assert "bits_per_byte" not in result
        return
    size = corpus.texts["valid"]["bytes"]
    assert result["bits_per_byte"] == pytest.approx(result["bpc"] * corpus.splits["valid"].tokens / size)
    assert corpus.splits["valid"].tokens > size > 0  # blank lines end documents, and the texts have none


def test_a_token_that_is_not_a_character_has_no_bpc(corpus):
    result, _ = run(dataclasses.replace(corpus, unit="subword"))
    assert "bpc" not in result and result["bits_per_byte"] > 0


class Steps:
    """A scorer that counts: its state has the number of steps, and each target's nll is that number."""

    def __init__(self):
        self.settings, self.breakdowns = {}, {}

    def initial_state(self, lanes):
        return {"count": tf.zeros([lanes, 5000])}

    def __call__(self, batch, state):
        count = state["count"] + 1
        return ScoredBatch(batch, count[:, :3], {"count": count})


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=pytest.mark.xla), False])
def test_a_compiled_step_writes_its_state_where_the_last_one_was(compiled):
    def place(state):
        return np.frombuffer(memoryview(tf.convert_to_tensor(state["count"]))).ctypes.data

    scorer, batches = Steps(), tf.data.Dataset.from_tensors(tf.ones([2, 3], tf.int32)).repeat()
    score_steps = make_score_steps(one_device(), scorer, compiled)
    places, seen, state, iterator = set(), [], scorer.initial_state(2), iter(batches)
    for n in (1, 3, 4):
        _, nll, state, _ = score_steps(iterator, state, tf.constant(n))
        seen.extend(nll[:, 1, 2].tolist())
        places.add(place(state))
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not compiled or len(places) == 1
    _, nll, *_ = score_steps(iterator, scorer.initial_state(2), tf.constant(1))  # another evaluation
    assert nll[0, 0, 0] == 1

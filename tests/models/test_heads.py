"""Heads against tests/references/reference_xlnet.py, and the models that have them."""

import keras
import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.layers.dropout import Seeds
from txl_tf.models.heads import AnswerSpan, PlainSpan, Summary, SummaryLogits
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.head_config import XLNetAnswersConfig, XLNetLogitsConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.models.xlnet.with_head import XLNetWithAnswers, XLNetWithLogits
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.tasks.regression import XLNetRegressionConfig

B, T, D, C = 3, 6, 8, 3
SIZES = {"vocab_size": 11, "n_layer": 2, "d_model": D, "n_head": 2, "d_head": 4, "d_inner": 12, "dtype": "float64"}


def randomised(layer, rng, shape=(B, T, D)):
    """Builds a layer, gives it large random weights, and returns them by path below its name."""
    if not layer.built:
        layer.build(shape)
    for variable in layer.variables:
        variable.assign(0.5 * rng.normal(size=variable.shape) + ("gamma" in variable.path))
    return {variable.path.partition("/")[2]: variable.numpy() for variable in layer.variables}


def answer_weights(own):
    """An AnswerSpan's weights by the reference's names."""
    return {name.replace("_", "/", 1): array for name, array in own.items()}


@pytest.mark.parametrize("kind", ["last", "first", "mean"])
def test_logits_of_a_summary(rng, kind):
    layer = SummaryLogits(C, summary={"summary_type": kind}, dtype="float64", name="head")
    own, hidden = randomised(layer, rng), rng.normal(size=[B, T, D])
    weights = {name.replace("summary/projection", "summary"): array for name, array in own.items()}
    found = layer(tf.constant(hidden), tf.constant(rng.random([B, T]) < 0.3))
    wanted = [reference.summary_logits(weights, lane, kind) for lane in hidden]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_a_summary_without_projection_is_a_hidden_state(rng):
    hidden = rng.normal(size=[B, T, D])
    layer = Summary(use_proj=False, dtype="float64")
    np.testing.assert_array_equal(layer(tf.constant(hidden)), hidden[:, -1])
    assert not layer.weights


@pytest.mark.parametrize("padded", [False, True])
def test_summary_by_attention(rng, padded):
    """A learned query attends to all real tokens; no residual; a norm; then the projection."""
    layer = Summary(summary_type="attn", n_head=2, d_head=4, layer_norm_epsilon=1e-3, dtype="float64", name="summary")
    own, hidden = randomised(layer, rng), rng.normal(size=[B, T, D])
    padding = np.zeros([B, T], bool)
    padding[0, :2] = padding[1, -3:] = padded
    found = layer(tf.constant(hidden), tf.constant(padding) if padded else None)
    for lane, hides, result in zip(hidden, padding, found, strict=True):
        attended = np.zeros(D)
        for head in range(2):
            query, keys, values = (
                rows @ own[f"attention/{name}_kernel"][:, head]
                for rows, name in ((own["query"], "query"), (lane, "key"), (lane, "value"))
            )
            scores = np.where(hides, -np.inf, keys @ query / 2)
            attended += np.exp(reference.log_softmax(scores)) @ values @ own["attention/output_kernel"][head]
        summary = reference.layer_norm(attended, own["attention_norm/gamma"], own["attention_norm/beta"], 1e-3)
        wanted = np.tanh(summary @ own["projection/kernel"] + own["projection/bias"])
        np.testing.assert_allclose(result, wanted, atol=1e-12)


@pytest.fixture
def question(rng):
    """hidden, allowed, cls_index."""
    allowed = rng.random([B, T]) < 0.7
    allowed[:, -1] = True
    return rng.normal(size=[B, T, D]), allowed, np.array([T - 1, 2, T - 1])


def test_logits_of_an_answer(rng, question):
    hidden, allowed, cls_index = question
    layer = AnswerSpan(dtype="float64", name="answers")
    weights, start = answer_weights(randomised(layer, rng)), np.array([1, 0, 4])
    found = layer(*map(tf.constant, (hidden, allowed, cls_index, start)))
    for b in range(B):
        wanted = reference.start_logits(weights, hidden[b], allowed[b])
        np.testing.assert_allclose(found.start[b], wanted, atol=1e-12)
        wanted = reference.end_logits(weights, hidden[b], allowed[b], start[b])
        np.testing.assert_allclose(found.end[b], wanted, atol=1e-12)
        wanted = reference.impossible_logit(weights, hidden[b], allowed[b], cls_index[b])
        np.testing.assert_allclose(found.impossible[b], wanted, atol=1e-12)


def test_the_best_answers(rng, question):
    hidden, allowed, cls_index = question
    layer = AnswerSpan(dtype="float64", name="answers")
    weights = answer_weights(randomised(layer, rng))
    best = layer.best(*map(tf.constant, (hidden, allowed, cls_index)), n_starts=3, n_ends=2)
    for b in range(B):
        begin = reference.log_softmax(reference.start_logits(weights, hidden[b], allowed[b]))
        starts = np.argsort(-begin, kind="stable")[:3]
        np.testing.assert_array_equal(best.start[b], starts)
        np.testing.assert_allclose(best.start_log_prob[b], begin[starts], atol=1e-12)
        for s, start in enumerate(starts):
            ends = reference.log_softmax(reference.end_logits(weights, hidden[b], allowed[b], start))
            wanted = np.argsort(-ends, kind="stable")[:2]
            np.testing.assert_array_equal(best.end[b, s], wanted)
            np.testing.assert_allclose(best.end_log_prob[b, s], ends[wanted], atol=1e-12)
        wanted = reference.impossible_logit(weights, hidden[b], allowed[b], cls_index[b])
        np.testing.assert_allclose(best.impossible[b], wanted, atol=1e-12)
    assert layer.best(*map(tf.constant, (hidden, allowed, cls_index)), n_starts=9, n_ends=7).end.shape == (B, T, T)


def test_the_best_answers_of_independent_ends(rng, question):
    """By a search over all spans: an end is not before its start, and CLS goes only with itself."""
    hidden, allowed, cls_index = question
    allowed[np.arange(B), cls_index] = True
    layer = PlainSpan(dtype="float64", name="answers")
    own = randomised(layer, rng)
    best = layer.best(*map(tf.constant, (hidden, allowed, cls_index)), n_starts=3, n_ends=2)
    for b in range(B):
        logits = np.where(allowed[b][:, None], hidden[b] @ own["positions/kernel"] + own["positions/bias"], -1e30)
        starts, ends = map(reference.log_softmax, logits.T)
        places = [int(place) for place in np.flatnonzero(allowed[b])]
        spans = {
            start: [end for end in places if end >= start and (start == cls_index[b]) == (end == cls_index[b])]
            for start in places
        }
        most = {start: starts[start] + max(ends[own]) for start, own in spans.items() if own}
        wanted = sorted(most, key=lambda start, most=most: -most[start])[:3]
        assert best.start[b].numpy()[: len(wanted)].tolist() == wanted
        np.testing.assert_allclose(best.start_log_prob[b][: len(wanted)], starts[wanted], atol=1e-12)
        for s, start in enumerate(wanted):
            likely = sorted(spans[start], key=lambda end, ends=ends: -ends[end])[:2]
            assert best.end[b, s].numpy()[: len(likely)].tolist() == likely
            np.testing.assert_allclose(best.end_log_prob[b, s][: len(likely)], ends[likely], atol=1e-12)
            assert (best.end_log_prob[b, s][len(likely) :].numpy() < -1e29).all()
        none = np.exp(starts[cls_index[b]] + ends[cls_index[b]])
        np.testing.assert_allclose(1 / (1 + np.exp(-best.impossible[b])), none, rtol=1e-9)


def test_what_is_certain_has_a_finite_logit():
    hidden = tf.constant([[[0.0], [1e4]]])
    layer = PlainSpan(name="answers")
    layer.build(hidden.shape)
    layer.positions.kernel.assign([[1.0, 1.0]])
    for cls_index, sign in ((1, 1), (0, -1)):
        best = layer.best(hidden, tf.ones([1, 2], tf.bool), tf.constant([cls_index]), 2, 2)
        assert np.isfinite(best.impossible).all() and best.impossible[0] * sign > 15


def test_logits_are_in_the_dtype_of_the_weights(rng):
    """Under bfloat16 a softmax over them would lose what its float32 weights can tell."""
    hidden = tf.constant(rng.normal(size=[B, T, D]), tf.bfloat16)
    layer = SummaryLogits(C, summary={}, dtype="mixed_bfloat16")
    assert layer(hidden).dtype == tf.float32
    for kind in (AnswerSpan, PlainSpan):
        answers = kind(dtype="mixed_bfloat16")
        answers.build(hidden.shape)
        best = answers.best(hidden, tf.ones([B, T], tf.bool), tf.zeros([B], tf.int32), 2, 2)
        assert {part.dtype for part in best} == {tf.float32, tf.int32}


def test_dropout_follows_the_lanes_seed(rng):
    layer = SummaryLogits(C, summary={"dropout": 0.5}, dtype="float64")
    randomised(layer, rng)
    hidden = tf.tile(tf.constant(rng.normal(size=[1, T, D])), [3, 1, 1])
    found = layer(hidden, seed=tf.constant([[1, 2], [3, 4], [1, 2]]), training=True).numpy()
    np.testing.assert_array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[0], layer(hidden)[0])


def test_sequences_of_an_example_are_as_those_of_several(rng):
    model = XLNetWithLogits(XLNetLogitsConfig(**SIZES, n_class=2))
    randomised(model, rng)
    tokens, segments = tf.constant(rng.integers(0, 11, [2, 3, T])), tf.constant(rng.integers(0, 3, [2, 3, T]))
    padding = tf.constant(np.arange(T) < rng.integers(0, 3, [2, 3, 1]))
    found = model(tokens, segments=segments, padding=padding)
    wanted = model(
        *(tf.reshape(tokens, [6, T]),), segments=tf.reshape(segments, [6, T]), padding=tf.reshape(padding, [6, T])
    )
    assert found.shape == (2, 3, 2)
    np.testing.assert_array_equal(tf.reshape(found, [6, 2]), wanted)
    seeds = Seeds(tf.constant([1, 2]), tf.constant([[1, 2], [1, 2]]))
    dropped = model(tf.tile(tokens[:1, :1], [2, 3, 1]), seed=seeds, training=True).numpy()
    np.testing.assert_allclose(dropped[0], dropped[1], rtol=1e-12)  # equal lanes
    assert len(np.unique(dropped[0, :, 0])) == 3  # and a mask for each of an example's sequences


@pytest.mark.parametrize("kind", [XLNetWithLogits, XLNetWithAnswers])
def test_the_body_is_a_pretrained_models(kind):
    """By path and shape; what only the language model needs is not trained, and there is no softmax."""
    model, pretrained = kind(kind.settings(**SIZES)), XLNet(XLNetConfig(**SIZES))
    body, whole = variables_by_path(model.body), variables_by_path(pretrained)
    assert {name: variable.shape for name, variable in whole.items() if "softmax" not in name} == {
        name: variable.shape for name, variable in body.items()
    }
    assert "xlnet/mask_embedding" in body and "xlnet/mask_embedding" not in {w.path for w in model.trainable_variables}
    again = kind.from_config(model.get_config())
    assert set(variables_by_path(again)) == set(variables_by_path(model)) and again.config == model.config


def test_every_trained_weight_has_a_gradient(rng):
    logits = XLNetWithLogits(XLNetLogitsConfig(**SIZES, summary_type="attn"))
    answers = XLNetWithAnswers(XLNetAnswersConfig(**SIZES))
    tokens, segments = tf.constant(rng.integers(0, 11, [2, T])), tf.constant(rng.integers(0, 3, [2, T]))
    place = tf.constant([1, 2])
    for model, options in (
        (logits, {}),
        (answers, {"allowed": tf.ones([2, T], tf.bool), "cls_index": place, "start": place}),
    ):
        randomised(model, rng)
        with tf.GradientTape() as tape:
            found = model(tokens, segments=segments, seed=tf.constant([1, 2]), training=True, **options)
            loss = sum(tf.reduce_sum(part**2) for part in keras.tree.flatten(found))
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            assert gradient is not None and np.abs(tf.convert_to_tensor(gradient)).max() > 0, variable.path


def test_what_heads_refuse():
    with pytest.raises(ValueError, match="summary_type is 'cls'; choose from"):
        Summary(summary_type="cls")
    with pytest.raises(ValueError, match="n_class must be positive"):
        SummaryLogits(0, summary={})
    with pytest.raises(InputError, match="n_class=2 must be 1 for regression"):
        XLNetRegressionConfig(model=XLNetLogitsConfig(n_class=2))
    with pytest.raises(InputError, match="end_n_top=0 must be at least 1"):
        XLNetAnswersConfig(end_n_top=0)

"""Drawing tokens, and every transform against NumPy that asks of each token alone whether it stays."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.draw_token import Choice, sample, uniform

V, DRAWS = 30, 20_000


def distribution(log_prob, temperature, top_k, top_p):
    """The distribution to draw from, token by token in NumPy."""
    weight = np.exp(log_prob / temperature)
    weight /= weight.sum()
    order = np.argsort(-weight)
    if top_k:
        weight[order[top_k:]] = 0
        weight /= weight.sum()
    reached = 0.0
    for token in order:
        if reached >= top_p:
            weight[token] = 0
        reached += weight[token]
    return weight / weight.sum()


@functools.cache
def compiled(jit_compile):
    """`sample` in a graph, one for all settings."""
    return tf.function(sample, jit_compile=jit_compile)


def draw(log_prob, random, **settings):
    """One token for each row, of a text that has none yet."""
    seen = tf.zeros(tf.shape(log_prob), tf.bool)
    return sample(tf.constant(log_prob), seen, tf.constant(random), Choice.of([], **settings).values)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["graph", "XLA"])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 5, 1.0), (1.0, 0, 0.6), (1.5, 7, 0.8), (1.0, 1, 1.0), (1.0, 0, 1e-6)],
)
def test_evenly_spaced_numbers_draw_each_token_as_often_as_it_should(rng, temperature, top_k, top_p, jit_compile):
    log_prob = np.log(rng.dirichlet(np.full(V, 0.5))).astype(np.float32)
    evenly = (np.arange(DRAWS, dtype=np.float32) + 0.5) / DRAWS
    values = Choice.of([], temperature=temperature, top_k=top_k, top_p=top_p).values
    drawn = compiled(jit_compile)(tf.tile(log_prob[None], [DRAWS, 1]), tf.zeros([DRAWS, V], tf.bool), evenly, values)
    found = np.bincount(drawn, minlength=V) / DRAWS
    expected = distribution(log_prob.astype(np.float64), temperature, top_k, top_p)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 / DRAWS)
    assert not found[expected == 0].any()


def test_zero_temperature_takes_the_most_likely(rng):
    log_prob = rng.normal(size=[50, V]).astype(np.float32)
    drawn = draw(log_prob, rng.random(50, np.float32), temperature=0.0, top_k=3, top_p=0.5)
    np.testing.assert_array_equal(drawn, log_prob.argmax(-1))


def test_zero_temperature_takes_the_most_likely_that_the_other_settings_leave():
    log_prob = np.log(np.array([[0.9] + [0.02] * 5], np.float32))  # the entropy, 0.49, is nearer to -log 0.9 = 0.11
    assert draw(log_prob, np.array([0.5], np.float32), temperature=0.0, typical_p=0.1).numpy() == [0]
    log_prob = np.log(np.array([[0.4] + [0.05] * 12], np.float32))  # the entropy, 2.16, is nearer to -log 0.05 = 3.0
    assert draw(log_prob, np.array([0.5], np.float32), temperature=0.0, typical_p=0.1).numpy() == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_whose_probabilities_are_nan_gives_tokens_all_the_same(temperature):
    log_prob, random = np.full([2, V], np.nan, np.float32), np.array([0.1, 0.9], np.float32)
    drawn = draw(log_prob, random, temperature=temperature)
    assert drawn.numpy().tolist() == [0, 0]
    values = Choice.of([], temperature=temperature).values
    drawn = tf.function(sample)(log_prob, np.zeros([2, V], bool), random, values)  # which turns "not <" into ">="
    assert drawn.numpy().tolist() == [0, 0]


def test_the_extremes_of_the_random_numbers_hit_allowed_tokens():
    log_prob = np.log(np.array([[0, 0.5, 0, 0.5, 0]], np.float32) + 1e-30).repeat(2, 0)
    drawn = draw(log_prob, np.array([0, 1 - 2.0**-24], np.float32), temperature=1.0, top_k=2, top_p=1.0)
    assert drawn.numpy().tolist() == [1, 3]


def test_uniform_is_uniform_and_depends_on_seed_and_position_alone():
    positions = tf.range(50_000)
    seven = uniform(tf.fill([50_000], 7), positions).numpy()
    assert seven.min() >= 0 and seven.max() < 1
    counts = np.bincount((seven * 100).astype(int), minlength=100)
    assert ((counts - 500) ** 2 / 500).sum() < 150  # chi-square with 99 degrees of freedom: p = 0.0007
    eight = uniform(tf.fill([50_000], 8), positions).numpy()
    for other in (eight, seven[np.r_[1:50_000, 0]]):
        assert abs(np.corrcoef(seven, other)[0, 1]) < 0.02


@pytest.mark.xla
def test_uniform_is_the_same_under_xla():
    seeds, positions = tf.constant([8, 7, -1]), tf.constant([3, 49_999, 2])
    compiled = tf.function(uniform, jit_compile=True)
    np.testing.assert_array_equal(compiled(seeds, positions), uniform(seeds, positions))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_penalty": 0.9},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"typical_p": 0.0},
        {"typical_p": 1.1},
        {"top_k": 2**31},
        {"top_k": 2.0},
        {"top_k": True},
        {"temperature": 1e39},
        {"temperature": "hot"},
        {"top_q": 0.5},
        *({name: bad} for name in sampling_settings.names() for bad in (float("nan"), float("inf"), -float("inf"))),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))) as error:
        Choice.of([], **wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("setting", sampling_settings.SETTINGS, ids=sampling_settings.names())
def test_tensors_are_checked_as_numbers_are(setting):
    """The SavedModel's assertions refuse what Python refuses."""
    dtype = tf.int32 if setting.kind is int else tf.float32
    for value in (-1, 0, 1e-3, 1, 2, 1e30, float("nan"), float("inf"), -float("inf")):
        if setting.kind is int and value not in (-1, 0, 1, 2):
            continue
        try:
            setting.check(value)
            allowed = True
        except InputError:
            allowed = False
        assert bool(setting.allows(tf.constant(value, dtype))) == allowed, value


# The references: logits float64 [V], seen bool [V] -> logits, -inf for what is left out.


def softmax(logits):
    weight = np.exp(logits - logits.max())
    return weight / weight.sum()


def keep(logits, stays):
    return np.array([logit if stays(i) else -np.inf for i, logit in enumerate(logits)])


def repetition_penalty(logits, seen, penalty):
    return np.array([logit * penalty if has else logit for logit, has in zip(logits, seen, strict=True)])


def temperature(logits, seen, divisor):
    return logits / divisor if divisor else logits


def top_k(logits, seen, k):
    return keep(logits, lambda i: not k or sum(logits > logits[i]) < k)


def top_p(logits, seen, p):
    probability = softmax(logits)
    return keep(logits, lambda i: probability[logits > logits[i]].sum() < p or p == 1)


def min_p(logits, seen, p):
    probability = softmax(logits)
    return keep(logits, lambda i: probability[i] >= p * probability.max())


def typical_p(logits, seen, p):
    probability = softmax(logits)
    with np.errstate(divide="ignore"):
        information = -np.log(probability)
    entropy = sum(a * b for a, b in zip(probability, information, strict=True) if a)
    distance = abs(information - entropy)
    return keep(logits, lambda i: probability[distance < distance[i]].sum() < p or p == 1)


REFERENCES = (repetition_penalty, temperature, top_k, top_p, min_p, typical_p)
"""In the order in which they apply."""
VALUES = {
    "repetition_penalty": [1.0, 1.7],
    "temperature": [1.0, 0.0, 0.37, 2.3],
    "top_k": [0, 1, 4, 400],
    "top_p": [1.0, 1e-6, 0.413, 0.8713],
    "min_p": [0.0, 1.0, 0.0437, 0.3171],
    "typical_p": [1.0, 1e-6, 0.2319, 0.6137],
}


def distributions(rng):
    """Log-probabilities float32 [B, V]: smooth ones, ones with many ties, a flat one, nearly all on one token."""
    smooth = rng.dirichlet(np.full(V, 0.5), 20)
    tied = rng.integers(1, 6, [20, V]) ** 2.0
    peaked = np.full([1, V], 1e-6) + np.eye(V)[:1]
    weights = np.concatenate([smooth, tied, np.ones([1, V]), peaked])
    return np.log(weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def assert_alike(found, expected):
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.isfinite(found).any(-1).all()  # one token at least
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reference", REFERENCES, ids=sampling_settings.names())
def test_each_transform_is_what_its_paper_says(rng, reference):
    name = reference.__name__
    (setting,) = (setting for setting in sampling_settings.SETTINGS if setting.name == name)
    logits, seen = distributions(rng), rng.random([42, V]) < 0.3
    for value in VALUES[name]:
        tensor = Choice.of([], **{name: value}).values[name]
        found = setting.transform(tf.constant(logits), tf.constant(seen), tensor)
        expected = [reference(*row, value) for row in zip(logits.astype(np.float64), seen, strict=True)]
        assert_alike(found.numpy(), np.array(expected))
    assert VALUES[name][0] == setting.default


@functools.cache
def all_together():
    """Logits and seen tokens, and what the references make of them by values."""
    rng = np.random.default_rng(0)
    logits, seen, expected = distributions(rng), rng.random([42, V]) < 0.3, {}
    for values in itertools.product(*(VALUES[name][-2:] for name in sampling_settings.names())):
        changed = logits.astype(np.float64)
        for reference, value in zip(REFERENCES, values, strict=True):
            changed = np.array([reference(row, has, value) for row, has in zip(changed, seen, strict=True)])
        expected[values] = changed
    return logits, seen, expected


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["graph", "XLA"])
def test_together_they_apply_in_their_order(jit_compile):
    assert sampling_settings.names() == tuple(reference.__name__ for reference in REFERENCES)
    run = tf.function(sampling_settings.transform, jit_compile=jit_compile)
    logits, seen, expected = all_together()
    for values, wanted in expected.items():
        settings = dict(zip(sampling_settings.names(), values, strict=True))
        found = run(tf.constant(logits), tf.constant(seen), Choice.of([], **settings).values)
        assert_alike(found.numpy(), wanted)


def test_the_defaults_change_nothing_bit_by_bit(rng):
    logits = distributions(rng)
    found = sampling_settings.transform(tf.constant(logits), tf.ones([42, V], tf.bool), Choice.of([]).values)
    np.testing.assert_array_equal(found, logits)


def test_the_order_matters(rng):
    """Or the test of the order would prove nothing: the last transforms swapped leave other tokens."""
    logits = distributions(rng).astype(np.float64)
    one, other = ([f(g(row, None, b), None, a) for row in logits] for f, a, g, b in ORDERS)
    assert (np.isfinite(one) != np.isfinite(other)).any()


ORDERS = ((typical_p, 0.6137, min_p, 0.0437), (min_p, 0.0437, typical_p, 0.6137))


@pytest.mark.parametrize(
    "extreme",
    [
        {"top_p": 1e-45},
        {"typical_p": 1e-45},
        {"min_p": 1.0},
        {"temperature": 1e-38},
        {"temperature": 3e38},
        {"repetition_penalty": 3e38},
        {"repetition_penalty": 3e38, "temperature": 1e-30, "top_k": 1, "top_p": 1e-9, "min_p": 1.0, "typical_p": 1e-9},
    ],
    ids=str,
)
def test_at_least_one_token_remains(rng, extreme):
    logits = np.concatenate([distributions(rng), np.full([1, V], -1e30, np.float32)])
    found = sampling_settings.transform(
        tf.constant(logits), tf.ones([43, V], tf.bool), Choice.of([], **extreme).values
    ).numpy()
    assert np.isfinite(found.max(-1)).all() and not np.isnan(found).any()


def test_a_setting_costs_nothing_unless_it_is_on():
    """Every transform stands in a branch of its own, which runs where its setting is not the default."""
    run = tf.function(sampling_settings.transform, autograph=False)
    graph = run.get_concrete_function(
        tf.TensorSpec([2, V]), tf.TensorSpec([2, V], tf.bool), Choice.of([]).values
    ).graph.as_graph_def()
    ops = [node.op for node in graph.node]
    assert sum(op in ("If", "StatelessIf") for op in ops) == len(sampling_settings.SETTINGS)
    assert not {"Softmax", "LogSoftmax", "RealDiv", "SelectV2", "While", "StatelessWhile"} & set(ops)
    assert not {"TopKV2", "TopK", "Sort"} & set(ops)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["graph", "XLA"])
def test_the_largest_numbers_are_the_fewest_that_reach_the_target(rng, jit_compile):
    """With all kinds of float32: both signs, from the smallest normal number to infinity, and many equal ones."""
    exponents = rng.integers(-126, 128, [30, V])
    numbers = (np.sign(rng.normal(size=[30, V])) * 2.0**exponents).astype(np.float32)
    numbers[10:20] = rng.integers(-3, 4, [10, V])
    numbers[:, 0], numbers[:, 1] = np.inf, -np.inf
    weights = rng.integers(0, 5, [30, V]).astype(np.float32)
    run = tf.function(sampling_settings._largest, jit_compile=jit_compile)
    for target in (1.0, 7.0, 30.0, 1e3, np.inf):
        found = run(numbers, weights, tf.constant(target, tf.float32)).numpy()
        for row, weight, kept in zip(numbers, weights, found, strict=True):
            enough = [number for number in row if weight[row >= number].sum() >= target]
            np.testing.assert_array_equal(kept, row >= (max(enough) if enough else -np.inf))

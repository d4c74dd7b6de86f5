import numpy as np
import pytest
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.inference.sampling import Sampling, sample, uniform

V, DRAWS = 30, 20_000


def distribution(log_prob, temperature, top_k, top_p):
    """What should be drawn from, token by token in NumPy."""
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


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["graph", "XLA"])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 5, 1.0), (1.0, 0, 0.6), (1.5, 7, 0.8), (1.0, 1, 1.0), (1.0, 0, 1e-6)],
)
def test_evenly_spaced_numbers_draw_each_token_as_often_as_it_should(rng, temperature, top_k, top_p, jit_compile):
    log_prob = np.log(rng.dirichlet(np.full(V, 0.5))).astype(np.float32)
    evenly = (np.arange(DRAWS, dtype=np.float32) + 0.5) / DRAWS
    drawn = tf.function(sample, jit_compile=jit_compile)(
        tf.tile(log_prob[None], [DRAWS, 1]), evenly, *map(tf.constant, (temperature, top_k, top_p))
    )
    found = np.bincount(drawn, minlength=V) / DRAWS
    expected = distribution(log_prob.astype(np.float64), temperature, top_k, top_p)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 / DRAWS)
    assert not found[expected == 0].any()


def test_zero_temperature_takes_the_most_likely(rng):
    log_prob = rng.normal(size=[50, V]).astype(np.float32)
    drawn = sample(log_prob, rng.random(50, np.float32), 0.0, 3, 0.5)
    np.testing.assert_array_equal(drawn, log_prob.argmax(-1))


def test_the_extremes_of_the_random_numbers_hit_allowed_tokens():
    log_prob = np.log(np.array([[0, 0.5, 0, 0.5, 0]], np.float32) + 1e-30).repeat(2, 0)
    drawn = sample(log_prob, np.array([0, 1 - 2.0**-24], np.float32), 1.0, 2, 1.0)
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
    "wrong", [{"temperature": -0.1}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"repetition_penalty": 0.9}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Sampling(**wrong)

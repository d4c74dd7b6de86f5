"""Adam with moments in bfloat16; with moments in the weights' dtype it is in test_step.py."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from txl_tf.config import TrainConfig
from txl_tf.layers.dropout import random_bits
from txl_tf.training.optimizer import make_optimizer, stochastic_round

N = 4096
TRAIN = TrainConfig(learning_rate=1e-3, min_lr_ratio=1.0, bfloat16_moments=True)


def make(rng, config=TRAIN):
    """A variable of N weights and its Adam."""
    variable = keras.Variable(rng.normal(size=[N]), dtype="float32")
    return variable, make_optimizer(config, [variable])


@tf.function
def update(optimizer, gradient, steps, good=True):
    for _ in tf.range(steps):
        optimizer.apply([gradient], 1.0, tf.constant(good))


def as_numbers(variable):
    return tf.cast(variable, tf.float32).numpy()


def test_rounding_takes_a_neighbour_and_is_right_on_average(rng):
    x = np.concatenate([rng.normal(size=64), [-3e38, 1e-30, 0.0, 1.0, -1.5]]).astype(np.float32)
    bits = random_bits([2000, len(x)], tf.constant([1, 2])) & 0xFFFF
    rounded = as_numbers(stochastic_round(np.tile(x, [2000, 1]), bits)).astype(np.float64)
    low, high = rounded.min(0), rounded.max(0)
    exact = np.isin(x, [0.0, 1.0, -1.5])
    np.testing.assert_array_equal(low[exact], x[exact])
    np.testing.assert_array_equal(high[exact], x[exact])
    low, high, mean, x = (values[~exact] for values in (low, high, rounded.mean(0), x))
    spacing = 2.0 ** (np.floor(np.log2(np.abs(x))) - 7)  # bfloat16 has 8 digits
    assert (low < x).all() and (x < high).all()
    np.testing.assert_allclose(high - low, spacing)
    assert (np.abs(mean - x) < 5 * 0.5 * spacing / 2000**0.5).all()


def test_moments_follow_adams_own(rng):
    """Noisy gradients for a while: both moments near float32's, and unbiased; the weights' way is the same."""
    plain, plain_adam = make(rng, dataclasses.replace(TRAIN, bfloat16_moments=False))
    rounded, rounded_adam = make(rng)
    start = plain.numpy()
    rounded.assign(start)
    for _ in range(200):
        gradient = tf.constant(rng.normal(0.3, 1.0, size=[N]), tf.float32)
        for optimizer in (plain_adam, rounded_adam):
            update(optimizer, gradient, 1)
    for own, adams in (
        (rounded_adam.momenta, plain_adam.momenta),
        (rounded_adam.velocities, plain_adam.velocities),
    ):
        assert own[0].dtype == tf.bfloat16
        difference = as_numbers(own[0]) - as_numbers(adams[0])
        scale = np.sqrt(np.mean(as_numbers(adams[0]) ** 2))
        assert 0 < difference.std() < 0.04 * scale
        assert abs(difference.mean()) < 5 * difference.std() / N**0.5
    np.testing.assert_allclose(rounded.numpy() - start, plain.numpy() - start, rtol=0, atol=2e-3)
    assert np.abs(plain.numpy() - start).mean() > 0.05


def test_a_velocity_falls_when_gradients_stop(rng):
    """Rounded to the nearest it would stay where it is for good: a step takes a thousandth of it."""
    _, optimizer = make(rng)
    update(optimizer, tf.ones([N]), 1)
    before = as_numbers(optimizer.velocities[0]).mean()
    update(optimizer, tf.zeros([N]), 1000)
    np.testing.assert_allclose(as_numbers(optimizer.velocities[0]).mean(), before * 0.999**1000, rtol=0.01)


def test_a_skipped_step_changes_no_bit(rng):
    variable, optimizer = make(rng)
    update(optimizer, tf.constant(rng.normal(size=[N]), tf.float32), 3)
    kept = [variable.value, optimizer.momenta[0], optimizer.velocities[0]]
    before = [value.numpy().tobytes() for value in kept]
    update(optimizer, tf.fill([N], np.nan), 1, good=False)
    assert [value.numpy().tobytes() for value in kept] == before
    assert optimizer.iterations.numpy() == 4

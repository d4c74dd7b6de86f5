"""Randomness belongs to a lane: with dropout on, replicas and groups of lanes change nothing."""

import os

import lane_runs
import numpy as np
import processes
import pytest

from txl_tf.hashing import random_bits
from txl_tf.layers.dropout import Seeds, step_seeds


def assert_same(runs, others):
    assert runs.keys() == others.keys()
    for name in runs:
        np.testing.assert_allclose(others[name], runs[name], rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def one_replica():
    import replicas

    return lane_runs.run(replicas.one_device())


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_of_lanes(one_replica, one_device, groups):
    assert_same(one_replica, lane_runs.run(one_device, accumulate_steps=groups))


def test_two_replicas_each_with_groups(one_replica, two_replicas):
    assert_same(one_replica, lane_runs.run(two_replicas, accumulate_steps=2))


@pytest.mark.slow
def test_four_replicas(one_replica, tmp_path):
    path = tmp_path / "four.npz"
    done = processes.run([os.path.join(processes.PROGRAMS, "lane_runs.py"), path], env={"PYTHONPATH": processes.PATHS})
    assert done.returncode == 0, done.stderr
    with np.load(path) as four:
        assert_same(one_replica, dict(four))


@pytest.mark.slow
def test_variational_dropout_and_absolute_positions(one_device, two_replicas):
    """Masks that positions or whole rows share, too."""
    for model in ({"dropout_type": "variational"}, {"attn_type": "vaswani"}):
        assert_same(lane_runs.run(one_device, **model), lane_runs.run(two_replicas, accumulate_steps=2, **model))


def test_without_dropout_the_run_is_another(one_replica, one_device):
    """The comparisons above would notice masks that are not there."""
    plain = lane_runs.run(one_device, dropout=0.0, dropatt=0.0, dropemb=0.0)
    assert abs(plain["0"][0] - one_replica["0"][0]) > 1e-3


def test_seeds_of_lanes_and_steps_are_all_different():
    import tensorflow as tf

    seeds = [step_seeds(tf.constant([1, 0]), tf.constant(step), tf.range(40)) for step in range(20)]
    found = {tuple(seed) for one in seeds for seed in (one.shared.numpy(), *one.lanes.numpy())}
    assert len(found) == 20 * 41
    again = step_seeds(tf.constant([1, 0]), tf.constant(7), tf.constant([5]))
    np.testing.assert_array_equal(again.lanes[0], seeds[7].lanes[5])
    children = [child.lanes for child in Seeds.of(seeds[0]).split(3)]
    assert len({tuple(seed) for child in children for seed in child.numpy()}) == 120


def test_a_lanes_bits_are_those_of_its_own_seed():
    import tensorflow as tf

    seeds = tf.constant([[3, 4], [5, -6]])
    bits = random_bits([2, 7, 3], seeds)
    for lane in range(2):
        np.testing.assert_array_equal(bits[lane], tf.reshape(random_bits([21], seeds[lane]), [7, 3]))

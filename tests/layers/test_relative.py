import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.masks import visible_keys
from txl_tf.layers.relative import key_distances, relative_shift, sinusoids


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-11), ("float32", 3e-6)])
def test_sinusoids_are_the_papers_at_any_distance(dtype, error):
    distances = (-511, -3, 0, 1, 7, 500, 1_599, 6_400, 24_999)
    got = sinusoids(tf.constant(distances), 410, tf.dtypes.as_dtype(dtype))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, [reference.sinusoid(d, 410) for d in distances], rtol=0, atol=error)


def test_clamped_distances():
    assert key_distances(6, 3).numpy().tolist() == [3, 3, 3, 2, 1, 0]
    assert key_distances(3).numpy().tolist() == [2, 1, 0]


@pytest.mark.parametrize(("t_len", "m_len"), [(1, 0), (1, 5), (4, 0), (4, 7), (7, 4)])
def test_relative_shift_puts_each_distance_at_its_key(t_len, m_len):
    k_len = m_len + t_len
    # Scores whose value says their row and distance: row * 100 + distance.
    scores = 100 * np.arange(t_len)[:, None] + np.arange(k_len - 1, -1, -1)[None]
    shifted = relative_shift(tf.constant(scores[None, None])).numpy()[0, 0]
    for i in range(t_len):
        for j in range(m_len + i + 1):
            assert shifted[i, j] == 100 * i + (m_len + i - j)


@pytest.mark.parametrize("k_len", [4, 7, 9, 10])
def test_relative_shift_of_fewer_keys_is_the_same_cut_off(k_len):
    scores = np.arange(2 * 4 * 10).reshape([2, 4, 10])
    index = np.arange(k_len) + 3 - np.arange(4)[:, None]
    exists = index < 10
    shifted = relative_shift(tf.constant(scores), k_len).numpy()
    assert shifted.shape == (2, 4, k_len)
    wanted = np.take_along_axis(scores, np.where(exists, index, 0)[None], 2)
    np.testing.assert_array_equal(np.where(exists, shifted, 0), np.where(exists, wanted, 0))


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("k_len", [4, 7, 9, 10])
def test_the_gradient_of_the_shift_moves_rows_back(monkeypatch, rng, k_len, on_cpu):
    monkeypatch.setattr(platform, "on_cpu", lambda: on_cpu)
    scores = tf.constant(rng.normal(size=[2, 4, 10]))
    column = np.arange(k_len) + 3 - np.arange(4)[:, None]
    # Nothing for what moves in from the next row: the causal mask hides it.
    direction = rng.normal(size=[2, 4, k_len]) * (column < 10)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        shifted = relative_shift(scores, k_len)
    wanted = np.zeros([2, 4, 10])
    for lane, row, key in np.ndindex(direction.shape):
        if column[row, key] < 10:
            wanted[lane, row, column[row, key]] = direction[lane, row, key]
    np.testing.assert_array_equal(tape.gradient(shifted, scores, tf.constant(direction)), wanted)


@pytest.mark.parametrize("window", [None, 1, 4, 6])
@pytest.mark.parametrize("length", [None, 0, 2, 5])
def test_visible_keys_are_those_of_the_definition(window, length):
    valid = None if length is None else tf.constant([length, 5])
    got = np.broadcast_to(visible_keys(3, 5, window, valid), [2, 1, 3, 8])
    np.testing.assert_array_equal(got[0, 0], reference.visible(3, 5, window, length))
    np.testing.assert_array_equal(got[1, 0], reference.visible(3, 5, window))

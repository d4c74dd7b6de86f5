import numpy as np
import pytest
import tensorflow as tf

from txl_tf.ops.shift import relative_shift, relative_shift_moved_back


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


@pytest.mark.parametrize("shift", [relative_shift, relative_shift_moved_back])
@pytest.mark.parametrize("k_len", [4, 7, 9, 10])
def test_the_gradient_of_the_shift_moves_rows_back(rng, k_len, shift):
    scores = tf.constant(rng.normal(size=[2, 4, 10]))
    column = np.arange(k_len) + 3 - np.arange(4)[:, None]
    # Nothing for what moves in from the next row: the causal mask hides it.
    direction = rng.normal(size=[2, 4, k_len]) * (column < 10)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        shifted = shift(scores, k_len)
    wanted = np.zeros([2, 4, 10])
    for lane, row, key in np.ndindex(direction.shape):
        if column[row, key] < 10:
            wanted[lane, row, column[row, key]] = direction[lane, row, key]
    np.testing.assert_array_equal(tape.gradient(shifted, scores, tf.constant(direction)), wanted)

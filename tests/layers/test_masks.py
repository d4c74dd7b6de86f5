import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf

from txl_tf.layers.masks import permutation_visible, stream_masks

CONTEXT, FUNCTIONAL, TARGET = range(3)


def draw_orders(rng, lanes, t_len, reuse_len, perm_size):
    """Random ranks and kinds [B, T], each block of perm_size tokens permuted by itself."""
    rank, kind = np.zeros([lanes, t_len], np.int32), rng.integers(0, 3, [lanes, t_len])
    for b in range(lanes):
        for first, last in ((0, reuse_len), (reuse_len, t_len)):
            for start in range(first, last, perm_size):
                end = min(start + perm_size, last)
                rank[b, start:end] = start - first + rng.permutation(end - start)
    return rank, kind


@pytest.mark.parametrize(("t_len", "reuse_len", "perm_size"), [(12, 6, 6), (13, 6, 3), (9, 0, 9), (8, 3, 2)])
def test_what_is_visible_is_found_by_walking_through_the_order(rng, t_len, reuse_len, perm_size):
    rank, kind = draw_orders(rng, 20, t_len, reuse_len, perm_size)
    got = permutation_visible(tf.constant(rank), tf.constant(kind == CONTEXT), tf.constant(kind == TARGET), reuse_len)
    for b in range(20):
        np.testing.assert_array_equal(got[b], reference.permutation_visible(rank[b], kind[b], reuse_len))


def test_nothing_is_seen_twice_the_longest_order(rng):
    """All targets, of the largest ranks: nobody sees itself, and the second part sees the first."""
    rank = tf.constant([[2, 1, 0, 0, 1, 2]])
    got = permutation_visible(rank, tf.zeros([1, 6], tf.bool), tf.ones([1, 6], tf.bool), 3)[0].numpy()
    assert not got.diagonal().any() and got[3:, :3].all() and not got[:3, 3:].any()
    np.testing.assert_array_equal(got[:3, :3], [[0, 1, 1], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("m_len", [0, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_the_content_stream_also_sees_itself(rng, m_len, masked, padded):
    visible = rng.random([2, 4, 4]) < 0.5 if masked else None
    real = rng.random([2, 4]) < 0.7 if padded else None
    query, content = stream_masks(
        4,
        m_len,
        None if visible is None else tf.constant(visible),
        None if real is None else tf.constant(~real),
    )
    for b in range(2):
        want = reference.visible_keys(4, m_len, visible[b] if masked else None, real[b] if padded else None)
        for got, seen in zip((query, content), want, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(got, [2, 1, 4, m_len + 4])[b, 0], seen)


def test_slots_that_are_not_real_are_hidden():
    query, content = stream_masks(2, 3, ~tf.eye(2, dtype=tf.bool)[None], valid=tf.constant([1, 3]))
    assert query[0, 0].numpy().tolist() == [[False, False, True, False, True], [False, False, True, True, False]]
    assert content[0, 0].numpy().tolist() == [[False, False, True, True, True]] * 2
    assert content[1].numpy().all()

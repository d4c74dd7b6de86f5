import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.layers.masks import visible_keys
from txl_tf.layers.positions import key_distances, sinusoids


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-11), ("float32", 3e-6)])
def test_sinusoids_are_the_papers_at_any_distance(dtype, error):
    distances = (-511, -3, 0, 1, 7, 500, 1_599, 6_400, 24_999)
    got = sinusoids(tf.constant(distances), 410, tf.dtypes.as_dtype(dtype))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, [reference.sinusoid(d, 410) for d in distances], rtol=0, atol=error)


def test_clamped_distances():
    assert key_distances(6, 3).numpy().tolist() == [3, 3, 3, 2, 1, 0]
    assert key_distances(3).numpy().tolist() == [2, 1, 0]


@pytest.mark.parametrize("window", [None, 1, 4, 6])
@pytest.mark.parametrize("length", [None, 0, 2, 5])
def test_visible_keys_are_those_of_the_definition(window, length):
    valid = None if length is None else tf.constant([length, 5])
    got = np.broadcast_to(visible_keys(3, 5, window, valid), [2, 1, 3, 8])
    np.testing.assert_array_equal(got[0, 0], reference.visible(3, 5, window, length))
    np.testing.assert_array_equal(got[1, 0], reference.visible(3, 5, window))

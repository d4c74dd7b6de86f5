"""Matrices in int8, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.ops.int8 import quantized, round_table, round_variable

DRAW = np.random.default_rng(0)
MATRIX = DRAW.normal(size=[30, 7]) * 10.0 ** np.arange(-3, 4)  # channels of very different sizes
MATRIX[:, 3] = 0


def test_each_channel_is_rounded_to_its_own_127th():
    numbers, scale = (part.numpy() for part in quantized(tf.constant(MATRIX)))
    assert numbers.dtype == np.int8
    np.testing.assert_array_equal(np.abs(numbers).max(axis=0), [127, 127, 127, 0, 127, 127, 127])
    error = np.abs(numbers * scale - MATRIX)
    assert (error <= scale / 2 * (1 + 1e-12)).all() and error[:, 4].max() > scale[4] / 4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounding_again_changes_nothing(dtype):
    first, scale = quantized(tf.constant(MATRIX, dtype))
    again, scale_again = quantized(tf.cast(first, dtype) * scale)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(scale, scale_again, rtol=1e-6)


def test_a_graph_rounds_to_the_same_numbers():
    """TensorFlow replaces a division by a constant in a graph, which gave some scales another last bit."""
    matrix = tf.Variable(DRAW.normal(size=[8, 4096]).astype(np.float32))
    for eager, in_graph in zip(quantized(matrix), tf.function(lambda: quantized(matrix.read_value()))(), strict=True):
        np.testing.assert_array_equal(eager, in_graph)


def test_a_kernel_of_heads_has_a_scale_for_each_output():
    """An output projection [H, d, D] has D channels; its first two axes are inputs."""
    kernel = DRAW.normal(size=[3, 10, 7])
    variable = tf.Variable(kernel)
    round_variable(variable, inputs=2)
    numbers, scale = quantized(tf.constant(kernel.reshape(30, 7)))
    np.testing.assert_array_equal(variable.numpy().reshape(30, 7), numbers.numpy() * scale.numpy())


def test_each_row_of_a_table_has_a_scale():
    numbers, scale = quantized(tf.constant(MATRIX.T), inputs_axis=1)
    of_columns, of_column = quantized(tf.constant(MATRIX))
    np.testing.assert_array_equal(numbers.numpy().T, of_columns)
    np.testing.assert_array_equal(scale, of_column)
    variable = tf.Variable(MATRIX.T)
    round_table(variable)
    np.testing.assert_array_equal(variable.numpy().T, of_columns.numpy() * scale.numpy())

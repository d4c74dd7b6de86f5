"""Products of one row, against float64."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.inference.generation import few_rows
from txl_tf.inference.generation.few_rows import add_bias, multiply_rows, row_scores, row_values
from txl_tf.inference.generation.packed import LayerSlice, Stored, as_bits, stored, stored_alone
from txl_tf.ops.int8 import quantized

DRAW = np.random.default_rng(0)
MATRICES = DRAW.normal(size=[3, 48, 30])
ROW = DRAW.normal(size=[1, 1, 48])


def rounded(x, dtype):
    """x in a dtype: the tensor, and its numbers in float64."""
    x = tf.cast(x, dtype)
    return x, tf.cast(x, tf.float64).numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_row_times_the_matrix_of_a_layer(dtype):
    row, exact_row = rounded(ROW, dtype)
    matrices, exact = zip(*(rounded(matrix, dtype) for matrix in MATRICES), strict=True)
    found = multiply_rows(row, LayerSlice(stored(matrices), tf.constant(1)))
    assert found.dtype == row.dtype
    tolerance = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(tf.cast(found, tf.float64), exact_row @ exact[1], rtol=tolerance, atol=tolerance)


def test_a_row_times_the_matrix_of_a_layer_in_int8():
    matrices = [tf.constant(matrix, tf.float32) for matrix in MATRICES]
    numbers, scale = (part.numpy().astype("float64") for part in quantized(matrices[1]))
    kept = stored(matrices, int8=True)
    assert kept.numbers.dtype == tf.int8
    found = multiply_rows(tf.constant(ROW, tf.float32), LayerSlice(kept, tf.constant(1)))
    np.testing.assert_allclose(found, ROW @ (numbers * scale), rtol=0, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["eager", "XLA"])
@pytest.mark.parametrize("block", [few_rows.BLOCK, 10 * 48 * 2], ids=["at once", "in blocks"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int8"])
def test_rows_times_a_single_matrix(monkeypatch, dtype, block, jit_compile):
    """A table of 30 tokens, given as its rows; in int8 each token has a scale. Blocks have 2, 5, 10 and 20 tokens."""
    monkeypatch.setattr(few_rows, "BLOCK", block)
    rows, exact_rows = rounded(DRAW.normal(size=[2, 48]), "bfloat16" if dtype == "bfloat16" else "float64")
    table, exact = rounded(MATRICES[0].T, "float64" if dtype == "int8" else dtype)
    if dtype == "int8":
        numbers, scale = (part.numpy().astype("float64") for part in quantized(table, inputs_axis=1))
        exact = numbers * scale[:, None]
    kept = stored_alone(table, int8=dtype == "int8")
    assert kept.numbers.dtype == {"bfloat16": tf.uint16}.get(dtype, dtype)
    run = tf.function(multiply_rows, jit_compile=True) if jit_compile else multiply_rows
    found = run(tf.cast(rows, table.dtype), LayerSlice(kept, tf.constant(0)))
    tolerance = {"float32": 1e-5, "int8": 1e-5, "bfloat16": 1e-2}.get(dtype, 1e-13)
    np.testing.assert_allclose(tf.cast(found, tf.float64), exact_rows @ exact.T, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("width", [1, 2, 31])
def test_a_bias_is_added_to_every_number(width):
    rows, bias = DRAW.normal(size=[2, width]), DRAW.normal(size=width)
    np.testing.assert_array_equal(add_bias(tf.constant(rows), tf.constant(bias)), rows + bias)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize(("batch_size", "d_head"), [(1, 32), (3, 24), (2, 41)])
def test_scores_and_weighted_values_of_one_query(dtype, batch_size, d_head):
    query, exact_query = rounded(DRAW.normal(size=[batch_size, 2, 1, d_head]), dtype)
    cached, exact = rounded(DRAW.normal(size=[batch_size, 2, 96, d_head]), dtype)
    weight = DRAW.uniform(size=[batch_size, 2, 1, 96])
    np.testing.assert_allclose(row_scores(query, cached), exact_query @ exact.swapaxes(2, 3), rtol=0, atol=1e-5)
    np.testing.assert_allclose(row_values(tf.constant(weight), cached), weight @ exact, rtol=0, atol=1e-4)


def test_scores_and_weighted_values_of_a_layer():
    query, exact_query = rounded(DRAW.normal(size=[3, 2, 1, 24]), "bfloat16")
    rows, exact = rounded(DRAW.normal(size=[5, 2, 96, 24]), "bfloat16")
    of_layer = LayerSlice(Stored(as_bits(rows)), tf.constant(4))
    np.testing.assert_allclose(row_scores(query, of_layer), exact_query @ exact[4].swapaxes(1, 2), rtol=0, atol=1e-5)
    weight = DRAW.uniform(size=[1, 2, 1, 96])
    np.testing.assert_allclose(row_values(tf.constant(weight), of_layer), weight @ exact[4], rtol=0, atol=1e-4)

"""Each implementation of each operation has the results and gradients of its formula; contract.py has the cases."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from contract import BOUND, CASES, D, H, drawn, error, exact_results, results

from txl_tf.inference.generation.few_rows import SingleRows
from txl_tf.inference.generation.packed import LayerSlice, Stored, as_bits, stored
from txl_tf.layers.masks import visible_keys
from txl_tf.ops import Scores
from txl_tf.ops.cpu import Cpu
from txl_tf.ops.fewer import FewerKernels
from txl_tf.ops.gpu import Gpu
from txl_tf.ops.plain import Plain
from txl_tf.ops.platform import Program
from txl_tf.ops.tpu import Tpu

IMPLEMENTATIONS = {
    "cpu": (Cpu(Program("cpu", False, False)), False),
    "cpu-saved": (Cpu(Program("cpu", True, False)), True),
    "cpu-xla": (Cpu(Program("cpu", True, True)), True),
    "gpu": (Gpu(False), False),
    "gpu-xla": (Gpu(True), True),
    "gpu-fewer": (FewerKernels(True), True),
    "tpu": (Tpu(), True),
}
"""Each implementation, and whether XLA compiles it here."""


def each():
    """All implementations, dtypes and cases; what is compiled for float32 is slow, and says little beside float64."""
    for (kind, (_, compiled)), dtype, name in itertools.product(IMPLEMENTATIONS.items(), BOUND, CASES):
        marks = [pytest.mark.xla] if compiled else []
        marks += [pytest.mark.slow] if (compiled and dtype == "float32") or kind == "cpu-saved" else []
        yield pytest.param(kind, dtype, name, marks=marks)


@pytest.mark.parametrize(("kind", "dtype", "name"), each())
def test_it_computes_the_formula_and_its_gradients(kind, dtype, name):
    implementation, compiled = IMPLEMENTATIONS[kind]
    call = tf.function(results, jit_compile=compiled, autograph=False)
    found = call(name, implementation, *drawn(name, dtype))
    assert error(found, exact_results(name, dtype)) <= BOUND[dtype]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", BOUND)
def test_single_rows_on_a_cpu(dtype, batch):
    """Matrices, keys, values and positions of a layer among those of all."""
    draw, cpu, plain = np.random.default_rng(0), SingleRows(Program("cpu", False, False)), Plain()

    def numbers(*shape):
        x = tf.cast(draw.normal(size=shape), dtype)
        return x, tf.cast(x, tf.float64)

    layer = tf.constant(1)
    matrices, exact_matrices = numbers(2, D, 12)
    x, exact_x = numbers(batch, 1, D)
    bias, exact_bias = numbers(12)
    matrix = LayerSlice(stored(tf.unstack(matrices)), layer)
    pairs = [(cpu.dense(x, matrix, bias), plain.dense(exact_x, exact_matrices[1], exact_bias))]

    query, exact_query = numbers(batch, H, 1, D)
    position_query, exact_position_query = numbers(batch, H, 1, D)
    (keys, exact_keys), (values, exact_values) = (numbers(2, batch, H, 32, D) for _ in range(2))
    positions, exact_positions = numbers(2, H, 32, D)
    key, value, position = (LayerSlice(Stored(as_bits(kept)), layer) for kept in (keys, values, positions))
    mask, oldest = visible_keys(1, 31, window=20), tf.constant(5)
    exact_scores = Scores(exact_query, exact_keys[1], exact_position_query, exact_positions[1])
    pairs.append(
        (
            cpu.attend_ring(Scores(query, key, position_query, position), value, mask, oldest),
            plain.attend_ring(exact_scores, exact_values[1], mask, oldest),
        )
    )
    for got, wanted in pairs:
        difference = np.abs(tf.cast(got, tf.float64) - wanted).max()
        assert difference <= BOUND[dtype] * np.abs(wanted).max()

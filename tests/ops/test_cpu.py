import re

import numpy as np
import pytest
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.masks import visible_keys
from txl_tf.ops import platform
from txl_tf.ops.cpu import Cpu, column_sums
from txl_tf.ops.platform import Program


def gradients(function, inputs, direction):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = function(*inputs)
    return [out, *tape.gradient(out, inputs, direction)]


def test_a_vector_for_all_rows_has_tensorflows_values_and_gradients(rng):
    x, gamma, beta = (tf.constant(rng.normal(size=shape)) for shape in ([2, 3, 5], [5], [5]))
    direction, cpu = tf.constant(rng.normal(size=x.shape)), Cpu(Program("cpu", True, True))

    def ours(x, gamma, beta):
        return x * cpu.for_rows(gamma, x) + cpu.for_rows(beta, x)

    pairs = zip(*(gradients(f, [x, gamma, beta], direction) for f in (ours, lambda x, g, b: x * g + b)), strict=True)
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_added_up_in_float32():
    sums = column_sums(tf.ones([2, 500, 3], tf.bfloat16))  # in bfloat16 it would end at 256
    assert sums.dtype == tf.bfloat16 and sums.numpy().tolist() == [1000] * 3


@pytest.mark.xla
def test_a_compiled_gradient_has_one_index_of_the_shift_for_all_lanes(rng):
    lanes, heads, t_len, m_len, d = 3, 2, 8, 5, 4
    shapes = [[lanes, heads, t_len, d]] * 2 + [[lanes, heads, m_len + t_len, d]] * 2 + [[heads, m_len + t_len, d]]
    inputs = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]

    @tf.function(jit_compile=True, autograph=False)
    def attend(*inputs):
        with platform.traced_for("cpu"), tf.GradientTape() as tape:
            tape.watch(inputs)
            query, position_query, key, value, rows = inputs
            position = ops.positions(rows, query, training=True)
            mask = visible_keys(t_len, m_len)
            out = ops.attend(ops.Scores(query, key, position_query, position), value, mask)
        return tape.gradient(out, inputs)

    program = attend.experimental_get_compiler_ir(*inputs)(stage="hlo")
    constants = re.findall(r"= s(?:32|64)\[([\d,]+)\]\S* constant\(", program)
    assert max(np.prod([int(size) for size in shape.split(",")]) for shape in constants) <= t_len * (m_len + t_len)

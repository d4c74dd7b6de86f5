import numpy as np
import tensorflow as tf

from txl_tf.ops.cpu import Cpu, add_bias, column_sums
from txl_tf.ops.platform import Program


def gradients(function, inputs, direction):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = function(*inputs)
    return [out, *tape.gradient(out, inputs, direction)]


def test_values_and_gradients_are_tensorflows(rng):
    x, gamma, beta = (tf.constant(rng.normal(size=shape)) for shape in ([2, 3, 5], [5], [5]))
    direction = tf.constant(rng.normal(size=x.shape))
    for ours, plain, inputs in (
        (add_bias, lambda x, beta: x + beta, [x, beta]),
        (
            Cpu(Program("cpu", False, False, False)).scale_and_shift,
            lambda x, gamma, beta: x * gamma + beta,
            [x, gamma, beta],
        ),
    ):
        for got, wanted in zip(*(gradients(f, inputs, direction) for f in (ours, plain)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_added_up_in_float32():
    sums = column_sums(tf.ones([2, 500, 3], tf.bfloat16))  # in bfloat16 it would end at 256
    assert sums.dtype == tf.bfloat16 and sums.numpy().tolist() == [1000] * 3

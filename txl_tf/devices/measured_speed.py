"""Whether this machine's CPU is fast in bfloat16, measured on first use, once in a process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import tensorflow as tf

from txl_tf import ops
from txl_tf.ops import platform

FEWEST_ROUNDS, MOST_ROUNDS = 8, 40
"""Rounds of the measurement. It goes on while bfloat16 seems slow, since another program may be the cause."""
FAST = 0.85
"""bfloat16 is fast if it takes less than this part of float32's time. A CPU with instructions for bfloat16 takes a
little over half, if the libraries use them; otherwise bfloat16 takes longer than float32."""


@functools.cache
def bfloat16_is_fast(in_xla: bool = False) -> bool:
    """Whether matrices of bfloat16 are multiplied clearly faster than those of float32, by a short measurement.

    It measures a program that XLA compiles, or TensorFlow's own kernels. Not only the CPU decides: these use oneDNN,
    which may be switched off (TF_ENABLE_ONEDNN_OPTS=0) or limited to older instructions (ONEDNN_MAX_CPU_ISA).
    """
    multiply = tf.function(_product_in_xla, jit_compile=True, autograph=False) if in_xla else tf.matmul
    narrow, wide = ((tf.ones([256, 512], dtype), tf.ones([512, 2048], dtype)) for dtype in (tf.bfloat16, tf.float32))
    fastest_narrow = fastest_wide = float("inf")
    for i in range(MOST_ROUNDS + 1):
        seconds = _seconds(multiply, *narrow), _seconds(multiply, *wide)
        if i > 0:  # the first round sets up the kernels
            fastest_narrow, fastest_wide = min(fastest_narrow, seconds[0]), min(fastest_wide, seconds[1])
        if i >= FEWEST_ROUNDS and fastest_narrow < FAST * fastest_wide:
            return True
    return False


def _product_in_xla(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    with platform.traced_for("cpu"):
        return ops.dot(a, b)


def _seconds(multiply: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], a: tf.Tensor, b: tf.Tensor) -> float:
    """The seconds for the product of two matrices."""
    start = time.perf_counter()
    multiply(a, b)
    return time.perf_counter() - start

"""What this machine's CPU is fast at, measured when it is asked, once in a process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import tensorflow as tf

from txl_tf import ops
from txl_tf.ops import platform

FEWEST_ROUNDS, MOST_ROUNDS = 8, 40
"""Of the measurement. It goes on as long as bfloat16 seems slow, since another program on the machine may be the cause:
of 15 measurements of 8 rounds during another program's work 3 were wrong."""
FAST = 0.85
"""bfloat16 is fast if it takes less than this part of float32's time. On AMD EPYC with bfloat16 instructions it takes
0.5 to 0.6 by TensorFlow's kernels, without oneDNN 1.1, and 2.5 if oneDNN may not use these instructions; by XLA 0.55
to 0.7."""


@functools.cache
def bfloat16_is_fast(in_xla: bool = False) -> bool:
    """Whether matrices of bfloat16 are multiplied clearly faster than those of float32.

    Takes 0.1 to 0.2 s, and up to 0.5 s if they are not.

    Not only the CPU decides this: oneDNN, which TensorFlow's kernels use, may be switched off (TF_ENABLE_ONEDNN_OPTS=0)
    or be limited to older instructions (ONEDNN_MAX_CPU_ISA).

    Args:
        in_xla: by a program that XLA compiles; otherwise by TensorFlow's own kernels.
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
    """How long the product of two matrices takes."""
    start = time.perf_counter()
    multiply(a, b)
    return time.perf_counter() - start

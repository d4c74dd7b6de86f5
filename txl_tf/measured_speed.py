"""What this machine's CPU is fast at, measured when it is asked, once in a process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import tensorflow as tf

from txl_tf.layers.bfloat16_products import product

ROUNDS = 8
FAST = 0.85
"""bfloat16 is fast if it takes less than this part of float32's time. On AMD EPYC with bfloat16 instructions it takes
0.5 to 0.6 by TensorFlow's kernels, without oneDNN 1.1, and 2.5 if oneDNN may not use these instructions; by XLA 0.55
to 0.7."""


@functools.cache
def bfloat16_is_fast(in_xla: bool = False) -> bool:
    """Whether matrices of bfloat16 are multiplied clearly faster than those of float32. Takes about 0.15 s.

    Not only the CPU decides this: oneDNN, which TensorFlow's kernels use, may be switched off (TF_ENABLE_ONEDNN_OPTS=0)
    or be limited to older instructions (ONEDNN_MAX_CPU_ISA).

    Args:
        in_xla: by a program that XLA compiles, 0.5 s; otherwise by TensorFlow's own kernels.
    """
    multiply = tf.function(product, jit_compile=True, autograph=False) if in_xla else tf.matmul
    narrow, wide = ((tf.ones([256, 512], dtype), tf.ones([512, 2048], dtype)) for dtype in (tf.bfloat16, tf.float32))
    times = [(_seconds(multiply, *narrow), _seconds(multiply, *wide)) for _ in range(ROUNDS + 1)]
    fastest_narrow, fastest_wide = map(min, zip(*times[1:], strict=True))  # the first round sets up the kernels
    return fastest_narrow < FAST * fastest_wide


def _seconds(multiply: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], a: tf.Tensor, b: tf.Tensor) -> float:
    """How long the product of two matrices takes."""
    start = time.perf_counter()
    multiply(a, b)
    return time.perf_counter() - start

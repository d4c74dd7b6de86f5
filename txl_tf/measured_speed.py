"""What this machine's CPU is fast at, measured when it is asked, once in a process."""

from __future__ import annotations

import functools
import time

import tensorflow as tf

ROUNDS = 8
FAST = 0.85
"""bfloat16 is fast if it takes less than this part of float32's time. On AMD EPYC with bfloat16 instructions it takes
0.5 to 0.6, without oneDNN 1.1, and 2.5 if oneDNN may not use these instructions."""


@functools.cache
def bfloat16_is_fast() -> bool:
    """Whether TensorFlow's own kernels multiply bfloat16 clearly faster than float32. Takes about 0.15 s.

    Not only the CPU decides this: oneDNN may be switched off (TF_ENABLE_ONEDNN_OPTS=0) or be limited to older
    instructions (ONEDNN_MAX_CPU_ISA).
    """
    narrow, wide = ((tf.ones([256, 512], dtype), tf.ones([512, 2048], dtype)) for dtype in (tf.bfloat16, tf.float32))
    times = [(_seconds(*narrow), _seconds(*wide)) for _ in range(ROUNDS + 1)][1:]  # the first one sets up the kernels
    fastest_narrow, fastest_wide = map(min, zip(*times, strict=True))
    return fastest_narrow < FAST * fastest_wide


def _seconds(a: tf.Tensor, b: tf.Tensor) -> float:
    """How long the product of two matrices takes."""
    start = time.perf_counter()
    tf.matmul(a, b)
    return time.perf_counter() - start

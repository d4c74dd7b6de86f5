"""The platform that a program is traced for; some layers use another method on a TPU."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

TPU_LANES = 128  # numbers in a row of a TPU's vector register

_FOR_TPU = contextvars.ContextVar("for_tpu", default=False)


def on_tpu() -> bool:
    """Whether the program that is being traced will run on a TPU."""
    return _FOR_TPU.get() or isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def on_cpu() -> bool:
    """Whether this process has CPUs alone, and traces for no TPU."""
    return not on_tpu() and {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def xla_on_cpu() -> bool:
    """Whether the function that is being traced is one with jit_compile=True, or is called in one, for a CPU."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()) and on_cpu()


@contextlib.contextmanager
def traced_for_tpu() -> Iterator[None]:
    """In this context functions are traced for a TPU, although no TPUStrategy is in use."""
    token = _FOR_TPU.set(True)
    try:
        yield
    finally:
        _FOR_TPU.reset(token)

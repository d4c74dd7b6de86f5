"""The platform that a program is traced for; some layers use another method on a TPU."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

TPU_LANES = 128  # numbers in a row of a TPU's vector register

_TRACED_FOR = contextvars.ContextVar[str | None]("traced_for", default=None)


def on_tpu() -> bool:
    """Whether the program that is being traced will run on a TPU."""
    if _TRACED_FOR.get() is not None:
        return _TRACED_FOR.get() == "tpu"
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def on_cpu() -> bool:
    """Whether the program that is being traced will run on a CPU: this process has no other devices."""
    if _TRACED_FOR.get() is not None or on_tpu():
        return False
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def on_gpu() -> bool:
    """Whether the program that is being traced will run on a GPU."""
    return not on_tpu() and not on_cpu()


def xla_on_cpu() -> bool:
    """Whether the function that is being traced is one with jit_compile=True, or is called in one, for a CPU."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()) and on_cpu()


@contextlib.contextmanager
def traced_for(name: str) -> Iterator[None]:
    """In this context functions are traced for a "tpu" or a "gpu", although this process uses none."""
    token = _TRACED_FOR.set(name)
    try:
        yield
    finally:
        _TRACED_FOR.reset(token)

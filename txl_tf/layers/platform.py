"""The platform that a program is traced for; some layers use other methods on a TPU or GPU."""

from __future__ import annotations

import contextvars
from contextlib import AbstractContextManager
from typing import Literal

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from txl_tf.layers.contexts import having

TPU_LANES = 128  # numbers in a row of a TPU's vector register

Target = Literal["cpu", "gpu", "tpu"]
_TRACED_FOR = contextvars.ContextVar[Target | None]("traced_for", default=None)
_FOR_SAVED_MODEL = contextvars.ContextVar("for_saved_model", default=False)


def target() -> Target:
    """What the program that is being traced will run on."""
    return "tpu" if on_tpu() else "cpu" if on_cpu() else "gpu"


def on_tpu() -> bool:
    """Whether the program that is being traced will run on a TPU: with TPUStrategy."""
    given = _TRACED_FOR.get()
    return given == "tpu" if given else isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def on_cpu() -> bool:
    """Whether it will run on a CPU: this process has no other devices."""
    given = _TRACED_FOR.get()
    if given:
        return given == "cpu"
    return not on_tpu() and {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def on_gpu() -> bool:
    """Whether it will run on a GPU, as everything that is for neither a TPU nor a CPU."""
    return target() == "gpu"


def in_xla() -> bool:
    """Whether the function that is being traced is one with jit_compile=True, or is called in one."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def only_in_xla() -> bool:
    """Whether XLA is sure to compile what is being traced, so that it may have operations that only XLA knows."""
    return in_xla() and not _FOR_SAVED_MODEL.get()


def xla_on_cpu() -> bool:
    """Whether XLA for CPU compiles what is being traced."""
    return in_xla() and on_cpu()


def own_kernels_on_cpu() -> bool:
    """Whether TensorFlow's own kernels for CPUs will run what is being traced or computed, without XLA."""
    return on_cpu() and not in_xla()


def program() -> tuple[Target, bool, bool]:
    """All that layers ask here. Two programs for which it differs must not share what is traced."""
    return target(), in_xla(), only_in_xla()


def for_saved_model() -> AbstractContextManager[None]:
    """In this context functions are traced for a SavedModel, which a server may run without XLA."""
    return having(_FOR_SAVED_MODEL, True)


def traced_for(name: Target) -> AbstractContextManager[None]:
    """In this context functions are traced for a platform, although this process may not use it."""
    return having(_TRACED_FOR, name)

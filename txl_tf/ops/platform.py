"""The program that is being traced: for which device, whether XLA compiles it, and the implementation of operations."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import typing
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal, TypeVar

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

if typing.TYPE_CHECKING:
    from txl_tf.ops.cpu import Cpu
    from txl_tf.ops.plain import Plain

Value = TypeVar("Value")
Target = Literal["cpu", "gpu", "tpu"]
_TRACED_FOR = contextvars.ContextVar[Target | None]("traced_for", default=None)
_FOR_SAVED_MODEL = contextvars.ContextVar("for_saved_model", default=False)
_ON_CPU = contextvars.ContextVar["type[Cpu] | None"]("on_cpu", default=None)
_ops = "proven"  # for all threads: MirroredStrategy traces each replica in one of its own


class Program(typing.NamedTuple):
    """The key by which an implementation is chosen. Programs with different keys must not share a trace.

    target: the device.
    compiled: whether XLA compiles it.
    only_compiled: whether it runs only as compiled by XLA, so that it may have operations that only XLA has.
    ops: as in `using`.
    on_cpu: as in `on_cpu`.
    """

    target: Target
    compiled: bool
    only_compiled: bool
    ops: str = "proven"
    on_cpu: type[Cpu] | None = None


def program() -> Program:
    """The program that is being traced, or is running eagerly."""
    compiled = control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    only_compiled = compiled and not _FOR_SAVED_MODEL.get()
    return Program(_TRACED_FOR.get() or _device(), compiled, only_compiled, _ops, _ON_CPU.get())


@tf.autograph.experimental.do_not_convert
def implementation() -> Plain:
    """The implementation for the program that is being traced; programs with different ones must not share a trace."""
    return _implementation(program())


@functools.cache
def _implementation(program: Program) -> Plain:
    # Imported late, since they import this module.
    from txl_tf.ops.cpu import Cpu
    from txl_tf.ops.fewer import FewerKernels
    from txl_tf.ops.fused.attention import Fused
    from txl_tf.ops.gpu import Gpu
    from txl_tf.ops.plain import Plain
    from txl_tf.ops.tpu import Tpu

    if program.ops == "plain":
        return Plain()
    if program.target == "cpu":
        return (program.on_cpu or Cpu)(program)
    if program.target == "tpu":
        return Tpu()
    return {"proven": Gpu, "fewer": FewerKernels, "fused": Fused}[program.ops](program.only_compiled)


def _device() -> Target:
    """The device of a program without a named one, such as a layer in another model: that of this process."""
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):
        return "tpu"
    return "cpu" if {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"} else "gpu"


@contextlib.contextmanager
def having(variable: contextvars.ContextVar[Value], value: Value) -> Iterator[None]:
    """In this context the variable has this value; afterwards the earlier one."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def traced_for(target: Target) -> AbstractContextManager[None]:
    """In this context functions are traced for a device, which this process need not have."""
    return having(_TRACED_FOR, target)


def for_saved_model() -> AbstractContextManager[None]:
    """In this context functions are traced for a SavedModel, which a server may run without XLA."""
    return having(_FOR_SAVED_MODEL, True)


def on_cpu(implementation: type[Cpu]) -> AbstractContextManager[None]:
    """In this context functions that are traced for a CPU use this implementation."""
    return having(_ON_CPU, implementation)


@contextlib.contextmanager
def using(ops: str) -> Iterator[None]:
    """In this context, in all threads, operations are of this kind.

    plain: the formulas; proven: what a GPU has run; fewer: with fewer kernels on a GPU; fused: also with attention by
    kernels of our own. On a CPU and a TPU the last three are the same.
    """
    global _ops
    before, _ops = _ops, ops
    try:
        yield
    finally:
        _ops = before

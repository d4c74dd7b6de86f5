"""The program that is being traced: for which device, and whether XLA compiles it. Only `ops/__init__.py` asks."""

from __future__ import annotations

import contextlib
import contextvars
import typing
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal, TypeVar

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

Value = TypeVar("Value")
Target = Literal["cpu", "gpu", "tpu"]
_TRACED_FOR = contextvars.ContextVar[Target | None]("traced_for", default=None)
_FOR_SAVED_MODEL = contextvars.ContextVar("for_saved_model", default=False)
_plain = False  # for all threads: MirroredStrategy traces each replica in one of its own


class Program(typing.NamedTuple):
    """The key by which an implementation is chosen. Programs with different keys must not share a trace.

    target: the device.
    compiled: whether XLA compiles it.
    only_compiled: whether it runs only as compiled by XLA, so that it may have operations that only XLA has.
    plain: whether the formulas themselves are wanted.
    """

    target: Target
    compiled: bool
    only_compiled: bool
    plain: bool


def program() -> Program:
    """The program that is being traced, or is running eagerly."""
    compiled = control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    only_compiled = compiled and not _FOR_SAVED_MODEL.get()
    return Program(_TRACED_FOR.get() or _device(), compiled, only_compiled, _plain)


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


@contextlib.contextmanager
def plain(wanted: bool = True) -> Iterator[None]:
    """In this context, in all threads, every operation is its plain formula."""
    global _plain
    before, _plain = _plain, wanted
    try:
        yield
    finally:
        _plain = before

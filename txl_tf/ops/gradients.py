"""Gradients that operations give themselves, and contexts without them, for what nobody differentiates."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from txl_tf.ops.platform import having

ATTENTION, ADAM = "attention", "adam"
"""tf.name_scopes by which tpu/aot/report.py assigns costs: gradients of attention, traced outside their layer's scope,
and updates of several operations."""

WithGradient = tuple[Any, Callable[..., Any]]
"""A result, and a function from its gradient to those of the arguments."""

_WANTED = contextvars.ContextVar("gradients_wanted", default=True)


@contextlib.contextmanager
def without_custom_gradients() -> Iterator[None]:
    """In this context `custom_gradient` leaves gradients out; a tape then finds TensorFlow's own, which may be none."""
    with having(_WANTED, False):
        yield


def custom_gradient(function: Callable[..., WithGradient]) -> Callable[..., Any]:
    """tf.custom_gradient; within `without_custom_gradients` a function that returns the result alone.

    Every call with a gradient becomes an operation of its own, and TensorFlow traces all gradients once more when it
    writes a SavedModel: almost half of the time of an XLNet's export.
    """
    with_gradient = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return with_gradient(*arguments) if _WANTED.get() else function(*arguments)[0]

    return call

"""Operations with their own gradients, and contexts without these, for programs that nobody differentiates."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from txl_tf.ops.platform import having

ATTENTION, ADAM = "attention", "adam"
"""tf.name_scopes by which costs are assigned to layers: gradients of attention, traced outside their layer's scope, and
updates of several operations."""

WithGradient = tuple[Any, Callable[..., Any]]
"""A result, and a function from its gradient to the arguments' gradients."""

_WANTED = contextvars.ContextVar("gradients_wanted", default=True)


@contextlib.contextmanager
def without_custom_gradients() -> Iterator[None]:
    """In this context `custom_gradient` adds no gradient; a tape then finds TensorFlow's own, if there is one."""
    with having(_WANTED, False):
        yield


def custom_gradient(function: Callable[..., WithGradient]) -> Callable[..., Any]:
    """tf.custom_gradient; within `without_custom_gradients` a function that returns only the result.

    Every call with a gradient becomes a separate operation, and TensorFlow traces all gradients once more when it
    writes a SavedModel, which is slow.
    """
    with_gradient = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return with_gradient(*arguments) if _WANTED.get() else function(*arguments)[0]

    return call

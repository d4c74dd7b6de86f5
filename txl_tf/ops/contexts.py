"""Contexts in which a context variable has another value."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

Value = TypeVar("Value")


@contextlib.contextmanager
def having(variable: contextvars.ContextVar[Value], value: Value) -> Iterator[None]:
    """In this context the variable has this value; afterwards the former one."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)

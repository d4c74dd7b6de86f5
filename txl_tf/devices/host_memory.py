"""Refuses work that cannot fit into this machine's memory, before the system would end the process.

Also makes variables whose values are assigned later, which take no memory until then, and gives back memory after
compiling.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from txl_tf.errors import InputError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Linux's files with a container's memory limit."""
PAUSE = 0.02
"""The shortest time in seconds between two looks at malloc's free memory."""
WORTH_IT = 2**24
"""Bytes of new free memory that are worth giving back."""


def available() -> int:
    """Bytes that this machine has, or that this process's container may use."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            found = min(found, int(file.read()))
    return found


def require(needs: Mapping[str, int]) -> None:
    """Raises InputError if something needs more memory than there is.

    `needs` are {what needs memory, with the settings it follows from: the least bytes}.
    """
    total, there = sum(needs.values()), available()
    if total > there:
        parts = ", ".join(f"{size / 1e9:,.1f} GB for {what}" for what, size in needs.items() if size > total / 100)
        raise InputError(
            f"this needs at least {total / 1e9:,.1f} GB of memory, and there are {there / 1e9:,.1f} GB: {parts}"
        )


def require_on_cpus(needs: Mapping[str, int]) -> None:
    """As `require`, unless this process has other devices than CPUs, whose memory is not known here."""
    if {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}:
        require(needs)


def bytes_of(make: Callable[[], Any]) -> int:
    """The bytes of the tensors that make() returns, from their shapes: make is traced, not run."""
    tensors = tf.nest.flatten(tf.function(make, autograph=False).get_concrete_function().structured_outputs)
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


@contextlib.contextmanager
def without_initial_values() -> Iterator[None]:
    """While this lasts, variables are made without running their initializers, for values that are assigned later.

    Until then they take no memory, and their values are undefined.
    """

    def create(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        initializer = kwargs["initial_value"]
        if callable(initializer):
            with tf.Graph().as_default():
                value = initializer()
            # Memory that nobody writes to is reserved, but not used.
            kwargs["initial_value"] = tf.raw_ops.Empty(shape=value.shape, dtype=value.dtype)
        return next_creator(**kwargs)

    with tf.variable_creator_scope(create):
        yield


@contextlib.contextmanager
def values_at_the_end() -> Iterator[None]:
    """While this lasts, Keras makes variables without values, which take no memory; at its end they get their values.

    If an error ends it, they get none, and cannot be used.
    """
    try:
        with keras.StatelessScope(initialize_variables=False) as scope:
            yield
            scope.initialize_variables = True
    except Exception:

        def create(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
            return next_creator(**kwargs | {"initial_value": 0})

        # Keras makes them at the end of its next such scope: now, as small as possible.
        with tf.variable_creator_scope(create), keras.StatelessScope():
            pass
        raise


class _Allocated(ctypes.Structure):
    """The result of C's `mallinfo2`. `free`: bytes of malloc that nobody uses, those that were given back included."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (*"abcdefgh", "free", "top"))


def without_leftovers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first call compiles a program, with less memory at the peak of that call.

    A compiler frees memory in small pieces, and malloc keeps them. The program's buffers do not fit into these pieces,
    so the process would hold both. So during the first call a thread gives free memory back to the system whenever
    there is more of it: above all when the compiler has ended and the program begins. Where malloc cannot do so, as on
    macOS, the function is as it was.
    """
    c: Any = ctypes.CDLL(None) if os.name == "posix" else None
    if not (hasattr(c, "malloc_trim") and hasattr(c, "mallinfo2")):
        return function
    c.mallinfo2.restype = _Allocated
    called = threading.Event()

    def give_back() -> None:
        given, pause = 0, PAUSE
        while not called.wait(pause):
            start = time.perf_counter()
            free = c.mallinfo2().free
            if free > given + WORTH_IT:
                c.malloc_trim(0)
                given = free
            given, pause = min(given, free), max(PAUSE, 4 * (time.perf_counter() - start))

    @functools.wraps(function, updated=())
    def call(*args: Any) -> Any:
        if not called.is_set():
            threading.Thread(target=give_back, daemon=True).start()
        try:
            return function(*args)
        finally:
            called.set()

    return call

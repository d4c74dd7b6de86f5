"""Runs a function on many items in threads."""

from __future__ import annotations

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
REQUESTS = 32
"""Threads for requests to a bucket, which are slow."""


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None) -> Iterator[Result]:
    """map(function, items) in threads, with results in order and only a few items in memory."""
    workers = workers or min(os.cpu_count() or 1, 8)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        under_way: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) > workers + 1:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

"""Requests take turns at the model: one call at a time, in a thread, in the order in which they were asked for.

A long request asks for one short call after another. Each of them goes to the end of the queue, so other requests get
their calls in between. Every second call, if possible, is the first of its request, so that a short request need not
wait for all long ones. Waiting calls with the same key become one: a batch. If the client of a call is gone, the call
leaves the queue; if all clients of the running call are gone, it is cancelled.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import time
from collections.abc import Callable, Hashable
from typing import Any

from serving.errors import RequestError, stopping


@dataclasses.dataclass(eq=False)
class Call:
    """A call that a request asked for.

    Attributes:
        function: takes a list of items, and returns a list of their results.
        item: this call's.
        key: calls with equal keys can be computed by the function of any of them; None: this call is computed alone.
        rows: texts of this item.
        most: texts in a batch with it.
        again: whether its request has had a call before.
        done: the future of its result.
    """

    function: Callable[[list], list]
    item: Any
    key: Hashable
    rows: int
    most: int
    again: bool
    done: asyncio.Future


class Turns:
    """The queue for the model, in one event loop.

    Args:
        cancellable: a context manager in which calls can be cancelled, as `Model.cancellable`.
        batch_rows: the most texts in a batch.
        observe: observe(function, rows, seconds) is called after every call, in the model's thread.
    """

    def __init__(self, cancellable, batch_rows, observe=lambda *_: None):
        self._cancellable = cancellable
        self.batch_rows = batch_rows
        self._observe = observe
        self._waiting = collections.deque()
        self._running = []
        self._cancel = None
        self._stopped = False
        self._after = True  # what `again` was for the last call
        self._server = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "model")

    @property
    def waiting(self):
        """How many calls wait."""
        return len(self._waiting)

    @property
    def busy(self):
        """Whether a call runs."""
        return bool(self._running)

    async def run(self, function, item, key=None, rows=1, most=None, again=False):
        """The result of function([item]), or of function([item, ..]) with other calls; arguments as in `Call`.

        most None: only `batch_rows` bounds a batch.
        """
        if self._stopped:
            raise stopping()
        call = Call(
            function, item, key, rows, most or self.batch_rows, again, asyncio.get_running_loop().create_future()
        )
        self._waiting.append(call)
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        try:
            return await call.done
        except asyncio.CancelledError:
            if call in self._waiting:
                self._waiting.remove(call)
            self._cancel_if_unwanted()
            raise

    def stop(self):
        """Refuses all calls from now on, those that wait, and the one that runs."""
        self._stopped = True
        for call in (*self._waiting, *self._running):
            if not call.done.done():
                call.done.set_exception(stopping())
        self._waiting.clear()
        self._cancel_if_unwanted()

    def close(self):
        """Ends the thread as soon as its call ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _serve(self):
        """Computes the waiting calls; ends when none waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            # First, requests whose call has just ended ask for their next one, so that they share a batch with others.
            await asyncio.sleep(0)
            self._running = calls = self._take()
            if not calls:
                continue
            try:
                results = await loop.run_in_executor(self._thread, self._compute, calls)
            except Exception as error:
                results = [error] * len(calls)
            self._running = []
            for call, result in zip(calls, results, strict=True):
                if call.done.done():
                    continue
                if isinstance(result, Exception):
                    call.done.set_exception(result)
                else:
                    call.done.set_result(result)
            await asyncio.sleep(0)

    def _take(self):
        """The next call, with those that can be computed together with it."""
        waiting = [call for call in self._waiting if not call.done.done()]
        if not waiting:
            self._waiting.clear()
            return []
        first = next((call for call in waiting if call.again != self._after), waiting[0])
        self._after = first.again
        batch, rows, most = [first], first.rows, min(first.most, self.batch_rows)
        for call in waiting if first.key is not None else ():
            if call.key == first.key and call is not first and rows + call.rows <= most:
                batch.append(call)
                rows += call.rows
        self._waiting = collections.deque(call for call in waiting if call not in batch)
        return batch

    def _compute(self, calls):
        """The results of calls, or their exceptions; in the model's thread."""
        start, function = time.monotonic(), calls[0].function
        try:
            with self._cancellable() as self._cancel:
                self._cancel_if_unwanted()  # its clients may have gone since it was taken
                return function([call.item for call in calls])
        except Exception as error:
            if len(calls) == 1 or all(call.done.done() for call in calls):
                return [error] * len(calls)
        finally:
            self._cancel = None
            self._observe(function, sum(call.rows for call in calls), time.monotonic() - start)
        # One of them is wrong, and the others must not be refused with it.
        return [self._compute([call])[0] for call in calls]

    def _cancel_if_unwanted(self):
        cancel = self._cancel
        if cancel is not None and all(call.done.done() for call in self._running):
            cancel()


class Admission:
    """Limits the requests in progress, and the texts that they hold in memory at a time.

    Args:
        most: requests, waiting ones included.
        rows: texts.
        wait_seconds: a request that waits longer than this for others to end is refused.

    Attributes:
        ended: when the last request ended, by `time.monotonic`.
    """

    def __init__(self, most, rows, wait_seconds):
        self._most, self._wait_seconds = most, wait_seconds
        self._inside, self._free, self.ended = 0, rows, time.monotonic()
        self._waiting = collections.deque()  # (rows, future: whether it may begin)
        self._stopped = False

    @property
    def inside(self):
        """Requests in progress, waiting ones included."""
        return self._inside

    @contextlib.asynccontextmanager
    async def request(self):
        """A place for a request, while it is answered."""
        if self._inside >= self._most:
            which = "request is" if self._most == 1 else "requests are"
            raise RequestError(503, f"{self._most} {which} in progress, and no more may wait", retry_seconds=1)
        self._inside += 1
        try:
            yield
        finally:
            self._inside, self.ended = self._inside - 1, time.monotonic()

    @contextlib.asynccontextmanager
    async def texts(self, rows):
        """Memory for a number of texts; requests get it in the order in which they came."""
        if self._stopped:
            raise stopping()
        if self._waiting or rows > self._free:
            await self._wait(rows)
        else:
            self._free -= rows
        try:
            yield
        finally:
            self._free += rows
            self._wake()

    def stop(self):
        """Refuses all requests that wait, and those that come."""
        self._stopped = True
        for _, admitted in self._waiting:
            admitted.set_result(False)
        self._waiting.clear()

    async def _wait(self, rows):
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, admitted))
        try:
            await asyncio.wait([admitted], timeout=self._wait_seconds)
            if not admitted.done():
                raise RequestError(503, "the server is busy with other texts", retry_seconds=self._wait_seconds)
            if not admitted.result():
                raise stopping()
        except BaseException:  # also if the client is gone
            if not admitted.done():
                self._waiting.remove((rows, admitted))
            elif admitted.result():
                self._free += rows
            self._wake()
            raise

    def _wake(self):
        while self._waiting and self._waiting[0][0] <= self._free:
            rows, admitted = self._waiting.popleft()
            self._free -= rows
            admitted.set_result(True)

"""A server from its sockets to its last answer."""

import asyncio
import contextlib
import os
import signal
import sys
import time

from aiohttp import web

from serving.errors import one_line
from serving.metrics import Record
from serving.routes import Routes
from serving.terminal import LOGGER

CLOSE_SECONDS = 0.3
"""Time for connections to close after the last answers."""
LINGER_SECONDS = 1.0
"""Time for a client that is still sending to read why its request was refused."""

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Running:
    """A Service that answers at sockets, in the running event loop.

    Args:
        service: a Service.
        sockets: bound ones.
        access: an Access.
    """

    def __init__(self, service, sockets, access):
        self._service, self._sockets = service, sockets
        limits = service.limits
        self._runner = web.AppRunner(
            Routes(service, access).app(),
            handler_cancellation=True,  # work for a client that is gone ends
            shutdown_timeout=CLOSE_SECONDS,
        )
        self._connection = {
            "keepalive_timeout": limits.header_seconds,  # from the connection to its first headers
            "lingering_time": LINGER_SECONDS,
            "access_log": None,
        }
        self._servers = []

    async def start(self):
        """Answers from now on."""
        loop, limits = asyncio.get_running_loop(), self._service.limits
        loop.set_exception_handler(_log)
        await self._runner.setup()
        self._servers = [
            await loop.create_server(lambda: _Entry(self._connect, limits.connections), sock=socket)
            for socket in self._sockets
        ]

    def _connect(self, most):
        """The protocol for a new connection; None if there are `most` already."""
        server = self._runner.server
        if len(server.connections) >= most:
            return None
        return _Connection(self._service, server, asyncio.get_running_loop(), self._connection)

    async def warm_up(self):
        """Runs the programs of all routes once; returns when requests need not wait for them."""
        with self._logged():
            await self._service.warm_up()

    async def warm_up_later(self):
        """Runs those that are left, between requests."""
        with self._logged():
            await self._service.warm_up_later()

    @contextlib.contextmanager
    def _logged(self):
        try:
            yield
        except Exception:
            if not self._service.stopping:
                LOGGER.exception("the model could not be warmed up")

    async def stop(self):
        """Accepts no further connections. Requests may finish within limits.stop_seconds; then they are broken off."""
        service = self._service
        service.stopping = True
        for server in self._servers:
            server.close()
        end = time.monotonic() + service.limits.stop_seconds
        while service.admission.inside and time.monotonic() < end:
            await asyncio.sleep(0.02)
        service.stop()
        while service.admission.inside and time.monotonic() < end + CLOSE_SECONDS:
            await asyncio.sleep(0.02)
        await self._runner.cleanup()
        service.turns.close()


class _Entry(asyncio.Protocol):
    """Passes a new connection on, unless it is one too many; `connect` is as `Running._connect`."""

    def __init__(self, connect, most):
        self._connect, self._most = connect, most

    def connection_made(self, transport):
        protocol = self._connect(self._most)
        if protocol is None:
            transport.write(REFUSAL)
            transport.close()
        else:
            transport.set_protocol(protocol)
            protocol.connection_made(transport)


class _Connection(web.RequestHandler):
    """A connection that answers and logs data that is not HTTP like every wrong request."""

    __slots__ = ("_idle_seconds", "_metrics")

    def __init__(self, service, server, loop, options):
        super().__init__(server, loop=loop, **options)
        self._metrics, self._idle_seconds = service.metrics, service.limits.idle_seconds

    async def start(self):
        """Answers requests until the connection ends."""
        self._keepalive_timeout = self._idle_seconds  # after each answer; aiohttp has the timer for the first headers
        await super().start()

    def handle_error(self, request, status=500, exc=None, message=None):
        """The answer, after which the connection ends."""
        record = Record("none", request.method)
        if status >= 500:
            LOGGER.error("a request failed", exc_info=exc)
            message = "the server failed at this request: its log says where"
        if request.writer.output_size:
            raise ConnectionError("an answer was begun")
        response = web.json_response({"error": one_line(message or exc)}, status=status)
        response.force_close()
        self._metrics.end(record, status, len(response.body))
        return response

    def log_exception(self, *args, **kwargs):
        """Logs an error, except damage in a body that nobody needed."""
        if not isinstance(kwargs.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **kwargs)


def serve(service, sockets, access):
    """Serves until SIGINT or SIGTERM; ends the process when the last answer was sent."""
    asyncio.run(_serve(service, sockets, access))
    with contextlib.suppress(OSError):  # nobody may read them any more
        sys.stdout.flush()
        sys.stderr.flush()
    # An orderly end of Python would wait for a call that still runs, such as a compilation, and take TensorFlow down
    # for seconds. There is nothing left to save.
    os._exit(0)


async def _serve(service, sockets, access):
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    running = Running(service, sockets, access)
    await running.start()
    addresses, routes = ", ".join(map(_address, sockets)), ", ".join(service.model.routes)
    print(f"getting {service.model.title} ready at {addresses}: each route runs once", flush=True)
    warm, told = asyncio.create_task(running.warm_up()), asyncio.create_task(stopped.wait())
    await asyncio.wait([warm, told], return_when=asyncio.FIRST_COMPLETED)
    if service.ready and not stopped.is_set():
        print(f"serving {service.model.title} at {addresses}: {routes}", flush=True)
        warm = asyncio.create_task(running.warm_up_later())
    await told
    LOGGER.info({"message": "stopping"})
    await running.stop()


def _address(socket):
    host, port = socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log(loop, context):
    del loop
    LOGGER.error(context["message"], exc_info=context.get("exception"))

"""A server from its sockets to its last answer."""

import asyncio
import contextlib
import os
import signal
import sys
import time

from aiohttp import web

from serving.routes import make_app
from serving.terminal import LOGGER

CLOSE_SECONDS = 0.3
"""For connections to close after the last answers."""
LINGER_SECONDS = 1.0
"""For a client to read why its request was refused, while it still sends."""

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Running:
    """A Service that answers at sockets, in the running event loop.

    Args:
        service: a Service.
        sockets: bound ones.
    """

    def __init__(self, service, sockets):
        self._service, self._sockets = service, sockets
        limits = service.limits
        self._runner = web.AppRunner(
            make_app(service),
            handler_cancellation=True,  # what is computed for a client that is gone ends
            keepalive_timeout=limits.header_seconds,  # from the connection, or the last answer, to the next headers
            lingering_time=LINGER_SECONDS,
            shutdown_timeout=CLOSE_SECONDS,
            access_log=None,
        )
        self._servers = []
        self._warm_up = None

    async def start(self, warm_up=True):
        """Answers from now on; the model is warmed up meanwhile."""
        loop, limits = asyncio.get_running_loop(), self._service.limits
        loop.set_exception_handler(_log)
        await self._runner.setup()
        self._servers = [
            await loop.create_server(lambda: _Entry(self._runner.server, limits.connections), sock=socket)
            for socket in self._sockets
        ]
        if warm_up:
            self._warm_up = asyncio.create_task(self._warm())

    async def _warm(self):
        try:
            await self._service.warm_up()
        except Exception:
            if not self._service.stopping:
                LOGGER.exception("the model could not be warmed up")

    async def stop(self):
        """Takes no further connections; requests may finish within limits.stop_seconds, and then they are cut."""
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
    """Hands a new connection to a server, unless it is one too many."""

    def __init__(self, server, most):
        self._server, self._most = server, most

    def connection_made(self, transport):
        if len(self._server.connections) >= self._most:
            transport.write(REFUSAL)
            transport.close()
        else:
            protocol = self._server()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)


def serve(service, sockets):
    """Serves until SIGINT or SIGTERM; ends the process when the last answer was sent."""
    asyncio.run(_serve(service, sockets))
    with contextlib.suppress(OSError):  # nobody may read them any more
        sys.stdout.flush()
        sys.stderr.flush()
    # An orderly end of Python would wait for a call that still runs, such as a compilation, and take TensorFlow down
    # for seconds. There is nothing left to save.
    os._exit(0)


async def _serve(service, sockets):
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    running = Running(service, sockets)
    await running.start()
    addresses = ", ".join(map(_address, sockets))
    print(f"serving {service.model.kind.title} at {addresses}: {', '.join(service.model.routes)}", flush=True)
    await stopped.wait()
    LOGGER.info({"message": "stopping"})
    await running.stop()


def _address(socket):
    host, port = socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log(loop, context):
    del loop
    LOGGER.error(context["message"], exc_info=context.get("exception"))

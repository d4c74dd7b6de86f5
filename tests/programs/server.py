"""The example server, running in a thread, and calls to it."""

import asyncio
import contextlib
import json
import socket
import threading
import time
import typing
import urllib.error
import urllib.request

from serving.access import Access
from serving.limits import Limits
from serving.running import Running
from serving.service import Service


class Started(typing.NamedTuple):
    """A server that runs: its address, its parts, and a function that runs a coroutine in its event loop."""

    address: str
    service: Service
    running: Running
    run: typing.Callable


@contextlib.contextmanager
def started(export_dir, clock=time.monotonic, warm_up=False, access=None, model_name=None, **limits):
    """A Started server of an export; access: an Access; limits: fields of Limits."""
    service, loop = Service(export_dir, Limits(**limits), clock, model_name), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = Running(service, [listening], access or Access())
        run(running.start())
        if warm_up:
            run(running.warm_up())
        yield Started(f"http://127.0.0.1:{listening.getsockname()[1]}", service, running, run)
        run(running.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@contextlib.contextmanager
def running(export_dir, **options):
    """Where a server of an export answers; options: of `started`."""
    with started(export_dir, **options) as server:
        yield server.address


def call(address, path, request=None, method="POST"):
    """The status and the answer of a request."""
    data = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
    try:
        message = urllib.request.Request(address + path, None if method == "GET" else data, method=method)
        with urllib.request.urlopen(message, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def send(address, path, request, head=None):
    """A connection to which a POST request was sent, whose answer has not been read."""
    host, port = address.removeprefix("http://").split(":")
    data = json.dumps(request).encode()
    connection = socket.create_connection((host, int(port)), timeout=60)
    head = head or f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection

"""The example server, running in a thread, and calls to it."""

import asyncio
import contextlib
import importlib.util
import json
import pathlib
import threading
import urllib.error
import urllib.request

from aiohttp import web


@contextlib.contextmanager
def running(export_dir, **options):
    """Where a server of an export answers; options: of its Service."""
    path = pathlib.Path(__file__).parents[1] / "examples" / "serve.py"
    spec = importlib.util.spec_from_file_location("serve", path)
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    service = serve.Service(export_dir, **options)
    loop, runner = asyncio.new_event_loop(), web.AppRunner(serve.make_app(service))

    async def start():
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner.addresses[0][1]

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield f"http://127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def call(address, path, request=None, method="POST"):
    """The status and the answer of a request."""
    data = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
    try:
        message = urllib.request.Request(address + path, data, method=method)
        with urllib.request.urlopen(message, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)

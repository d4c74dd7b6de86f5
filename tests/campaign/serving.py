"""Not a test: the example server as a process of its own, for each kind of model, under the requests of hostile.py."""

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from campaign import clock, hostile
from campaign.commands import ROOT

EXPORTS = {
    "saved": (
        "/generate",
        "/stream",
        "/sessions",
        "/sessions/SESSION",
        "/score",
        "/v1/completions",
        "/v1/completions?stream",
        "/tokenize",
        "/detokenize",
        "/v1/models/saved:predict",
    ),
    "saved_xlnet": (
        "/fill",
        "/fill?candidates",
        "/encode",
        "/score",
        "/generate",
        "/stream",
        "/sessions",
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
        "/v1/models/saved_xlnet:predict",
    ),
    "saved_tuned": ("/classify", "/v1/models/saved_tuned:predict"),
    "saved_answering": ("/answer",),
    "saved_tagging": ("/tag",),
    "saved_labelling": ("/label",),
}
"""The routes to which requests are sent, by the part of the world that is served."""
GROWTH_MB = 300
"""The server may need so much more memory after all requests than before them."""
PEAK_MB = 2000
"""And so much more while it works on them."""
SLOW_SECONDS = 35
"""A client has 10 s for its head and 20 s for its body."""


@contextlib.contextmanager
def started(export_dir):
    """The address of a server, its process, and a function that ends it and returns its exit status and its log."""
    command = [sys.executable, "-m", "serving", f"--export_dir={os.path.abspath(export_dir)}", "--port=0"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as process,
    ):
        address = re.search(r"at (http://[^:]+:\d+)", process.stdout.readline())[1]
        while hostile.exchange(address, hostile.Request("/ready", "", b"", method="GET"))[0] != 200:
            time.sleep(0.1)

        def end():
            process.send_signal(signal.SIGINT)
            status = process.wait(timeout=100)
            log.seek(0)
            return status, log.read()

        try:
            yield address, process, end
        finally:
            process.kill()


def cases(part, root, only):
    """Runs all cases of a server whose line matches: [(line, what is wrong, seconds)]."""
    routes, done = EXPORTS[part], []
    requests = [
        (line, request)
        for request in hostile.requests_to(routes)
        if re.search(only, line := f"serve {part}: {request.method} {request.route[:30]} {request.title}")
    ]
    if not requests:
        return done

    def add(title, check):
        start = time.perf_counter()
        try:
            wrong = check()
        except (OSError, ValueError) as error:
            wrong = repr(error)
        done.append((title, wrong, time.perf_counter() - start))

    def leave():
        hostile.left_alone(address, routes)
        return usual(address, process, routes[0])

    def wait():
        left = hostile.slow(address, SLOW_SECONDS)
        return f"{left} connections are still open" if left else usual(address, process, routes[0])

    def grown():
        after, peak = memory_mb(address) - before, peak_mb(process) - before
        return f"{after:.0f} MB more, {peak:.0f} at the peak" if after > GROWTH_MB or peak > PEAK_MB else ""

    with started(root / part) as (address, process, end):
        before = memory_mb(address)
        for line, request in requests:
            add(line, functools.partial(hostile.wrong, address, request))
        add(f"serve {part}: clients that leave", leave)
        add(f"serve {part}: slow clients", wait)
        add(f"serve {part}: memory", grown)
        add(f"serve {part}: the end and the log", lambda: ill_log(*end()))
    return done


def usual(address, process, route, seconds=10):
    """The fault of a server that should answer a usual request after this much work at most; "" if none."""
    start = clock.worked(process.pid)
    for request, method in ((b"", "GET"), (json.dumps(hostile.USUAL[route]).encode(), "POST")):
        path = "/ready" if method == "GET" else route
        status, body = hostile.exchange(address, hostile.Request(path, "", request, method=method))
        if status != 200:
            return f"{path}: status {status}: {body[:200]!r}"
    taken = clock.worked(process.pid) - start
    return f"a usual request took {taken:.0f} s of work" if taken > seconds else ""


def memory_mb(address):
    """The server's memory in MB, from its metrics."""
    _, text = hostile.exchange(address, hostile.Request("/metrics", "", b"", method="GET"))
    return float(re.search(rb"\nprocess_resident_memory_bytes (\S+)", text)[1]) / 1e6


def peak_mb(process):
    """The most memory that a process ever had."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1e3


def ill_log(status, log):
    """The fault in a server's exit status and log; "" if none."""
    if status:
        return f"exit status {status}"
    for line in log.splitlines():
        if "Traceback" in line or not line.startswith("{") or json.loads(line).get("status") == 500:
            return line[:300]
        if json.loads(line).get("level") == "error":
            return line[:300]
    return ""

"""The server's metrics for Prometheus, and a line in its log for every request."""

import dataclasses
import time

import prometheus_client as prometheus

from serving.terminal import LOGGER

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64)
CLIENT_GONE = 499
"""The status, in metrics and in the log, of requests whose answer nobody receives."""
REASONS = {
    400: "a wrong request",
    401: "no token, or a wrong one",
    403: "a page of another origin",
    404: "no such route, session or model",
    405: "a wrong method",
    408: "the request did not come in time",
    409: "the session is busy",
    413: "the request is too large",
    415: "an encoding that is not accepted",
    CLIENT_GONE: "the client is gone",
    500: "the server failed",
}
"""The log's words for a status. They never show what was sent, which can be private."""


@dataclasses.dataclass
class Record:
    """The facts about a request.

    Attributes:
        route: the pattern of its path.
        method: of HTTP.
        begun: the time at which it began, time.monotonic().
        tokens: the tokens read or made for it, if the model tells.
        failed: whether its answer began and then broke off.
        refused: why the server cannot answer it now, status 503.
    """

    route: str
    method: str
    begun: float = dataclasses.field(default_factory=time.monotonic)
    tokens: int = 0
    failed: bool = False
    refused: str | None = None


class Metrics:
    """The metrics of a server.

    Args:
        sessions, waiting, inside: functions that return how many sessions are open, calls of the model wait, and
            requests are in progress.
    """

    def __init__(self, sessions, waiting, inside):
        self.registry = prometheus.CollectorRegistry()
        own = {"namespace": "serve", "registry": self.registry}
        self._requests = prometheus.Counter("requests", "Requests answered", ["route", "status"], **own)
        self._seconds = prometheus.Histogram(
            "request_seconds", "From a request's headers to its answer's end", ["route"], buckets=SECONDS, **own
        )
        self._tokens = prometheus.Counter("tokens", "Tokens read or made", ["route"], **own)
        self._bytes = prometheus.Counter("answer_bytes", "Bytes of answers", ["route"], **own)
        self._calls = prometheus.Histogram("call_seconds", "A call of the model", ["call"], buckets=SECONDS, **own)
        self._rows = prometheus.Histogram("call_rows", "Texts in a call of the model", ["call"], buckets=ROWS, **own)
        for name, text, value in (
            ("sessions", "Sessions that are open", sessions),
            ("calls_waiting", "Calls of the model that wait", waiting),
            ("requests_in_progress", "Requests that wait or are computed", inside),
        ):
            prometheus.Gauge(name, text, **own).set_function(value)
        prometheus.ProcessCollector(registry=self.registry)  # memory, processor time, open files

    def observe_call(self, function, rows, seconds):
        """Counts a call of the model; from any thread."""
        name = getattr(function, "func", function).__name__.strip("_")
        if name == "call":  # a signature of its own
            name = function.args[0]
        self._calls.labels(name).observe(seconds)
        self._rows.labels(name).observe(rows)

    def end(self, record, status, size):
        """Counts and logs a request: its status, and the bytes of its answer."""
        seconds = time.monotonic() - record.begun
        self._requests.labels(record.route, status).inc()
        self._seconds.labels(record.route).observe(seconds)
        self._tokens.labels(record.route).inc(record.tokens)
        self._bytes.labels(record.route).inc(size)
        line = {"method": record.method, "route": record.route, "status": status, "seconds": round(seconds, 4)}
        line |= {"tokens": record.tokens, "bytes": size}
        reason = "the answer broke off" if record.failed else record.refused or REASONS.get(status)
        LOGGER.info(line | ({"error": reason} if reason else {}))

    def text(self):
        """The metrics in Prometheus's text format, and its content type."""
        return prometheus.generate_latest(self.registry), prometheus.CONTENT_TYPE_LATEST

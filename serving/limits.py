"""Bounds on the requests of one client, so that others are served, and memory does not grow with requests."""

import dataclasses
import math

from serving.errors import RequestError, StartError

CALL_COPIES = 5
"""The copies of a call's caches that are in memory at a time: stacked, padded, by layer, new ones."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a server. The command's flags set those in `FLAGS`.

    Attributes:
        max_sessions: the most open sessions; fewer if `memory_mb` does not hold their caches.
        session_seconds: a session is closed after this time without a request.
        max_requests: the most that wait or are computed at a time.
        memory_mb: MiB for caches: half of it for sessions, half for texts that are being generated.
        body_bytes: of a request.
        text_bytes: of one text, prompt or string of a request.
        text_tokens: of a prompt, or of one text that a Transformer-XL scores; its time grows with them.
        texts: of one request, `batch_rows` at a time.
        prompts: of one request.
        stop_strings: of one request.
        max_tokens: the most new tokens of one text.
        session_values: tokens of one step of a session, times the vocabulary: its log-probabilities are in memory.
        answer_values: numbers in one answer, such as vectors of tokens, or log-probabilities.
        batch_rows: texts in one call of the model.
        connections: open at a time.
        header_seconds, body_seconds: a new client must send its headers, and any client its body, within these times.
        idle_seconds: a connection stays this long after an answer; proxies keep theirs for 60 s, and reuse them.
        send_seconds: a client must receive its answer within this time.
        wait_seconds: a request that cannot begin within this time is refused.
        slice_seconds: a text is read or continued for about this time, and at most about four times this time, before
            others have their turn.
        ready_seconds: programs that are not compiled this long after each route has run are compiled later, between
            requests.
        stop_seconds: after a signal, requests may finish within this time; then they are cut.
    """

    max_sessions: int = 100
    session_seconds: float = 600.0
    max_requests: int = 64
    memory_mb: int = 2048
    body_bytes: int = 1 << 20
    text_bytes: int = 1 << 16
    text_tokens: int = 8192
    texts: int = 1024
    prompts: int = 64
    stop_strings: int = 16
    max_tokens: int = 10_000
    session_values: int = 1 << 24
    answer_values: int = 1 << 20
    batch_rows: int = 8
    connections: int = 512
    header_seconds: float = 10.0
    idle_seconds: float = 75.0
    body_seconds: float = 20.0
    send_seconds: float = 20.0
    wait_seconds: float = 30.0
    slice_seconds: float = 0.25
    ready_seconds: float = 30.0
    stop_seconds: float = 3.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and 0 < value < 2**31):  # false for NaN
                raise StartError(f"--{field.name}={value} must be above 0, and below {2**31:,}")

    def rows(self, cache_bytes):
        """Texts in one call of the model, and texts that are generated at a time, for caches of that size.

        They have half of the memory: a quarter for the caches between calls, and a quarter for the copies in a call.
        The number of rows is a power of two, since a model is compiled for each number.
        """
        quarter, cache_bytes = (self.memory_mb << 20) // 4, max(cache_bytes, 1)
        in_call = max(1, min(self.batch_rows, quarter // (CALL_COPIES * cache_bytes)))
        in_call = 1 << (in_call.bit_length() - 1)
        return in_call, max(in_call, min(self.max_requests * in_call, quarter // cache_bytes))

    def sessions(self, cache_bytes):
        """How many sessions may be open."""
        return max(1, min(self.max_sessions, (self.memory_mb << 20) // 2 // max(cache_bytes, 1)))

    def check_count(self, name, count, most):
        """Raises RequestError if a list of the request is too long."""
        if count > most:
            raise RequestError(413, f"{name} has {count:,} entries: one request may have at most {most:,}")

    def check_text(self, name, size):
        """Raises RequestError if a text of the request is too long; size: in bytes."""
        if size > self.text_bytes:
            reason = f"{name} has {size:,} bytes: a text may have at most {self.text_bytes:,}"
            raise RequestError(413, reason, param=name)

    def check_answer(self, count, remedy):
        """Raises RequestError if an answer would have too many values; remedy: advice for the message."""
        if count > self.answer_values:
            raise RequestError(413, f"the answer would have {count:,} values, at most {self.answer_values:,}: {remedy}")


FLAGS = {
    "max_sessions": "the most open sessions; fewer if --memory_mb does not hold them",
    "session_seconds": "a session is closed after this many seconds without a request",
    "max_requests": "requests that may wait or be computed at a time; further ones get status 503",
    "memory_mb": "MiB for the caches of sessions and of texts that are being generated",
}
"""The limits that are flags, with their help."""

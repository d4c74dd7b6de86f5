"""Sessions: caches of texts that the server keeps, so that the cost of a token does not grow with the text."""

import asyncio
import collections
import dataclasses
import functools
import time
import uuid
from typing import Any

import numpy as np

from serving import fields
from serving.answers.reading import step_texts
from serving.errors import RequestError

MAX_TOP = 1000
"""The most next tokens in one answer."""


@dataclasses.dataclass(eq=False)
class Session:
    """The cache of a text, which one request at a time uses, and the time of its last use."""

    used: float
    cache: dict[str, Any]
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class Sessions:
    """All sessions.

    Args:
        model: a Model.
        turns: its Turns.
        limits: a Limits.
        rows: texts in one call.
        clock: returns the time in seconds.
    """

    def __init__(self, model, turns, limits, rows, clock=time.monotonic):
        self._model, self._turns, self._limits, self._rows, self._clock = model, turns, limits, rows, clock
        self._most = limits.sessions(model.cache_bytes)
        self._sessions = collections.OrderedDict()  # by id, in the order of their last use

    def __len__(self):
        self._forget_old()
        return len(self._sessions)

    async def open(self, request, record):
        """A new session's id."""
        del record
        fields.check_known(request, ())
        if len(self) >= self._most:
            oldest = next(iter(self._sessions.values()))
            which = "session is" if self._most == 1 else "sessions are"
            raise RequestError(
                429,
                f"{self._most} {which} open, and no more may be: close one, or wait",
                retry_seconds=max(1.0, self._limits.session_seconds - (self._clock() - oldest.used)),
            )
        name = uuid.uuid4().hex
        self._sessions[name] = Session(self._clock(), self._model.empty_cache)
        return {"session": name}

    async def step(self, request, record, session):
        """Reads request["tokens"] in this session: its length, and the request["top"] most likely next tokens."""
        fields.check_known(request, ("tokens", "top"))
        vocab_size = self._model.vocab_size
        tokens = fields.integers(request, "tokens", range(vocab_size))
        top = min(fields.number(request, "top", int, 1), vocab_size)
        if not tokens or not 1 <= top <= MAX_TOP:
            raise RequestError(400, f"there must be at least one of tokens, and top must be from 1 to {MAX_TOP}")
        most = max(1, min(self._limits.text_tokens, self._limits.session_values // vocab_size))
        self._limits.check_count("tokens", len(tokens), most)
        session = self._session(session)
        async with session.lock:
            item = (np.array([tokens], np.int32), session.cache)
            key = "step" if len(tokens) == 1 else None  # the log-probabilities after many tokens fill memory
            step = functools.partial(step_texts, self._model)
            session.cache, log_probs = await self._turns.run(step, item, key, most=self._rows)
            length = int(session.cache["length"][0])
        record.tokens += len(tokens)
        best = np.argsort(-log_probs, kind="stable")[:top]
        following = [{"token": int(token), "log_prob": float(log_probs[token])} for token in best]
        return {"length": length, "next": following}

    def close(self, session):
        """Closes the session of this id."""
        self._session(session)
        del self._sessions[session]
        return {}

    def _session(self, name):
        self._forget_old()
        if name not in self._sessions:
            raise RequestError(
                404, f"there is no session {fields.shown(name)}, or no more: open one with POST /sessions"
            )
        self._sessions.move_to_end(name)
        self._sessions[name].used = self._clock()
        return self._sessions[name]

    def _forget_old(self):
        now = self._clock()
        while self._sessions and now - next(iter(self._sessions.values())).used > self._limits.session_seconds:
            self._sessions.popitem(last=False)

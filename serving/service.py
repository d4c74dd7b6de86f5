"""A model, ready to answer requests."""

import asyncio
import collections
import time

from serving.answers.catalogue import Catalogue
from serving.answers.completions import Completions
from serving.answers.first_calls import each_length, each_route
from serving.answers.generation import Generation
from serving.answers.predict import Predict
from serving.answers.sessions import Sessions
from serving.answers.texts import Texts
from serving.answers.tokens import Embeddings, Tokens
from serving.limits import Limits
from serving.metrics import Metrics, Record
from serving.model import ServedModel
from serving.terminal import LOGGER
from serving.turns import Admission, Turns

LOG_SECONDS = 5.0
"""A line in the log says how far the server is, as often as this."""
IDLE_SECONDS = 0.05
"""How often a program that can wait looks whether there are requests."""
QUIET_SECONDS = 3.0
"""A program that can wait begins this long after the last request: a client often asks again at once."""


class Service:
    """The parts of a server for a model, in one event loop.

    Args:
        export_dir: a SavedModel, such as scripts/export_savedmodel.py writes.
        limits: a Limits; None: the defaults.
        clock: returns the time in seconds, for sessions.
        model_name: None: the name of its folder.

    Attributes:
        ready: whether the model is warmed up, so that requests are answered at once.
        stopping: whether the server is about to end, and takes no further requests.

    Raises:
        StartError: export_dir is no SavedModel, or damaged.
    """

    def __init__(self, export_dir, limits=None, clock=time.monotonic, model_name=None):
        self.limits = limits = limits or Limits()
        self.ready = self.stopping = False
        self.model = model = ServedModel(export_dir, model_name)
        cached, rows = limits.rows(model.cache_bytes)
        # An XLNet has a cache only of texts that it continues, so it may compute more other texts at once.
        batch = limits.rows(0)[0] if model.kind.newer else cached
        self.turns = turns = Turns(model.cancellable, batch, lambda *call: self.metrics.observe_call(*call))
        self.admission = Admission(limits.max_requests, rows, limits.wait_seconds)
        self.sessions = Sessions(model, turns, limits, cached, clock)
        self.metrics = Metrics(
            sessions=lambda: len(self.sessions),
            waiting=lambda: turns.waiting,
            inside=lambda: self.admission.inside,
        )
        self.generation = Generation(model, turns, self.admission, limits, cached)
        self.texts = Texts(model, turns, limits, batch)
        self.catalogue = catalogue = Catalogue(model, limits, lambda: self.ready)
        self.predict = Predict(model, turns, limits, batch, catalogue, self.generation, self.texts)
        self.completions = Completions(model, turns, self.admission, limits, cached, catalogue, self.generation)
        self.embeddings = Embeddings(self.texts, limits, catalogue)
        self.tokens = Tokens(model, turns, limits, catalogue)
        continuing = [self.generation.warm_up, self._open_a_session] if model.continues else []
        lengths = each_length(model, self.texts, batch)
        self._left = collections.deque([*continuing, *each_route(model, self.texts), *lengths])
        self._programs, self._can_wait, self._told = len(self._left), len(lengths), time.monotonic()

    @property
    def progress(self):
        """How far it is, in words."""
        return f"getting ready, {self._programs - len(self._left)} of {self._programs}"

    async def warm_up(self):
        """Runs the programs of all routes, so that no request waits for compilation; then the service is ready.

        Each route runs once. Those that have programs for several lengths and numbers of texts then run these, but not
        longer than `limits.ready_seconds`: `warm_up_later` does the rest.
        """
        while len(self._left) > self._can_wait:
            await self._run_next()
        end = time.monotonic() + self.limits.ready_seconds
        while self._left and time.monotonic() < end:
            await self._run_next()
        self.ready = True

    async def warm_up_later(self):
        """Runs the programs that are left, while there are no requests."""
        self.admission.ended = time.monotonic()  # a client may have waited for the server
        while self._left:
            while self.admission.inside or time.monotonic() < self.admission.ended + QUIET_SECONDS:
                await asyncio.sleep(IDLE_SECONDS)
            await self._run_next()

    async def _run_next(self):
        await self._left[0]()
        self._left.popleft()
        if time.monotonic() > self._told + LOG_SECONDS:
            self._told = time.monotonic()
            LOGGER.info({"message": self.progress})

    async def _open_a_session(self):
        record = Record("/sessions", "POST")
        name = (await self.sessions.open({}, record))["session"]
        await self.sessions.step({"tokens": [0]}, record, name)
        self.sessions.close(name)

    def stop(self):
        """Refuses all requests from now on, also those in progress."""
        self.stopping = True
        self.turns.stop()
        self.admission.stop()

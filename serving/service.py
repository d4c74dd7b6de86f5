"""A model, ready to answer requests."""

import time

from serving.answers.catalogue import Catalogue
from serving.answers.completions import Completions
from serving.answers.generation import Generation
from serving.answers.predict import Predict
from serving.answers.sessions import Sessions
from serving.answers.texts import Texts
from serving.answers.tokens import Embeddings, Tokens
from serving.limits import Limits
from serving.metrics import Metrics, Record
from serving.model import ServedModel
from serving.turns import Admission, Turns


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

    async def warm_up(self):
        """Runs each route's programs once, so that no request waits for compilation; then the service is ready."""
        if self.model.continues:
            await self.generation.warm_up()
            await self._open_a_session()
        await self.texts.warm_up()
        self.ready = True

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

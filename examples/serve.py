r"""An HTTP server for an exported model, in plain TensorFlow and aiohttp: an example to start from.

    pip install tensorflow tensorflow-text -r examples/requirements.txt
    python scripts/export_savedmodel.py --model_dir=runs/demo --export_dir=exports/demo
    python examples/serve.py --export_dir=exports/demo --port=8080

    curl localhost:8080/generate -d '{"prompts": ["def main("], "max_tokens": 100, "top_p": 0.9, "stop": ["\n\n"]}'
    curl -N localhost:8080/stream -d '{"prompt": "def main(", "max_tokens": 5000}'  # a line of JSON for each piece
    curl localhost:8080/sampling                                          # the settings of sampling, their ranges
    curl localhost:8080/score -d '{"texts": ["import os", "import so"]}'
    curl localhost:8080/sessions -d '{}'                                  # answers {"session": ID}
    curl localhost:8080/sessions/ID -d '{"tokens": [100, 101], "top": 3}' # read tokens, see what comes next
    curl -X DELETE localhost:8080/sessions/ID

An exported XLNet is served with other routes; /score is of both:

    curl localhost:8080/fill -d '{"texts": ["The capital of France is ____ ."], "top": 3, "order": "confident"}'
    curl localhost:8080/encode -d '{"texts": ["A question?"], "second": ["A passage."], "pool": "mean"}'

A fine-tuned XLNet has the route of its task; all inputs of a request are computed together:

    curl localhost:8080/classify -d '{"texts": ["A fine film.", "A dull one."]}'     # "second": texts of pairs
    curl localhost:8080/regress -d '{"texts": ["A man sings."], "second": ["A man is singing."]}'
    curl localhost:8080/answer -d '{"questions": ["Where does it rain?"], "contexts": ["It rains in Spain."]}'
    curl localhost:8080/choose -d '{"articles": ["It rains."], "questions": ["It is _ ."], "options": [["wet", "dry"]]}'

A session keeps the cache of the text so far, so the cost of a token does not grow with the text. A wrong request or an
unknown field is answered with status 4xx and {"error": reason}. The settings of sampling (temperature, top_k, ..) are
those that the export wrote into sampling.json; each has a default.

TensorFlow Serving takes the same SavedModel, in a folder named after its version. This has not been run by us, who have
no build of it with the ops of tensorflow-text, which subword vocabularies need (the others do not):

    tensorflow_model_server --rest_api_port=8501 --model_name=demo --model_base_path=$PWD/exports  # exports/1 the model
    curl localhost:8501/v1/models/demo:predict -d '{"signature_name": "score", "inputs": {"texts": ["import os"]}}'

The signature `generate` needs all of its inputs there, also every setting of sampling: the README.md beside the
SavedModel lists them with the values that change nothing.
"""

import argparse
import asyncio
import codecs
import collections
import json
import os
import sys
import time
import uuid

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from aiohttp import web

MAX_BODY_BYTES = 1 << 20
DEFAULT_TOKENS, MAX_TOKENS = 100, 10_000
STREAM_TOKENS = 16  # so many between two pieces of streamed text
DEFAULT_BEAM, DEFAULT_TOP, MAX_BEAM = 8, 5, 64
POOLS = {"last": "pooled", "first": "first", "mean": "mean"}  # the outputs of the signature encode

KINDS = {
    "generate": ("a Transformer-XL", ("/sampling", "/generate", "/stream", "/sessions", "/score")),
    "fill": ("an XLNet", ("/fill", "/encode", "/score")),
    "classify": ("an XLNet for classification", ("/classify",)),
    "regress": ("an XLNet for regression", ("/regress",)),
    "choose": ("an XLNet for multiple choice", ("/choose",)),
    "answer": ("an XLNet that answers questions", ("/answer",)),
}
"""By a signature that no other kind of model has: what the model is, and the routes for it."""


class RequestError(Exception):
    """An error in a request, with its HTTP status."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Session:
    """The cache of a text, used by one request at a time, and the time of its last use."""

    def __init__(self, cache):
        self.cache = cache
        self.lock = asyncio.Lock()
        self.used = None


class Service:
    """The model's answers, without HTTP.

    Args:
        export_dir: a SavedModel that scripts/export_savedmodel.py wrote.
        max_sessions: how many may be open.
        session_seconds: a session is closed after so many seconds without a request.
        clock: returns the time in seconds.
    """

    def __init__(self, export_dir, max_sessions=100, session_seconds=600.0, clock=time.monotonic):
        self.model = tf.saved_model.load(export_dir)
        self.signatures = self.model.signatures
        self.settings, self.vocab_size = [], 0
        if "generate" in self.signatures:
            with tf.io.gfile.GFile(tf.io.gfile.join(export_dir, "sampling.json")) as file:
                self.settings = json.load(file)
            self.vocab_size = self.signatures["step"].structured_outputs["log_probs"].shape[-1]
        elif not any(name in self.signatures for name in KINDS):
            raise ValueError(f"it has none of the signatures {', '.join(KINDS)}")
        self.max_sessions = max_sessions
        self.session_seconds = session_seconds
        self.clock = clock
        self.sessions = collections.OrderedDict()  # by id, the one used last at the end

    async def run(self, signature, **tensors):
        """The outputs of a signature, computed in a thread; what it finds wrong is the client's fault."""
        try:
            return await asyncio.to_thread(self.signatures[signature], **tensors)
        except tf.errors.InvalidArgumentError as error:  # the model checks its inputs itself
            reason = error.message.partition("[")[2].partition("]")[0] or error.message
            raise RequestError(400, reason) from None

    async def generate(self, request):
        """Texts that continue request["prompts"]."""
        self._check_fields(request, "prompts", "seeds", "stop", *self._sampling_fields())
        prompts = strings(request, "prompts")
        seeds = integers(request, "seeds", range(-(2**31), 2**31), default=list(range(len(prompts))))
        stop = tf.constant(strings(request, "stop", at_least=0), tf.string)
        out = await self.run(
            "generate", prompts=tf.constant(prompts), seeds=tf.constant(seeds), stop=stop, **self._sampling(request)
        )
        return {"texts": [text.decode("utf-8", "replace") for text in out["texts"].numpy()]}

    async def stream(self, request):
        """Pieces of the text that continues request["prompt"]."""
        self._check_fields(request, "prompt", "seed", *self._sampling_fields())
        options = self._sampling(request)
        left = int(options.pop("max_tokens"))
        options["seeds"] = tf.constant([number(request, "seed", int, 0)])
        prompt = await self.run("encode", texts=tf.constant([string(request, "prompt")]))
        tokens = prompt["tokens"] if prompt["lengths"][0] else tf.reshape(prompt["start_token"], [1, 1])
        cache = await self.run("initial_cache", batch_size=tf.constant(1))
        made, sent, text = [], 0, codecs.getincrementaldecoder("utf-8")("replace")
        while left > 0:
            n = min(left, STREAM_TOKENS) if made else 1
            cache = await self.run("write", tokens=tokens, max_tokens=tf.constant(n), **options, **cache)
            made.append(cache.pop("made"))
            tokens, left = made[-1][:, -1:], left - n
            # Decoded from the first token on: words may stand otherwise at the beginning of a text than within it.
            whole = (await self.run("decode", tokens=tf.concat(made, axis=1)))["texts"].numpy()[0]
            yield text.decode(whole[sent:], final=not left)
            sent = len(whole)

    async def score(self, request):
        """Log-probabilities of request["texts"]."""
        self._check_fields(request, "texts")
        scores = await self.run("score", texts=tf.constant(strings(request, "texts")))
        rows = zip(scores["tokens"].numpy(), scores["log_probs"].numpy(), scores["lengths"].numpy(), strict=True)
        tokens, log_probs = zip(*((ids[:n].tolist(), values[:n].tolist()) for ids, values, n in rows), strict=True)
        return {"total": scores["total"].numpy().tolist(), "tokens": tokens, "log_probs": log_probs}

    async def fill(self, request):
        """The likeliest fillings of the blanks in request["texts"]: for each text a list, the likeliest first."""
        self._check_fields(request, "texts", "context", "order", "beam_size", "top", "free")
        beam_size = number(request, "beam_size", int, DEFAULT_BEAM)
        top = number(request, "top", int, min(DEFAULT_TOP, beam_size))
        free = request.get("free", False)
        if not 1 <= top <= beam_size <= MAX_BEAM:
            raise RequestError(400, f"top must be from 1 to beam_size, and beam_size at most {MAX_BEAM}")
        if not isinstance(free, bool):
            raise RequestError(400, "free must be true or false")
        out = await self.run(
            "fill",
            texts=tf.constant(strings(request, "texts")),
            context=tf.constant(string(request, "context", "")),
            order=tf.constant(string(request, "order", "left_to_right")),
            beam_size=tf.constant(beam_size),
            top=tf.constant(top),
            free=tf.constant(free),
        )
        found = (out[name].numpy() for name in ("texts", "tokens", "log_probs", "total"))
        return {
            "fillings": [
                [
                    {
                        "text": text.decode("utf-8", "replace"),
                        "tokens": ids[ids >= 0].tolist(),
                        "log_probs": log_probs[ids >= 0].tolist(),
                        "total": float(total),
                    }
                    for text, ids, log_probs, total in zip(*of_text, strict=True)
                    if np.isfinite(total)
                ]
                for of_text in zip(*found, strict=True)
            ]
        }

    async def encode(self, request):
        """Vectors of request["texts"], or of pairs of them and request["second"]; with "per_token" of each token."""
        pairs = self._pairs(request, "pool", "per_token")
        pool = string(request, "pool", "last")
        if pool not in POOLS:
            raise RequestError(400, f"pool must be one of {', '.join(POOLS)}")
        out = await self.run("encode", **pairs)
        lengths = out["lengths"].numpy()
        answer = {"pooled": out[POOLS[pool]].numpy().tolist()}
        answer["tokens"] = [row[:n].tolist() for row, n in zip(out["tokens"].numpy(), lengths, strict=True)]
        if request.get("per_token", False):
            answer["hidden"] = [row[:n].tolist() for row, n in zip(out["hidden"].numpy(), lengths, strict=True)]
        return answer

    async def classify(self, request):
        """The most likely class of each of request["texts"], or of pairs of them and request["second"]."""
        out = await self.run("classify", **self._pairs(request))
        classes = [name.decode() for name in out["classes"].numpy()]
        rows = out["probabilities"].numpy().tolist()
        return {
            "labels": [label.decode() for label in out["labels"].numpy()],
            "probabilities": [dict(zip(classes, row, strict=True)) for row in rows],
        }

    async def regress(self, request):
        """The score of each of request["texts"], or of pairs of them and request["second"]."""
        return {"scores": (await self.run("regress", **self._pairs(request)))["scores"].numpy().tolist()}

    async def choose(self, request):
        """The most likely of request["options"], a list for each of request["questions"] on request["articles"]."""
        self._check_fields(request, "articles", "questions", "options")
        options = request.get("options")
        if not isinstance(options, list) or not options:
            raise RequestError(400, "options must be a list of lists of strings, at least 1")
        options = [strings({"options": row}, "options", at_least=2) for row in options]
        if len({len(row) for row in options}) > 1:
            raise RequestError(400, "all questions of a request must have the same number of options")
        texts = {name: tf.constant(strings(request, name)) for name in ("articles", "questions")}
        out = await self.run("choose", options=tf.constant(options), **texts)
        return {"choices": out["choice"].numpy().tolist(), "probabilities": out["probabilities"].numpy().tolist()}

    async def answer(self, request):
        """The most likely answer to each of request["questions"], in the text of request["contexts"]."""
        self._check_fields(request, "questions", "contexts")
        texts = {name: tf.constant(strings(request, name)) for name in ("questions", "contexts")}
        out = {name: values.numpy().tolist() for name, values in (await self.run("answer", **texts)).items()}
        names = ("begin", "end", "probability", "no_answer_probability")
        rows = zip(*(out[name] for name in names), strict=True)
        return {
            "answers": [
                {"text": text.decode()} | dict(zip(names, row, strict=True))
                for text, row in zip(out["answers"], rows, strict=True)
            ]
        }

    async def open_session(self, request):
        """A new session's id."""
        self._check_fields(request)
        self._forget_old_sessions()
        if len(self.sessions) >= self.max_sessions:
            raise RequestError(429, f"{self.max_sessions} sessions are open, and no more may be: close one, or wait")
        name = uuid.uuid4().hex
        session = self.sessions[name] = Session(None)
        session.used = self.clock()
        session.cache = await self.run("initial_cache", batch_size=tf.constant(1))
        return {"session": name}

    async def step(self, name, request):
        """Reads request["tokens"] in a session: its length, and the request["top"] most likely next tokens."""
        self._check_fields(request, "tokens", "top")
        tokens = integers(request, "tokens", range(self.vocab_size))
        top = min(number(request, "top", int, 1), self.vocab_size)
        if not tokens or top < 1:
            raise RequestError(400, "there must be at least one of tokens, and top must be at least 1")
        session = self._session(name)
        async with session.lock:
            out = await self.run("step", tokens=tf.constant([tokens]), **session.cache)
            log_probs = out.pop("log_probs")[0, -1].numpy()
            session.cache = out
        best = np.argsort(-log_probs)[:top]
        following = [{"token": int(token), "log_prob": float(log_probs[token])} for token in best]
        return {"length": int(out["length"][0]), "next": following}

    async def close_session(self, name):
        """Closes a session."""
        self._session(name)
        del self.sessions[name]
        return {}

    def _pairs(self, request, *further):
        """request["texts"], and request["second"] or empty texts, as tensors; `further` fields may be given."""
        self._check_fields(request, "texts", "second", *further)
        texts = strings(request, "texts")
        second = strings(request, "second", at_least=0) or [""] * len(texts)
        return {"texts": tf.constant(texts), "second": tf.constant(second)}

    def _sampling_fields(self):
        return ["max_tokens", *(setting["name"] for setting in self.settings)]

    def _check_fields(self, request, *known):
        unknown = [name for name in request if name not in known]
        if unknown:
            fields = f"choose from {', '.join(known)}" if known else "there are none"
            raise RequestError(400, f"{unknown[0]!r} is not a field of this request: {fields}")

    def _sampling(self, request):
        """max_tokens and the settings of sampling as tensors."""
        values = {"max_tokens": number(request, "max_tokens", int, DEFAULT_TOKENS)}
        if not 1 <= values["max_tokens"] <= MAX_TOKENS:
            raise RequestError(400, f"max_tokens must be at least 1 and at most {MAX_TOKENS}")
        for setting in self.settings:
            name, low, high = setting["name"], setting["low"], setting["high"]
            value = values[name] = number(
                request, name, {"int": int, "float": float}[setting["type"]], setting["default"]
            )
            if value < low or (value == low and setting["above_low"]) or (high is not None and value > high):
                raise RequestError(400, f"{name} must be {setting['range']}")
        return {name: tf.constant(value) for name, value in values.items()}

    def _session(self, name):
        self._forget_old_sessions()
        if name not in self.sessions:
            raise RequestError(404, f"there is no session {name!r}, or no more: open one with POST /sessions")
        self.sessions.move_to_end(name)
        self.sessions[name].used = self.clock()
        return self.sessions[name]

    def _forget_old_sessions(self):
        while self.sessions and self.clock() - next(iter(self.sessions.values())).used > self.session_seconds:
            self.sessions.popitem(last=False)


def make_app(service):
    """The aiohttp application of a Service."""
    kind = next(name for name in KINDS if name in service.signatures)
    routes_of = {route: title for title, routes in reversed(KINDS.values()) for route in routes}
    available = KINDS[kind][1]

    @web.middleware
    async def only_what_the_model_can(request, handler):
        route = "/" + request.path.split("/")[1]
        if route in routes_of and route not in available:
            known = ", ".join(available)
            raise RequestError(404, f"{route} is for {routes_of[route]}: the model that is served has {known}")
        if route == "/encode" and "encode" not in service.signatures:
            raise RequestError(404, "the model that is served has no encode: its vocabulary has no <sep> and <cls>")
        return await handler(request)

    def post(answer):
        async def handler(request):
            return web.json_response(await answer(await body(request)))

        return handler

    async def settings(request):
        del request
        return web.json_response(service.settings)

    async def step(request):
        return web.json_response(await service.step(request.match_info["session"], await body(request)))

    async def close(request):
        return web.json_response(await service.close_session(request.match_info["session"]))

    async def stream(request):
        pieces = service.stream(await body(request))
        first = await anext(pieces)  # errors are raised here, before the answer begins
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(json.dumps({"text": first}).encode() + b"\n")
        async for piece in pieces:
            await response.write(json.dumps({"text": piece}).encode() + b"\n")
        await response.write_eof()
        return response

    app = web.Application(middlewares=[errors_as_json, only_what_the_model_can], client_max_size=MAX_BODY_BYTES)
    app.add_routes(
        [
            web.get("/sampling", settings),
            web.post("/generate", post(service.generate)),
            web.post("/stream", stream),
            web.post("/score", post(service.score)),
            web.post("/fill", post(service.fill)),
            web.post("/encode", post(service.encode)),
            web.post("/classify", post(service.classify)),
            web.post("/regress", post(service.regress)),
            web.post("/choose", post(service.choose)),
            web.post("/answer", post(service.answer)),
            web.post("/sessions", post(service.open_session)),
            web.post("/sessions/{session}", step),
            web.delete("/sessions/{session}", close),
        ]
    )
    return app


@web.middleware
async def errors_as_json(request, handler):
    """Answers an error with its status and {"error": reason}."""
    try:
        return await handler(request)
    except RequestError as error:
        return web.json_response({"error": str(error)}, status=error.status)
    except web.HTTPException as error:  # no such route, a body that is too large, ..
        reason = f"{request.method} {request.path}: {error.reason}"
        return web.json_response({"error": reason}, status=error.status)


async def body(request):
    """The JSON object in the request."""
    try:
        sent = json.loads(await request.read())
    except ValueError as error:
        raise RequestError(400, f"the request is not JSON: {error}") from None
    if not isinstance(sent, dict):
        raise RequestError(400, "the request must be a JSON object")
    return sent


def string(request, name, default=None):
    """request[name], a string."""
    value = request.get(name, default)
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a string")
    return value


def strings(request, name, at_least=1):
    """request[name], a list of strings; none is an empty one."""
    values = request.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values) or len(values) < at_least:
        raise RequestError(400, f"{name} must be a list of strings, at least {at_least}")
    return values


def integers(request, name, allowed, default=None):
    """request[name], a list of integers within a range."""
    values = request.get(name, default)
    if not isinstance(values, list) or not all(type(value) is int and value in allowed for value in values):
        raise RequestError(400, f"{name} must be a list of integers from {allowed[0]} to {allowed[-1]}")
    return values


def number(request, name, kind, default):
    """request[name], a number."""
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise RequestError(400, f"{name} must be of type {kind.__name__}, not {value!r}")
    if not abs(value) < 2**31:  # nor NaN
        raise RequestError(400, f"{name}={value} is too large or no number")
    return kind(value)


def main():
    """Serves until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export_dir", required=True, help="what scripts/export_savedmodel.py wrote")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--max_sessions", type=int, default=100, help="how many may be open at once")
    parser.add_argument(
        "--session_seconds", type=float, default=600, help="a session is closed after so many seconds without a request"
    )
    args = parser.parse_args()
    import tensorflow_text  # noqa: F401 (registers the ops of subword vocabularies)

    try:
        service = Service(args.export_dir, args.max_sessions, args.session_seconds)
    except (OSError, KeyError, ValueError, tf.errors.NotFoundError) as error:
        sys.exit(f"error: {args.export_dir} is not an exported model: {' '.join(str(error).split())}")
    web.run_app(make_app(service), host=args.host, port=args.port)


if __name__ == "__main__":
    main()

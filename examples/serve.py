"""A small HTTP server for an exported model, in plain TensorFlow and the standard library: a start for your own.

    python scripts/export_savedmodel.py --model_dir=runs/demo --export_dir=exports/demo
    python examples/serve.py --export_dir=exports/demo --port=8080

    curl localhost:8080/generate -d '{"prompts": ["def main("], "max_tokens": 100, "temperature": 0.8}'
    curl localhost:8080/score -d '{"texts": ["import os", "import so"]}'
    curl localhost:8080/sessions -d '{}'                                  # answers {"session": ID}
    curl localhost:8080/sessions/ID -d '{"tokens": [100, 101], "top": 3}' # read tokens, see what comes next
    curl -X DELETE localhost:8080/sessions/ID

A session keeps the cache of what it has read, so a token costs the same however long the text is. A request that is
wrong is answered with status 4xx and {"error": reason}.
"""

import argparse
import collections
import http.server
import json
import os
import sys
import threading
import uuid

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

MAX_BODY_BYTES = 1 << 20
MAX_TOKENS = 10_000
OPTIONS = {"max_tokens": (int, 100), "temperature": (float, 1.0), "top_k": (int, 0), "top_p": (float, 1.0)}


class RequestError(Exception):
    """What the client did wrong, with its HTTP status."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Service:
    """The model's answers, without HTTP.

    Args:
        export_dir: a SavedModel that scripts/export_savedmodel.py wrote.
        max_sessions: how many are kept; beyond that the one unused for longest is forgotten.
    """

    def __init__(self, export_dir, max_sessions=100):
        self.model = tf.saved_model.load(export_dir)
        self.signatures = self.model.signatures
        self.vocab_size = self.signatures["step"].structured_outputs["log_probs"].shape[-1]
        self.max_sessions = max_sessions
        self.sessions = collections.OrderedDict()  # id -> (lock, cache), the one used last at the end
        self.lock = threading.Lock()

    def generate(self, request):
        """Texts that continue request["prompts"]."""
        prompts = strings(request, "prompts")
        options = {name: number(request, name, kind, default) for name, (kind, default) in OPTIONS.items()}
        if options["max_tokens"] > MAX_TOKENS:
            raise RequestError(400, f"max_tokens must be at most {MAX_TOKENS}")
        seeds = integers(request, "seeds", range(-(2**31), 2**31), default=[0] * len(prompts))
        tensors = {name: tf.constant(value) for name, value in options.items()}
        try:
            texts = self.signatures["generate"](prompts=tf.constant(prompts), seeds=tf.constant(seeds), **tensors)
        except tf.errors.InvalidArgumentError as error:  # the model checks its options itself
            raise RequestError(400, error.message.partition("[")[2].partition("]")[0] or error.message) from None
        return {"texts": [text.decode("utf-8", "replace") for text in texts["texts"].numpy()]}

    def score(self, request):
        """Log-probabilities of request["texts"]."""
        scores = self.signatures["score"](texts=tf.constant(strings(request, "texts")))
        rows = zip(scores["tokens"].numpy(), scores["log_probs"].numpy(), scores["lengths"].numpy(), strict=True)
        tokens, log_probs = zip(*((ids[:n].tolist(), values[:n].tolist()) for ids, values, n in rows), strict=True)
        return {"total": scores["total"].numpy().tolist(), "tokens": tokens, "log_probs": log_probs}

    def open_session(self, request):
        """A new session's id."""
        del request
        session = uuid.uuid4().hex
        with self.lock:
            self.sessions[session] = (threading.Lock(), self.signatures["initial_cache"](batch_size=tf.constant(1)))
            while len(self.sessions) > self.max_sessions:
                self.sessions.popitem(last=False)
        return {"session": session}

    def step(self, session, request):
        """Reads request["tokens"] in a session: its length, and the request["top"] most likely next tokens."""
        tokens = integers(request, "tokens", range(self.vocab_size))
        top = min(number(request, "top", int, 1), self.vocab_size)
        if top < 1:
            raise RequestError(400, "top must be at least 1")
        with self._session(session)[0]:  # one request of a session at a time
            lock, cache = self._session(session)
            out = self.signatures["step"](tokens=tf.constant([tokens]), **cache)
            log_probs = out.pop("log_probs")[0, -1].numpy()
            with self.lock:
                if session in self.sessions:
                    self.sessions[session] = (lock, out)
        best = np.argsort(-log_probs)[:top]
        following = [{"token": int(token), "log_prob": float(log_probs[token])} for token in best]
        return {"length": int(out["length"][0]), "next": following}

    def close_session(self, session):
        """Forgets a session."""
        self._session(session)
        with self.lock:
            self.sessions.pop(session, None)
        return {}

    def _session(self, session):
        with self.lock:
            if session not in self.sessions:
                raise RequestError(404, f"there is no session {session!r}: open one with POST /sessions")
            self.sessions.move_to_end(session)
            return self.sessions[session]


def make_server(service, host, port):
    """An HTTP server with a thread per request; port 0 takes a free one (`server_port` says which)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            routes = {"/generate": service.generate, "/score": service.score, "/sessions": service.open_session}
            session = self._session()
            if session:
                self._answer(lambda: service.step(session, self._body()))
            elif self.path in routes:
                self._answer(lambda: routes[self.path](self._body()))
            else:
                self._refuse(404, f"there is no {self.path}: POST to {', '.join(routes)} or /sessions/ID")

        def do_DELETE(self):
            session = self._session()
            if session:
                self._answer(lambda: service.close_session(session))
            else:
                self._refuse(404, "DELETE takes /sessions/ID")

        def _session(self):
            start, _, session = self.path.rpartition("/")
            return session if start == "/sessions" else None

        def _answer(self, work):
            try:
                self._send(200, work())
            except RequestError as error:
                self._refuse(error.status, str(error))
            except Exception as error:
                self.log_error("%s", error)
                self._refuse(500, "the server failed; its log says why")

        def _body(self):
            try:
                size = int(self.headers.get("Content-Length", ""))
            except ValueError:
                raise RequestError(411, "Content-Length is missing") from None
            if not 0 <= size <= MAX_BODY_BYTES:
                raise RequestError(413, f"the request must be at most {MAX_BODY_BYTES} bytes")
            try:
                request = json.loads(self.rfile.read(size))
            except ValueError as error:
                raise RequestError(400, f"the request is not JSON: {error}") from None
            if not isinstance(request, dict):
                raise RequestError(400, "the request must be a JSON object")
            return request

        def _refuse(self, status, reason):
            self.close_connection = True  # the body may not have been read
            self._send(status, {"error": reason})

        def _send(self, status, answer):
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return http.server.ThreadingHTTPServer((host, port), Handler)


def strings(request, name):
    """request[name], a list of strings."""
    values = request.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise RequestError(400, f"{name} must be a list of strings, at least one")
    return values


def integers(request, name, allowed, default=None):
    """request[name], a list of integers within a range."""
    values = request.get(name, default)
    if (
        not isinstance(values, list)
        or not values
        or not all(type(value) is int and value in allowed for value in values)
    ):
        raise RequestError(400, f"{name} must be a list of integers from {allowed[0]} to {allowed[-1]}, at least one")
    return values


def number(request, name, kind, default):
    """request[name], a number."""
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise RequestError(400, f"{name} must be of type {kind.__name__}, not {value!r}")
    if abs(value) >= 2**31:
        raise RequestError(400, f"{name}={value} is too large")
    return kind(value)


def main():
    """Serves until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export_dir", required=True, help="what scripts/export_savedmodel.py wrote")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8080)
    args = parser.parse_args()
    import tensorflow_text  # noqa: F401 (registers the ops of subword vocabularies)

    try:
        service = Service(args.export_dir)
    except (OSError, KeyError) as error:
        sys.exit(f"error: {args.export_dir} is not an exported model: {' '.join(str(error).split())}")
    server = make_server(service, args.host, args.port)
    print(f"listening on http://{args.host}:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()

"""The routes: from HTTP to answers and back."""

import asyncio
import contextlib
import inspect
import json
import sys

from aiohttp import web

from serving import fields
from serving.access import first_part
from serving.answers.pieces import MAX_TOP
from serving.errors import RequestError, error_body, stopping
from serving.metrics import CLIENT_GONE, Record
from serving.model import CONTINUING, KINDS
from serving.page import page_routes
from serving.terminal import LOGGER

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit  # aiohttp needs it there, too

RECORD = web.RequestKey("record", Record)
ALWAYS = ("/live", "/ready", "/metrics")
"""Routes that are answered even while the server is full or stops."""
ROUTES = {
    route: " or ".join(kind.title for kind in KINDS.values() if route in kind.routes)
    for route in {route for kind in KINDS.values() for route in kind.routes}
}
"""The kinds of models that have a route, in words, by route."""
MODEL = "/v1/models/{name:[^/]+}"
FAILED = "the server failed at this request: its log says where"


class Routes:
    """The routes of a server.

    Args:
        service: a Service.
        access: an Access.
    """

    def __init__(self, service, access):
        self._service, self._access = service, access
        self._limits, self._model = service.limits, service.model

    def app(self):
        """The aiohttp application."""
        app = web.Application(middlewares=[self._answered, self._admitted], client_max_size=self._limits.body_bytes)
        app.on_response_prepare.append(self._add_headers)
        app.add_routes([*page_routes(), *self._table()])
        return app

    def _table(self):
        """The routes, besides those of the page."""
        service, post = self._service, self._post
        texts, others, catalogue, tokens = service.texts, service.predict, service.catalogue, service.tokens
        return [
            web.get("/live", self._live),
            web.get("/ready", self._ready),
            web.get("/metrics", self._metrics),
            web.get("/model", _get(self._about)),
            web.get("/sampling", _get(lambda: self._model.settings)),
            web.post("/generate", post(service.generation.generate)),
            web.post("/stream", self._stream),
            web.post("/score", post(texts.score)),
            web.post("/fill", post(texts.fill)),
            web.post("/encode", post(texts.encode)),
            web.post("/classify", post(texts.classify)),
            web.post("/label", post(texts.label)),
            web.post("/regress", post(texts.regress)),
            web.post("/choose", post(texts.choose)),
            web.post("/answer", post(texts.answer)),
            web.post("/tag", post(texts.tag)),
            web.post("/sessions", post(service.sessions.open)),
            web.post("/sessions/{session}", post(service.sessions.step)),
            web.delete("/sessions/{session}", _get(service.sessions.close)),
            # OpenAI's protocol.
            web.post("/v1/completions", self._completions),
            web.post("/v1/embeddings", post(service.embeddings.embed)),
            web.post("/v1/chat/completions", _get(catalogue.no_chat)),
            web.get("/v1/models", _get(catalogue.models)),
            web.get(MODEL, _get(catalogue.model)),
            web.post("/tokenize", post(tokens.tokenize)),
            web.post("/detokenize", post(tokens.detokenize)),
            web.get("/tokenizer_info", _get(tokens.info)),
            # TensorFlow Serving's.
            *(
                route
                for place in (MODEL, MODEL + "/versions/{version}")
                for route in (
                    web.get(place + "/metadata", _get(catalogue.metadata)),
                    web.post(place + ":{verb}", post(others.answer)),
                )
            ),
            web.get(MODEL + "/versions/{version}", _get(catalogue.version)),
        ]

    @web.middleware
    async def _answered(self, request, handler):
        """Answers, whatever happens; then counts and logs the request."""
        resource = request.match_info.route.resource
        record = Record(resource.canonical if resource else "none", request.method)
        request[RECORD] = record
        response, status, size = None, CLIENT_GONE, 0
        try:
            response = await self._answer(request, handler)
            async with time_limit(self._limits.send_seconds):
                await response.prepare(request)
                await response.write_eof()
            status, size = response.status, response.body_length
        except asyncio.CancelledError:
            raise
        except (ConnectionError, asyncio.TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._service.metrics.end(record, status, size)
        return response or web.Response()

    async def _answer(self, request, handler):
        """The response of a handler, or that of its error."""
        try:
            return await handler(request)
        except RequestError as raised:
            error = raised
        except web.HTTPException as raised:  # no such route, a wrong method
            allowed, known = raised.headers.get("Allow", ""), ", ".join(self._model.routes) or "/v1/models"
            remedy = f"send it by {allowed.replace(',', ' or ')}" if allowed else f"the served model has {known}"
            reason = f"{request.method} {fields.shown(request.path)[1:-1]}: {raised.reason}; {remedy}"
            headers = {"Allow": allowed} if allowed else {}
            error = RequestError(raised.status, reason, headers)
        except (ConnectionError, asyncio.TimeoutError):
            raise
        except Exception:
            LOGGER.exception("a request failed")
            error = RequestError(500, FAILED)
        if error.status == 503:
            request[RECORD].refused = str(error)
        body = error_body(request.path, error)
        response = web.json_response(body, status=error.status, headers=error.headers)
        if self._service.stopping or not request.content.is_eof():
            response.force_close()
        return response

    @web.middleware
    async def _admitted(self, request, handler):
        """Answers who may ask, for what the model can."""
        self._access.check(request)
        if request.method == "OPTIONS" and self._access.headers(request):  # a browser asks this before a page may send
            return web.Response(status=204)
        route, model = first_part(request), self._model
        if self._service.stopping and route not in ALWAYS:
            raise stopping()
        route = request.path if route == "/v1" else route
        if route in ROUTES and route not in model.routes:
            if route in model.kind.routes:
                why = "export it again" if route in CONTINUING else "its vocabulary has no <sep> and <cls>"
                raise RequestError(404, f"the served model has no {route[1:]}: {why}")
            known = ", ".join(model.routes) or "/v1/models"
            raise RequestError(404, f"{route} is for {ROUTES[route]}: the served model has {known}")
        return await handler(request)

    async def _add_headers(self, request, response):
        response.headers.update(self._access.headers(request))

    async def _body(self, request):
        """The JSON object that was sent."""
        limits = self._limits
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RequestError(415, "send the request without Content-Encoding")
        too_large = RequestError(413, f"the request has more than {limits.body_bytes:,} bytes")
        if (request.content_length or 0) > limits.body_bytes:
            raise too_large
        try:
            async with time_limit(limits.body_seconds):
                data = await request.read()
        except asyncio.TimeoutError:
            raise RequestError(408, f"the request did not come within {limits.body_seconds:g} seconds") from None
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        except web.RequestPayloadError as error:
            raise RequestError(400, f"the request's body is damaged: {error}") from None
        return fields.json_object(data)

    def _post(self, answer):
        """The handler of a route for answer(what was sent, Record, **parts of the path)."""

        async def handler(request):
            sent = await self._body(request)
            async with self._service.admission.request():
                return web.json_response(await answer(sent, request[RECORD], **request.match_info))

        return handler

    async def _stream(self, request):
        sent = await self._body(request)
        async with self._service.admission.request():
            lines = self._service.generation.stream(sent, request[RECORD])
            return await self._send(request, lines, "application/x-ndjson", lambda line: json.dumps(line) + "\n")

    async def _completions(self, request):
        sent, record = await self._body(request), request[RECORD]
        completions = self._service.completions
        async with self._service.admission.request():
            if not fields.flag(sent, "stream"):
                return web.json_response(await completions.complete(sent, record))
            events = completions.stream(sent, record)
            response = await self._send(
                request, events, "text/event-stream", lambda line: f"data: {json.dumps(line)}\n\n"
            )
            await self._write(response, "data: [DONE]\n\n")
            return response

    async def _send(self, request, lines, content_type, encode):
        """The response that sends dicts, encoded as texts, as they come."""
        record = request[RECORD]
        async with contextlib.aclosing(lines):
            first = await anext(lines)  # errors are raised here, before the answer begins
            response = web.StreamResponse(headers={"Content-Type": content_type})
            await response.prepare(request)
            try:
                await self._write(response, encode(first))
                async for line in lines:
                    await self._write(response, encode(line))
            except (ConnectionError, asyncio.TimeoutError):
                raise
            except Exception as error:
                record.failed = True
                if not isinstance(error, RequestError):
                    LOGGER.exception("a stream failed")
                    error = RequestError(500, FAILED)
                await self._write(response, encode(error_body(request.path, error)))
        return response

    async def _write(self, response, text):
        async with time_limit(self._limits.send_seconds):
            await response.write(text.encode())

    def _about(self):
        """The facts about the model that the page needs."""
        model = self._model
        return {
            "title": model.kind.title,
            "name": model.name,
            "step": model.step,
            "routes": model.routes,
            "pieces": model.pieces is not None,
            "top": MAX_TOP if model.rates else 0,
            "segment": model.segment,
            "max_tokens": self._limits.max_tokens,
            **({"note": model.kind.note} if model.continues and model.kind.note else {}),
            **model.page,
        }

    async def _live(self, request):
        del request
        return web.json_response({"live": True})

    async def _ready(self, request):
        service = self._service
        if service.ready and not service.stopping:
            return web.json_response({"ready": True})
        request[RECORD].refused = reason = str(stopping()) if service.stopping else service.progress
        return web.json_response({"ready": False, "error": reason}, status=503)

    async def _metrics(self, request):
        del request
        text, content_type = self._service.metrics.text()
        return web.Response(body=text, headers={"Content-Type": content_type})


def _get(answer):
    """The handler of a route for answer(**parts of the path), which may be a coroutine."""

    async def handler(request):
        found = answer(**request.match_info)
        return web.json_response(await found if inspect.isawaitable(found) else found)

    return handler

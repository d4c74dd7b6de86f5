"""The routes: from HTTP to answers and back."""

import asyncio
import contextlib
import json
import sys

from aiohttp import web

from serving import fields
from serving.access import first_part
from serving.answers.pieces import MAX_TOP
from serving.errors import RequestError, stopping
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


def make_app(service, access):
    """The aiohttp application of a Service; access: an Access."""
    limits, model, texts = service.limits, service.model, service.texts

    @web.middleware
    async def answered(request, handler):
        """Answers, whatever happens; then counts and logs the request."""
        resource = request.match_info.route.resource
        record = Record(resource.canonical if resource else "none", request.method)
        request[RECORD] = record
        response, status, size = None, CLIENT_GONE, 0
        try:
            response = await answer_of(request, handler, record)
            async with time_limit(limits.send_seconds):
                await response.prepare(request)
                await response.write_eof()
            status, size = response.status, response.body_length
        except asyncio.CancelledError:
            raise
        except (ConnectionError, asyncio.TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            service.metrics.end(record, status, size)
        return response or web.Response()

    async def answer_of(request, handler, record):
        try:
            return await handler(request)
        except RequestError as error:
            status, reason, headers = error.status, str(error), error.headers
        except web.HTTPException as error:  # no such route, a wrong method
            status, reason = error.status, f"{request.method} {fields.shown(request.path)[1:-1]}: {error.reason}"
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        except (ConnectionError, asyncio.TimeoutError):
            raise
        except Exception:
            LOGGER.exception("a request failed")
            status, reason, headers = 500, "the server failed at this request: its log says where", {}
        response = web.json_response({"error": reason}, status=status, headers=headers)
        if service.stopping or not request.content.is_eof():
            response.force_close()
        return response

    @web.middleware
    async def only_what_the_model_can(request, handler):
        access.check(request)
        if request.method == "OPTIONS" and access.headers(request):  # a browser asks this before a page may send
            return web.Response(status=204)
        route = first_part(request)
        if service.stopping and route not in ALWAYS:
            raise stopping()
        if route in ROUTES and route not in model.routes:
            if route in model.kind.routes:
                why = "export it again" if route in CONTINUING else "its vocabulary has no <sep> and <cls>"
                raise RequestError(404, f"the served model has no {route[1:]}: {why}")
            known = ", ".join(model.routes)
            raise RequestError(404, f"{route} is for {ROUTES[route]}: the served model has {known}")
        return await handler(request)

    async def body(request):
        """The JSON object that was sent."""
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

    def post(answer):
        async def handler(request):
            sent = await body(request)
            async with service.admission.request():
                return web.json_response(await answer(sent, request[RECORD]))

        return handler

    async def step(request):
        sent = await body(request)
        async with service.admission.request():
            name = request.match_info["session"]
            return web.json_response(await service.sessions.step(name, sent, request[RECORD]))

    async def close(request):
        return web.json_response(await service.sessions.close(request.match_info["session"]))

    async def stream(request):
        sent = await body(request)
        record = request[RECORD]

        async def write(line):
            async with time_limit(limits.send_seconds):
                await response.write(json.dumps(line).encode() + b"\n")

        async with service.admission.request(), contextlib.aclosing(service.generation.stream(sent, record)) as lines:
            first = await anext(lines)  # errors are raised here, before the answer begins
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            await response.prepare(request)
            try:
                await write(first)
                async for line in lines:
                    await write(line)
            except RequestError as error:
                record.failed = True
                await write({"error": str(error)})
            except (ConnectionError, asyncio.TimeoutError):
                raise
            except Exception:
                LOGGER.exception("a stream failed")
                record.failed = True
                await write({"error": "the server failed at this request: its log says where"})
        return response

    async def settings(request):
        del request
        return web.json_response(model.settings)

    async def about(request):
        """The facts about the model that the page needs."""
        del request
        return web.json_response(
            {
                "title": model.kind.title,
                "name": model.name,
                "step": model.step,
                "routes": model.routes,
                "pieces": model.pieces is not None,
                "top": MAX_TOP if model.rates else 0,
                "segment": model.segment,
                "max_tokens": limits.max_tokens,
                **({"note": model.kind.note} if model.continues and model.kind.note else {}),
            }
        )

    async def add_headers(request, response):
        response.headers.update(access.headers(request))

    async def live(request):
        del request
        return web.json_response({"live": True})

    async def ready(request):
        del request
        is_ready = service.ready and not service.stopping
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    async def metrics(request):
        del request
        text, content_type = service.metrics.text()
        return web.Response(body=text, headers={"Content-Type": content_type})

    app = web.Application(middlewares=[answered, only_what_the_model_can], client_max_size=limits.body_bytes)
    app.on_response_prepare.append(add_headers)
    app.add_routes(
        [
            web.get("/live", live),
            web.get("/ready", ready),
            web.get("/metrics", metrics),
            *page_routes(),
            web.get("/model", about),
            web.get("/sampling", settings),
            web.post("/generate", post(service.generation.generate)),
            web.post("/stream", stream),
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
            web.post("/sessions/{session}", step),
            web.delete("/sessions/{session}", close),
        ]
    )
    return app

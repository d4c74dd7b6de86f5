"""Not a test: makes requests to the server that are wrong in every way, and judges its answers.

The server must answer each with status 4xx and one line of JSON, or as usual if the request is right after all. After
all of them it must be ready, answer a usual request, and have written no traceback.
"""

import contextlib
import json
import re
import socket
import time
import typing

SURROGATE, LONG = "\ud800", "a" * 900_000
NUMBERS = ("NaN", "Infinity", "-Infinity", "-1", "0", "1e30", "1" + 30 * "0", "9" * 5000, "0.5", "true", "null", '"1"')
OTHER_TYPES = ("null", "true", "5", "-1.5", '"text"', "[]", "[null]", "[5]", '[["a"]]', "{}", '{"a": []}', "[[]]")

USUAL = {
    "/generate": {"prompts": ["a"], "max_tokens": 2, "seeds": [1], "stop": ["zz"], "temperature": 1.0, "top_k": 5,
                  "top_p": 0.9, "repetition_penalty": 1.1, "min_p": 0.1, "typical_p": 0.9},
    "/stream": {"prompt": "a", "max_tokens": 2, "seed": 1, "top": 2, "temperature": 1.0},
    "/sessions": {},
    "/sessions/SESSION": {"tokens": [1], "top": 1},
    "/score": {"texts": ["a"]},
    "/fill": {"texts": ["a ____"], "context": "a", "order": "confident", "beam_size": 2, "top": 1, "free": True},
    "/fill?candidates": {"texts": ["____"], "candidates": ["River", "fine"], "context": "a", "order": "left_to_right"},
    "/encode": {"texts": ["a"], "second": ["b"], "pool": "mean", "per_token": True},
    "/classify": {"texts": ["a"], "second": ["b"]},
    "/label": {"texts": ["a"], "second": ["b"], "threshold": 0.3},
    "/regress": {"texts": ["a"], "second": ["b"]},
    "/choose": {"articles": ["a"], "questions": ["b"], "options": [["c", "d"]]},
    "/answer": {"questions": ["a"], "contexts": ["b"]},
    "/tag": {"texts": ["a b"]},
    "/v1/completions": {"prompt": "a", "max_tokens": 2, "n": 2, "stop": ["zz"], "seed": 1, "logprobs": 2, "echo": True,
                        "logit_bias": {"5": 1.5}, "temperature": 1.0, "top_p": 0.9},
    "/v1/completions?stream": {"prompt": ["a"], "max_tokens": 2, "stream": True},
    "/v1/embeddings": {"input": ["a"], "encoding_format": "base64"},
    "/tokenize": {"prompt": "a", "return_token_strs": True},
    "/detokenize": {"tokens": [1]},
    "/v1/models/saved:predict": {"signature_name": "score", "instances": ["a"]},
    "/v1/models/saved_xlnet:predict": {"signature_name": "encode", "inputs": {"texts": ["a"], "second": ["b"]}},
    "/v1/models/saved_tuned:predict": {"instances": [{"texts": "a", "second": "b"}]},
}  # fmt: skip
"""A request that is answered, by route; what follows a question mark tells two kinds of request apart."""
TIMEOUT = 600
"""Seconds without a byte after which an answer is given up: many, since the machine may be busy."""
REQUIRED = (
    "prompts",
    "prompt",
    "tokens",
    "texts",
    "articles",
    "questions",
    "options",
    "contexts",
    "input",
    "instances",
    "inputs",
)
"""Fields without which a request is wrong; the others have defaults."""


class Request(typing.NamedTuple):
    """A request.

    Attributes:
        route: of USUAL, or another path.
        title: what is wrong.
        body: bytes that are sent.
        refused: whether status 4xx is due; if not, it may be answered, too.
        method: of HTTP.
        head: further lines of the head, each with its end; with one that says how long the body is. None: as usual.
        half_closed: whether the client says that it sends nothing more; it may then get no answer.
    """

    route: str
    title: str
    body: bytes
    refused: bool = True
    method: str = "POST"
    head: str | None = None
    half_closed: bool = False


def requests_to(routes):
    """Every Request to a server of these routes of USUAL."""
    for route in routes:
        yield from _bodies(route)
        for field in USUAL[route]:
            yield from _fields(route, field)
        yield from _heads(route)
    sent = json.dumps(USUAL[routes[0]]).encode()
    yield Request("/nothing", "no such route", sent)
    yield Request("/%ED%A0%80/..%2f" + "a" * 5000, "a path that is not text", sent)
    for method, target in (("OPTIONS", "*"), ("CONNECT", "example.org:443"), ("TRACE", "/"), ("PUT", routes[0])):
        yield Request(target, f"{method} {target}", b"", method=method)
    for origin in ("http://evil.example", "null", "https://127.0.0.2", ""):
        head = f"Origin: {origin}\r\nContent-Length: {len(sent)}\r\n"
        yield Request(routes[0], f"origin {origin}", sent, head=head)
    if "/sessions" in routes:
        for name in ("0" * 32, "%ED%A0%80", "..", "a" * 5000):
            yield Request(f"/sessions/{name}", f"session {name[:9]}", b'{"tokens": [1]}')
            yield Request(f"/sessions/{name}", f"session {name[:9]}", b"", method="DELETE")


def _bodies(route):
    usual = json.dumps(USUAL[route]).encode()
    whole = {
        "nested lists": b"[" * 100_000 + b"]" * 100_000,
        "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "not UTF-8": b'{"\xff": 1}',
        "UTF-16": usual.decode().encode("utf-16"),
        "half of it": usual[: len(usual) // 2],
        "a zero byte": usual + b"\0",
        "two objects": usual * 2,
        "2 MiB": b" " * (2 << 20),
    }
    for title, body in whole.items():
        yield Request(route, title, body, refused=title != "UTF-16")  # which JSON may be, says Python
    for title in OTHER_TYPES:
        yield Request(route, f"a body of {title}", title.encode(), refused=title != "{}" or bool(USUAL[route]))
    yield Request(route, "no body", b"")
    for name in ("none_such", SURROGATE, "", "__class__", "a" * 10_000):
        yield Request(route, f"a further field {name[:9]!a}", json.dumps(USUAL[route] | {name: 1}).encode())


def _fields(route, field):
    usual = USUAL[route]
    without = {name: value for name, value in usual.items() if name != field}
    yield Request(route, f"without {field}", json.dumps(without).encode(), refused=field in REQUIRED)

    def with_text(text):
        return (json.dumps(without)[:-1] + (", " if without else "") + f'"{field}": {text}}}').encode()

    value = usual[field]
    for text in OTHER_TYPES + (NUMBERS if isinstance(value, (int, float)) else ()):
        yield Request(route, f"{field} of {text[:20]}", with_text(text), refused=False)
    if isinstance(value, list) and isinstance(value[0], int):
        for text in NUMBERS:
            yield Request(route, f"{field} of [{text[:20]}]", with_text(f"[{text}]"), refused=False)
        any_number = route == "/detokenize"  # as /tokenize may give for a text of any length
        yield Request(route, f"100,000 {field}", with_text(json.dumps([1] * 100_000)), refused=not any_number)
    if isinstance(value, (str, list)) and not isinstance(value[0], (int, dict)):
        wrap = {str: lambda text: text, list: lambda text: [[text] * 2] if field == "options" else [text]}[type(value)]
        yield Request(route, f"{field} of half a surrogate", with_text(json.dumps(wrap(SURROGATE))), refused=False)
        yield Request(route, f"{field} of 900 kB", with_text(json.dumps(wrap(LONG))))
        for text in ("\0", "\uffff", "é" * 1000, "____" * 2000, "a " * 20_000, "a" * 60_000, "\U0010ffff" * 10_000):
            yield Request(route, f"{field} of {text[:4]!a}..", with_text(json.dumps(wrap(text))), refused=False)
        if isinstance(value, list):
            yield Request(route, f"100,000 {field}", with_text(json.dumps(wrap("a") * 100_000)))


def _heads(route):
    body = json.dumps(USUAL[route]).encode()
    for method in ("GET", "PUT", "PATCH", "HEAD", "OPTIONS", "NONE", "DELETE"):
        if (method, route) != ("DELETE", "/sessions/SESSION"):
            yield Request(route, f"method {method}", body, method=method)
    for length in ("-1", "x", "1e3", "9" * 30, "1, 2", ""):
        yield Request(route, f"Content-Length: {length}", body, head=f"Content-Length: {length}\r\n")
    for title, chunks in (
        ("chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)),
        ("chunked wrongly", b"zz\r\n" + body),
        ("an endless chunk", b"%x\r\n" % (1 << 62) + body),
    ):
        yield Request(route, title, chunks, refused=title != "chunked", head="Transfer-Encoding: chunked\r\n")
    both = f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n"
    yield Request(route, "two lengths", b"0\r\n\r\n" + body, head=both)
    for title, part in (("a whole request", body), ("half a request", body[: len(body) // 2])):
        head = f"Content-Length: {len(body)}\r\n"
        yield Request(route, f"half-closed after {title}", part, refused=False, head=head, half_closed=True)
    yield Request(route, "compressed", body, head=f"Content-Length: {len(body)}\r\nContent-Encoding: gzip\r\n")
    yield Request(route, "a long head", body, head=f"Content-Length: {len(body)}\r\nX: {LONG[:50_000]}\r\n")


def wrong(address, request):
    """The fault in the answer to a Request; "" if none."""
    status, body = exchange(address, request)
    if status == 0:  # the connection was closed: a body that nobody waits for, or a head that is none
        return "" if request.head is not None or len(request.body) > 1 << 20 else "no answer"
    if status < 400 and not request.refused:
        return "" if request.method == "HEAD" or _all_json(body) else f"not JSON: {body[:200]!r}"
    if not 400 <= status < 500:
        return f"status {status}: {body[:200]!r}"
    if request.method == "HEAD":
        return ""
    try:
        error = json.loads(body)["error"]
        reason = error["message"] if isinstance(error, dict) else error  # OpenAI's form
    except (ValueError, KeyError, TypeError):
        return f"status {status} without a reason: {body[:200]!r}"
    return "" if len(reason) < 400 and "\n" not in reason else f"a reason of {len(reason)} characters: {reason[:200]!r}"


def exchange(address, request):
    """The status and the body of the answer to a Request; 0: the server closed the connection."""
    host, port = address.removeprefix("http://").split(":")
    route = request.route
    if "SESSION" in route:
        _, body = exchange(address, Request("/sessions", "", b"{}"))
        name = json.loads(body)["session"]
        route = route.replace("SESSION", name)
    head = f"Content-Length: {len(request.body)}\r\n" if request.head is None else request.head
    data = b""
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
        with contextlib.suppress(ConnectionError):
            lines = f"{request.method} {route} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n"
            connection.sendall(lines.encode("utf-8", "surrogateescape") + request.body)
            if request.half_closed:
                connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                data += piece
    if "SESSION" in request.route:
        exchange(address, Request(f"/sessions/{name}", "", b"", method="DELETE"))
    top, _, body = data.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.[01] (\d+)", top)
    if b"chunked" in top.lower():
        body = b"".join(re.findall(rb"(?:^|\r\n)[0-9a-f]+\r\n(.*?)(?=\r\n)", body, re.DOTALL))
    return int(found[1]) if found else 0, body


def left_alone(address, routes, clients=20):
    """Requests of much work whose clients leave, amid the answer or before it."""
    long = {
        "/generate": {"prompts": ["a"] * 8, "max_tokens": 10_000},
        "/stream": {"prompt": "a", "max_tokens": 10_000},
        "/score": {"texts": ["a b " * 20] * 500},
        "/fill": {"texts": ["____*20 a"] * 500, "beam_size": 8},
        "/fill?candidates": {"texts": ["____ a"] * 500, "candidates": ["a " * 30] * 16},
        "/answer": {"questions": ["a"] * 100, "contexts": ["a b " * 5000] * 100},
        "/tag": {"texts": ["a b " * 5000] * 100},
        "/classify": {"texts": ["a b " * 20] * 1000},
        "/label": {"texts": ["a b " * 20] * 1000},
        "/regress": {"texts": ["a b " * 20] * 1000},
        "/choose": {"articles": ["a"] * 500, "questions": ["b"] * 500, "options": [["c", "d"]] * 500},
        "/encode": {"texts": ["a b " * 20] * 1000},
        "/v1/completions": {"prompt": ["a"] * 8, "max_tokens": 10_000},
        "/v1/completions?stream": {"prompt": ["a"] * 8, "max_tokens": 10_000, "stream": True},
        "/v1/embeddings": {"input": ["a b " * 20] * 1000},
        "/v1/models/saved:predict": {"signature_name": "score", "instances": ["a b " * 20] * 500},
        "/v1/models/saved_xlnet:predict": {"signature_name": "score", "instances": ["a b " * 20] * 500},
        "/v1/models/saved_tuned:predict": {"instances": [{"texts": "a b " * 20, "second": "b"}] * 500},
    }
    host, port = address.removeprefix("http://").split(":")
    for route in (route for route in routes if route in long):
        body = json.dumps(long[route]).encode()[: 1 << 20]
        connections = []
        for _ in range(clients):
            connections.append(socket.create_connection((host, int(port)), timeout=TIMEOUT))
            head = f"POST {route} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
            connections[-1].sendall(head.encode() + body)
        if "stream" in route:
            for connection in connections[::2]:
                connection.recv(100)
        for connection in connections:
            connection.close()


def slow(address, seconds, clients=100):
    """Clients that send a request a byte at a time for some seconds; how many of their connections are open then."""
    host, port = address.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port)), timeout=TIMEOUT) for _ in range(clients)]
    begun, end = b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n", time.monotonic() + seconds
    heads = [begun[: i % len(begun)] if i % 2 else begun for i in range(clients)]
    for connection, head in zip(connections, heads, strict=True):
        connection.sendall(head)
    while time.monotonic() < end:
        for connection in list(connections):
            try:
                connection.sendall(b"a")
            except OSError:
                connection.close()
                connections.remove(connection)
        time.sleep(0.2)
    for connection in connections:
        connection.close()
    return len(connections)


def _all_json(body):
    with contextlib.suppress(ValueError):
        lines = (line.removeprefix(b"data: ") for line in body.splitlines() if line not in (b"", b"data: [DONE]"))
        return all(json.loads(line) is not None for line in lines)
    return False

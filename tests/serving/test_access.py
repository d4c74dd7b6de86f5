"""Who may use the server, odd methods, and a log that never has what was sent."""

import io
import json
import logging
import re
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest
import server

from serving.access import Access, check_origin
from serving.errors import StartError
from serving.model import ServedModel
from serving.terminal import JsonLines

pytestmark = pytest.mark.usefixtures("loaded_once")

TOKEN = "a-token-that-nobody-may-see"
ORIGIN = "https://page.example"


@pytest.fixture(scope="module")
def guarded(byte_export):
    with server.started(byte_export, access=Access(TOKEN, [ORIGIN], loopback=False)) as served:
        yield served


@pytest.fixture(scope="module")
def local(byte_export):
    with server.started(byte_export, access=Access()) as served:
        yield served


def ask(served, path, body=None, method=None, **headers):
    """The status, the headers and the answer."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(served.address + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def raw(served, data):
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    return received


@pytest.mark.parametrize(
    "line", ["OPTIONS *", "CONNECT example.org:443", "TRACE /", "PUT /score", "OPTIONS /score", "GET //", "BREW /tea"]
)
def test_odd_methods_are_answered_with_4xx(local, line):
    answer = raw(local, f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN])
def test_without_the_token_nothing_is_answered(guarded, given):
    headers = {} if given is None else {"Authorization": given}
    for path, body in (("/score", {"texts": ["a"]}), ("/model", None), ("/metrics", None), ("/sampling", None)):
        status, found, answer = ask(guarded, path, body, **headers)
        assert status == 401 and found["WWW-Authenticate"] == "Bearer" and b"Authorization: Bearer TOKEN" in answer


def test_the_token_opens_all_routes_and_the_page_needs_none(guarded):
    authorized = {"Authorization": f"bearer {TOKEN}"}
    assert ask(guarded, "/score", {"texts": ["a"]}, **authorized)[0] == 200
    assert ask(guarded, "/model", **authorized)[0] == 200
    for path in ("/", "/page/main.js", "/live"):
        assert ask(guarded, path)[0] == 200


@pytest.mark.parametrize("origin", ["https://other.example", "null", "http://127.0.0.1", "http://evil.example:80"])
def test_a_page_of_another_origin_is_refused(local, origin):
    status, headers, answer = ask(local, "/score", {"texts": ["a"]}, Origin=origin)
    assert status == 403 and b"--allow_origin" in answer and "Access-Control-Allow-Origin" not in headers


def test_a_name_that_leads_to_this_machine_is_another_origin(local):
    """Else any page could ask under a name of its own (DNS rebinding)."""
    port = local.address.rpartition(":")[2]
    host = f"evil.example:{port}"
    assert ask(local, "/score", {"texts": ["a"]}, Host=host, Origin=f"http://{host}")[0] == 403
    for name in ("localhost", "127.0.0.1", "[::1]"):
        assert ask(local, "/score", {"texts": ["a"]}, Host=f"{name}:{port}", Origin=f"http://{name}:{port}")[0] == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [("[", "http://["), ("", "http://"), ("]", "http://]"), (":80", "http://:80"), ("[::1", "https://[::1")],
)
def test_an_origin_that_is_no_address_is_refused_in_one_line(local, host, origin):
    status, _, answer = ask(local, "/score", {"texts": ["a"]}, Host=host, Origin=origin)
    assert (status, b"--allow_origin" in answer) == (403, True), answer


@pytest.mark.parametrize("origin", ["", "http://[", "https://", "http://:80", "https://a/", "ftp://a", "null", "*"])
def test_a_wrong_origin_to_allow_is_named(origin):
    with pytest.raises(StartError, match=re.escape(f"--allow_origin={origin} must be like https://example.org")):
        check_origin(origin)
    assert check_origin("https://example.org:8080") == "https://example.org:8080"


def test_an_allowed_origin_may_ask_and_read_the_answer(guarded):
    status, headers, _ = ask(guarded, "/score", method="OPTIONS", Origin=ORIGIN)
    assert status == 204 and "Authorization" in headers["Access-Control-Allow-Headers"]
    status, headers, _ = ask(guarded, "/score", {"texts": ["a"]}, Origin=ORIGIN, Authorization=f"Bearer {TOKEN}")
    assert status == 200 and headers["Access-Control-Allow-Origin"] == ORIGIN


SECRET = "my-secret-words"


def test_the_log_never_has_what_was_sent(guarded):
    """In fields, texts, headers, paths, queries, and lines that are no HTTP."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.root.addHandler(handler)
    logging.getLogger("serving").setLevel(logging.INFO)
    try:
        authorized = {"Authorization": f"Bearer {TOKEN}"}
        for path, body in (
            ("/score", {"texts": [SECRET]}),
            ("/score", {SECRET: 1}),
            ("/score", {"texts": SECRET}),
            ("/stream", {"prompt": SECRET, "temperature": SECRET}),
            ("/stream", {"prompt": SECRET, "max_tokens": 3}),
            ("/sessions/" + SECRET, {"tokens": [1]}),
            ("/" + SECRET + "?q=" + SECRET, None),
            ("/score?" + SECRET, ("{" + SECRET).encode()),
        ):
            ask(guarded, path, body, **authorized)
            ask(guarded, path, body, Authorization=f"Bearer {SECRET}", Cookie=SECRET)
            ask(guarded, path, body, **authorized, Origin=f"http://{SECRET}")
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization {TOKEN}\r\n{SECRET} : \0\r\n\r\n"
        for data in (head, f"{SECRET}\r\n\r\n", f"GET /{SECRET}\0 HTTP/9\r\n\r\n"):
            raw(guarded, data.encode())
    finally:
        logging.root.removeHandler(handler)
    log = stream.getvalue()
    lines = [json.loads(line) for line in log.splitlines()]
    assert len(lines) >= 18 and {line["status"] for line in lines if "status" in line} >= {200, 400, 401, 403, 404}
    assert SECRET not in log and TOKEN not in log


def test_once_ready_the_first_request_of_each_route_finds_its_programs_compiled(byte_export, monkeypatch):
    """It calls signatures with shapes that the warm-up has called them with."""
    called, call = set(), ServedModel.__call__

    def recording(model, signature, **tensors):
        called.add((signature, *sorted((name, tuple(np.shape(value))) for name, value in tensors.items())))
        return call(model, signature, **tensors)

    monkeypatch.setattr(ServedModel, "__call__", recording)
    with server.started(byte_export, warm_up=True) as served:
        assert ask(served, "/ready")[0] == 200
        warm = set(called)
        session = json.loads(ask(served, "/sessions", {})[2])["session"]
        for path, body in (
            ("/score", {"texts": ["b"]}),
            ("/score", {"texts": ["b"], "top": 3, "pieces": True}),
            ("/score", {"texts": ["b"], "memory": False}),
            ("/generate", {"prompts": ["b"], "max_tokens": 2}),
            ("/v1/completions", {"prompt": "b", "max_tokens": 2}),
            ("/stream", {"prompt": "b", "max_tokens": 2}),
            ("/stream", {"prompt": "b", "max_tokens": 2, "top": 2}),
            (f"/sessions/{session}", {"tokens": [5]}),
        ):
            assert ask(served, path, body)[0] == 200
        assert len(warm) > 5 and called == warm


def test_the_page_is_told_which_model_and_step_it_talks_to(local, byte_export):
    model = json.loads(ask(local, "/model")[2])
    assert model["name"] == byte_export.rstrip("/").rpartition("/")[2] and model["step"] is None

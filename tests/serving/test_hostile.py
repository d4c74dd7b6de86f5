"""The example server with clients that send too much, too slowly, or leave; and requests that share it."""

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import logging
import re
import socket
import time
import urllib.request

import numpy as np
import pytest
import server
import tensorflow as tf
from campaign import hostile, serving

from serving.answers import generation
from serving.errors import RequestError
from serving.turns import Admission

pytestmark = pytest.mark.usefixtures("loaded_once")

LONG = {"prompts": ["a", "b", "c", "d"], "max_tokens": 10_000}
"""A request that takes minutes."""
LIMITS = {
    "max_requests": 6,
    "text_tokens": 300,
    "text_bytes": 1000,
    "texts": 40,
    "session_values": 256 * 20,
    "connections": 40,
    "header_seconds": 0.4,
    "idle_seconds": 1.5,
    "body_seconds": 0.4,
    "wait_seconds": 0.3,
    "memory_mb": 1,
    "stop_seconds": 0.2,
}


@pytest.fixture(scope="module")
def served(byte_export):
    with server.started(byte_export, model_name="saved", **LIMITS) as served:
        yield served


@pytest.fixture
def call(served):
    return functools.partial(server.call, served.address)


@pytest.fixture(scope="module")
def whole(byte_export, served):
    """whole(request) -> texts: one call of the SavedModel's signature `generate` for all tokens."""
    signature = served.service.model.signatures["generate"]
    with open(f"{byte_export}/sampling.json") as file:
        defaults = {setting["name"]: setting["default"] for setting in json.load(file)}

    def generate(prompts, max_tokens, seeds, stop=(), **options):
        values = {name: tf.constant(value) for name, value in (defaults | options).items()}
        found = signature(
            prompts=tf.constant(prompts),
            max_tokens=tf.constant(max_tokens),
            seeds=tf.constant(seeds),
            stop=tf.constant(list(stop), tf.string),
            **values,
        )
        return [text.decode("utf-8", "replace") for text in found["texts"].numpy()]

    return generate


def idle(served, seconds=3.0):
    """Whether the server has nothing to do, after some seconds at the latest."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not (served.service.admission.inside or served.service.turns.waiting or served.service.turns.busy):
            return True
        time.sleep(0.01)
    return False


def metric(served, name):
    """The value of a metric with its labels."""
    text = served.service.metrics.text()[0].decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_for(served, requests):
    """Waits until this many requests are in progress."""
    while served.service.admission.inside < requests:
        time.sleep(0.01)


HALF = '"\\ud800"'


@pytest.mark.parametrize(
    ("path", "data", "status", "reason"),
    [
        ("/generate", "[" * 100_000, 400, "nested too deeply"),
        ("/score", '{"texts": ' + "[" * 900 + "]" * 900 + "}", 400, ""),
        ("/sessions", f"{{{HALF}: 1}}", 400, "is not a field of this request"),
        ("/sessions/%ED%A0%80", '{"tokens": [1]}', 404, "there is no session"),
        ("/stream", b"\xff\xfe{", 400, "not JSON"),
        ("/stream", '{"prompt": "a", "seed": ' + "9" * 5000 + "}", 400, "not JSON"),
        ("/stream", '{"prompt": "a", "seed": ' + "9" * 400 + "}", 400, "is too large"),
        ("/stream", {"prompt": "a", "temperature": "x" * 900}, 400, "must be a number, not 'xxx"),
        ("/stream", {"prompt": "a" * 301}, 413, "a prompt has 301 tokens: it may have at most 300"),
        ("/stream", {"prompt": "a" * 1001}, 413, "prompt has 1,001 bytes: a text may have at most 1,000"),
        (
            "/generate",
            {"prompts": ["a"] * 100_000},
            413,
            "prompts has 100,000 entries: one request may have at most 64",
        ),
        (
            "/generate",
            {"prompts": ["a"], "stop": ["a"] * 17},
            413,
            "stop has 17 entries: one request may have at most 16",
        ),
        ("/score", {"texts": ["a"] * 41}, 413, "texts has 41 entries: one request may have at most 40"),
        ("/score", {"texts": ["a", "a" * 301]}, 413, "texts[1] has 301 tokens"),
        ("/score", {"texts": ["a" * 900_000]}, 413, "texts[0] has 900,000 bytes"),
    ],
)
def test_a_hostile_request_gets_one_line(call, path, data, status, reason):
    found, answer = call(path, data.encode() if isinstance(data, str) else data)
    assert found == status
    assert reason in answer["error"] and len(answer["error"]) < 300 and "\n" not in answer["error"]


@pytest.mark.parametrize("route", [route for route in serving.EXPORTS["saved"] if route != "/sessions"])
def test_generated_requests_get_a_line_and_leave_the_server_as_it_was(served, call, caplog, route):
    """Some of what `make campaign` sends to the server of each kind of model."""
    requests = list(hostile.requests_to([route]))
    assert len(requests) > 60
    for request in requests[::5]:
        assert hostile.wrong(served.address, request) == "", request.title
    assert idle(served)
    assert call("/score", {"texts": ["a"]})[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_session_reads_a_bounded_number_of_tokens(call):
    session = call("/sessions")[1]["session"]
    assert call(f"/sessions/{session}", {"tokens": [1] * 20})[1]["length"] == 20
    assert call(f"/sessions/{session}", {"tokens": [1] * 21})[0] == 413
    assert call(f"/sessions/{session}", {"tokens": [1], "top": 10**6})[1]["next"][255]
    assert call(f"/sessions/{session}", {"tokens": [1], "top": 0})[0] == 400


def test_a_body_may_not_be_compressed(served):
    message = urllib.request.Request(served.address + "/score", b"x", {"Content-Encoding": "gzip"})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(message)
    with raised.value as answer:
        assert answer.code == 415 and "Content-Encoding" in json.load(answer)["error"]


@pytest.mark.parametrize(("most", "max_tokens"), [(1, 20), (7, 90), (64, 90)])
def test_slices_give_the_text_of_one_call(call, whole, monkeypatch, most, max_tokens):
    monkeypatch.setattr(generation, "MOST_TOKENS", most)
    prompts = ["", "def f(", "x" * 130]
    request = {"prompts": prompts, "seeds": [5, 6, 7], "max_tokens": max_tokens}
    for options in ({}, {"temperature": 0.0}, {"top_p": 0.8, "repetition_penalty": 1.2}):
        assert call("/generate", request | options) == (200, {"texts": whole(**request, **options)})


def test_more_prompts_than_fit_into_a_call_give_the_texts_of_one_call(call, whole):
    request = {"prompts": [chr(97 + i) * i for i in range(11)], "seeds": list(range(11)), "max_tokens": 20}
    assert call("/generate", request) == (200, {"texts": whole(**request)})


@pytest.mark.parametrize("segment", [64, 0], ids=["segments", "an export without read"])
def test_long_texts_are_read_in_turns_with_the_same_results(served, call, whole, plain_model, monkeypatch, segment):
    monkeypatch.setattr(served.service.model, "segment", segment)
    texts = ["long " * 50, "a", "x" * 64, "y" * 65, ""]
    answer = call("/score", {"texts": texts})[1]
    for i, expected in enumerate(plain_model.score(texts)):
        assert answer["tokens"][i] == expected.ids.tolist()
        np.testing.assert_allclose(answer["log_probs"][i], expected.log_probs, rtol=0, atol=1e-4)
        assert answer["total"][i] == pytest.approx(expected.total, abs=1e-3)
    request = {"prompts": ["long " * 50, "x" * 64, "y" * 65], "seeds": [1, 2, 3], "max_tokens": 20}
    assert call("/generate", request) == (200, {"texts": whole(**request)})


def test_stop_strings_end_slices_where_they_end_one_call(call, whole):
    request = {"prompts": ["def f(", "ab"], "seeds": [1, 2], "max_tokens": 150}
    texts = whole(**request)
    for begin, length in ((3, 1), (90, 3)):
        part = texts[0][begin : begin + length]
        for stop in ([part], [part[0], texts[1][begin - 2 : begin + 30]], ["no such text"]):
            assert call("/generate", request | {"stop": stop})[1]["texts"] == whole(**request, stop=stop)


def test_a_longer_stop_string_may_begin_before_a_complete_one():
    stop = [b"b", b"abc"]
    assert generation._end(b"xab", stop) == 2 and generation._end(b"xabc", stop) == 1
    assert not generation._ends_early(b"xab", stop)
    assert generation._ends_early(b"xab" + b"x" * 20, stop)
    assert not generation._ends_early(b"x" * 50, stop)


def test_requests_that_share_calls_get_the_answers_of_single_ones(served, call, whole):
    requests = [
        {"prompts": ["q" * (i + 1)] * (1 + i % 2), "seeds": [i, 10 + i][: 1 + i % 2], "max_tokens": 120 + i}
        for i in range(6)
    ]
    before = metric(served, 'serve_call_rows_bucket{call="continue",le="1.0"}')
    calls = metric(served, 'serve_call_rows_count{call="continue"}')
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda request: call("/generate", request), requests))
    for request, answer in zip(requests, answers, strict=True):
        assert answer == (200, {"texts": whole(**request)})
    alone = metric(served, 'serve_call_rows_bucket{call="continue",le="1.0"}') - before
    assert alone < metric(served, 'serve_call_rows_count{call="continue"}') - calls  # others were shared


def test_every_second_call_is_the_first_of_its_request(served):
    turns, order = served.service.turns, []

    async def several():
        first = asyncio.ensure_future(turns.run(lambda _: [time.sleep(0.05)], None))  # so that the others wait
        await asyncio.sleep(0.01)
        calls = [("long", True)] * 3 + [("new", False)] * 2
        await asyncio.gather(
            *(turns.run(lambda i: [order.extend(i)], name, again=again) for name, again in calls), first
        )

    served.run(several())
    assert order == ["long", "new", "long", "new", "long"]


def test_a_wrong_request_is_refused_without_those_that_share_its_call(served):
    turns = served.service.turns

    async def both():
        def halve(items):
            if 3 in items:
                raise ValueError("odd")
            return [item // 2 for item in items]

        first = asyncio.ensure_future(turns.run(lambda _: [time.sleep(0.05)], None))  # so that the others wait
        await asyncio.sleep(0.01)
        return await asyncio.gather(
            *(turns.run(halve, i, key="halve") for i in (2, 3, 4)), first, return_exceptions=True
        )

    two, three, four, _ = served.run(both())
    assert (two, four) == (1, 2) and isinstance(three, ValueError)


def test_work_for_clients_that_are_gone_ends(served, call):
    assert idle(served)
    connections = [server.send(served.address, "/generate", LONG) for _ in range(6)]
    wait_for(served, 6)
    for connection in connections:
        connection.close()
    assert idle(served)
    assert call("/score", {"texts": ["a"]})[0] == 200


def test_requests_take_turns_and_the_queue_has_a_bound(served, call):
    assert idle(served)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(server.send(served.address, "/stream", {"prompt": "a", "max_tokens": 10_000}))
        wait_for(served, 5)
        start = time.monotonic()
        assert call("/score", {"texts": ["abc"]})[0] == 200
        assert time.monotonic() - start < 3
        stack.enter_context(server.send(served.address, "/stream", {"prompt": "b", "max_tokens": 10_000}))
        wait_for(served, 6)
        message = urllib.request.Request(served.address + "/score", b'{"texts": ["abc"]}')
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(message)
        with raised.value as answer:
            assert answer.code == 503 and int(answer.headers["Retry-After"]) > 0
            assert "6 requests are in progress" in json.load(answer)["error"]
        assert call("/ready", method="GET")[0] == 503  # it was not warmed up
        assert call("/live", method="GET") == (200, {"live": True})
    assert idle(served)


def test_texts_wait_for_memory_and_only_so_long(served, call):
    assert idle(served)
    assert served.service.limits.rows(served.service.model.cache_bytes) == (8, 40)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            texts = {"prompts": ["a"] * 8, "max_tokens": 10_000}
            stack.enter_context(server.send(served.address, "/generate", texts))
        wait_for(served, 5)
        time.sleep(0.1)  # until all of them have their memory
        status, answer = call("/generate", {"prompts": ["a", "b"], "max_tokens": 2})
        assert status == 503 and "busy" in answer["error"]
    assert idle(served)
    assert call("/generate", {"prompts": ["a", "b"], "max_tokens": 2})[0] == 200


def test_memory_is_given_back_by_requests_that_leave_while_they_wait():
    async def queue():
        admission, order = Admission(most=9, rows=4, wait_seconds=10), []

        async def take(name, rows):
            async with admission.texts(rows):
                order.append(name)
                await asyncio.sleep(0.02)

        tasks = [asyncio.ensure_future(take(*one)) for one in (("a", 3), ("b", 4), ("c", 2), ("d", 2))]
        await asyncio.sleep(0.01)
        tasks[1].cancel()  # it waits, and the others behind it
        await asyncio.gather(*tasks, return_exceptions=True)
        async with admission.texts(4):  # nothing was lost
            admission.stop()
        with pytest.raises(RequestError, match="stopping"):
            await take("e", 1)
        return order

    assert asyncio.run(queue()) == ["a", "c", "d"]


def received(connection):
    """All that comes until the server closes."""
    with connection:
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
        return data


def test_slow_clients_are_cut(served):
    host, port = served.address.removeprefix("http://").split(":")
    start = time.monotonic()
    silent = socket.create_connection((host, int(port)), timeout=10)
    headers = socket.create_connection((host, int(port)), timeout=10)
    headers.sendall(b"POST /score HT")
    body = server.send(served.address, "", "x", head="POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        for byte in b"TP/1.1\r\nHost: a\r\n":
            headers.sendall(bytes([byte]))
            time.sleep(0.05)
    assert received(silent) == b""
    with contextlib.suppress(ConnectionResetError):
        assert received(headers) == b""
    answer = received(body)
    assert b"408" in answer and b"did not come within 0.4 seconds" in answer
    assert time.monotonic() - start < 8


def test_a_connection_stays_idle_after_an_answer_longer_than_a_new_one_may_take_for_its_headers(served):
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for _ in range(3):
            connection.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
            time.sleep(0.9)  # a new connection would be closed after 0.4 s
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        assert connection.recv(1 << 16) == b"" and 1 < time.monotonic() - start < 8


def test_connections_have_a_bound(served):
    host, port = served.address.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port)), timeout=10) for _ in range(45)]
    assert received(connections[-1]).startswith(b"HTTP/1.1 503")
    for connection in connections:
        connection.close()
    while served.running._runner.server.connections:
        time.sleep(0.01)


def test_the_log_has_a_line_for_each_request_and_no_traceback(served, call, caplog):
    caplog.set_level(logging.INFO)
    call("/score", {"texts": ["abc"]})
    call("/sessions/none", {"tokens": [1]})
    call("/nothing")
    server.send(served.address, "/stream", {"prompt": "a", "max_tokens": 10_000}).close()
    broken = server.send(served.address, "", "", head="no HTTP\r\n\r\n")
    assert b"400" in received(broken)
    assert idle(served)
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [(line["route"], line["status"], line["tokens"]) for line in lines[:3]] == [
        ("/score", 200, 3),
        ("/sessions/{session}", 404, 0),
        ("none", 404, 0),
    ]
    (gone,) = [line for line in lines if line["route"] == "/stream"]
    assert gone["status"] == 499 and "gone" in gone["error"]
    assert set(lines[0]) == {"method", "route", "status", "seconds", "tokens", "bytes"}
    assert not any("Traceback" in str(record.msg) for record in caplog.records)


def test_metrics_count_requests_and_calls(served, call):
    name = 'serve_requests_total{route="/score",status="200"}'
    before, tokens = metric(served, name), metric(served, 'serve_tokens_total{route="/score"}')
    call("/score", {"texts": ["abc", "de"]})
    with urllib.request.urlopen(served.address + "/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain")
    assert f"{name} {before + 1}" in text
    assert f'serve_tokens_total{{route="/score"}} {tokens + 5}' in text
    assert 'serve_call_seconds_count{call="score"}' in text and "process_resident_memory_bytes" in text


def test_a_stop_is_told_in_the_stream_and_takes_no_longer_than_it_may(byte_export):
    with server.started(byte_export, stop_seconds=0.2, warm_up=True) as served:
        while server.call(served.address, "/ready", method="GET") != (200, {"ready": True}):
            time.sleep(0.01)
        stream = server.send(served.address, "/stream", {"prompt": "a", "max_tokens": 10_000})
        whole = server.send(served.address, "/generate", LONG)
        stream.recv(1000)
        start = time.monotonic()
        served.run(served.running.stop())
        assert time.monotonic() - start < 4
        last = [line for line in received(stream).split(b"\r\n") if line.startswith(b"{")][-1]
        assert json.loads(last) == {"error": "the server is stopping"}
        answer = received(whole)
        assert answer.startswith(b"HTTP/1.1 503") and b"the server is stopping" in answer

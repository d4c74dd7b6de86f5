"""The example server over HTTP."""

import asyncio
import functools
import json
import urllib.request

import aiohttp
import numpy as np
import processes
import pytest
import server
from processes import ROOT

from txl_tf.inference.causal import sampling_settings

pytestmark = pytest.mark.usefixtures("loaded_once")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def clock():
    """The server's time, which stands still unless a test moves it."""
    return Clock()


@pytest.fixture(scope="module")
def address(byte_export, clock):
    """Where a server runs, in a thread."""
    with server.running(byte_export, max_sessions=8, session_seconds=60, clock=clock) as address:
        yield address


@pytest.fixture(scope="module")
def call(address):
    """call(path, request, method) -> (status, answer)."""
    return functools.partial(server.call, address)


def test_generate_and_score(call, plain_model):
    status, answer = call("/generate", {"prompts": ["def f(", ""], "max_tokens": 20, "top_p": 0.9, "seeds": [1, 2]})
    assert (status, answer["texts"]) == (200, plain_model.generate(["def f(", ""], 20, top_p=0.9, seed=[1, 2]))
    status, answer = call("/score", {"texts": ["abc", ""]})
    assert status == 200
    assert answer["total"] == pytest.approx([plain_model.score("abc").total, 0.0], abs=1e-3)
    assert answer["tokens"] == [[97, 98, 99], []]


def test_the_example_of_a_client_prints_a_text_and_its_loss(address, plain_model):
    done = processes.run(["examples/client.py", address, "def f("], cwd=ROOT)
    text = "def f(" + plain_model.generate("def f(", 200, top_p=0.9, seed=1)
    score = plain_model.score(text)
    mean = -score.total / len(score.ids)
    assert (done.returncode, done.stdout) == (0, f"{text}\nmean loss of a token: {mean:.3f} nats\n"), done.stderr


def test_stop_and_repetition_penalty(call, plain_model):
    text = plain_model.generate("x", 20, repetition_penalty=1.3)
    stop = next(character for character in text[5:] if character.isascii())
    request = {"prompts": ["x"], "max_tokens": 20, "repetition_penalty": 1.3, "stop": ["not in it", stop]}
    assert call("/generate", request)[1]["texts"] == [text[: text.index(stop)]]


@pytest.mark.parametrize("prompt", ["def f(", ""])
def test_a_stream_comes_in_pieces_that_are_the_text(address, plain_model, prompt):
    data = json.dumps({"prompt": prompt, "max_tokens": 50, "top_p": 0.9, "seed": 3}).encode()
    with urllib.request.urlopen(address + "/stream", data, timeout=120) as answer:
        pieces = [json.loads(line)["text"] for line in answer]
    assert len(pieces) == 5  # 1 + 3 * 16 + 1 tokens
    assert "".join(pieces) == plain_model.generate(prompt, 50, top_p=0.9, seed=3)


def test_200_concurrent_sessions_do_not_mix(byte_export, plain_model):
    """Each reads a prompt of its own and goes on with the likeliest token: what the model alone says of that text."""
    draw = np.random.default_rng(0)
    prompts = [draw.integers(0, 256, 1 + i % 5).tolist() for i in range(200)]
    steps = 6

    async def client(http, prompt):
        async def post(path, sent):
            async with http.post(path, json=sent) as answer:
                assert answer.status == 200, await answer.text()
                return await answer.json()

        session = (await post("/sessions", {}))["session"]
        text, unread, answers = list(prompt), prompt, []
        for _ in range(steps):
            answers.append(await post(f"/sessions/{session}", {"tokens": unread, "top": 2}))
            assert answers[-1]["length"] == len(text)
            unread = [answers[-1]["next"][0]["token"]]
            text += unread
        async with http.delete(f"/sessions/{session}") as answer:
            assert answer.status == 200
        return text, answers

    async def all_clients(address):
        async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(limit=200)) as http:
            return await asyncio.gather(*(client(http, prompt) for prompt in prompts))

    with server.started(byte_export, max_sessions=200, max_requests=200) as served:
        found = asyncio.run(all_clients(served.address))
        assert len(served.service.sessions) == 0
    texts = np.zeros([200, 5 + steps], np.int32)
    for row, (text, _) in zip(texts, found, strict=True):
        row[: len(text)] = text
    hidden, _ = plain_model.model(texts, reach=plain_model.generator.decoder.reach)
    for prompt, expected, (_, answers) in zip(prompts, plain_model.model.log_prob(hidden).numpy(), found, strict=True):
        for log_prob, answer in zip(expected[len(prompt) - 1 :], answers, strict=False):
            best = np.sort(log_prob)[:-3:-1]
            for one, likely in zip(answer["next"], best, strict=True):
                assert one["log_prob"] == pytest.approx(log_prob[one["token"]], abs=1e-3)
                assert one["log_prob"] == pytest.approx(likely, abs=1e-3)
    assert len({tuple(text[-steps:]) for text, _ in found}) > 100  # or a mix would be hard to see


@pytest.mark.parametrize(
    ("path", "request_", "status", "reason"),
    [
        ("/nothing", {}, 404, "POST /nothing: Not Found; the served model has /sampling, /generate"),
        ("/sampling", {}, 405, "POST /sampling: Method Not Allowed; send it by GET or HEAD"),
        (
            "/fill",
            {"texts": ["a ____"]},
            404,
            "/fill is for an XLNet: the served model has /sampling, /generate",
        ),
        ("/encode", {"texts": ["a"]}, 404, "/encode is for an XLNet"),
        ("/score", b"x" * (1 << 21), 413, "the request has more than 1,048,576 bytes"),
        ("/stream", {"prompt": ["x"]}, 400, "prompt must be a string"),
        ("/stream", {"prompt": "x", "top_p": 7}, 400, "top_p must be above 0"),
        ("/stream", {"prompt": "x", "seed": 1.5}, 400, "seed must be an integer"),
        ("/generate", b"{", 400, "not JSON"),
        ("/generate", b"[1]", 400, "JSON object"),
        ("/generate", {"prompts": "x"}, 400, "prompts must be a list"),
        ("/generate", {"prompts": ["x"], "temperature": "hot"}, 400, "temperature must be a number"),
        ("/generate", {"prompts": ["x"], "max_tokens": 0}, 400, "max_tokens must be at least 1 and"),
        ("/generate", {"prompts": ["x"], "max_tokens": 10**6}, 400, "max_tokens must be at least 1 and at most"),
        ("/generate", {"prompts": ["x"], "top_p": 7}, 400, "top_p must be above 0"),
        ("/generate", {"prompts": ["x"], "min_p": 1.5}, 400, "min_p must be at least 0 and at most 1"),
        ("/generate", b'{"prompts": ["x"], "typical_p": NaN}', 400, "typical_p=nan is too large or not a number"),
        ("/generate", {"prompts": ["x"], "top_q": 0.5}, 400, "'top_q' is not a field of this request: choose from"),
        ("/stream", {"prompt": "x", "seeds": [1]}, 400, "'seeds' is not a field of this request"),
        ("/score", {"texts": ["x"], "temperature": 1}, 400, "'temperature' is not a field of this request"),
        ("/sessions", {"tokens": [1]}, 400, "'tokens' is not a field of this request: there are none"),
        ("/sessions/unknown", {"token": [1]}, 400, "'token' is not a field of this request: choose from tokens, top"),
        ("/generate", {"prompts": ["x"], "stop": "x"}, 400, "stop must be a list of strings"),
        ("/generate", {"prompts": ["x"], "stop": [""]}, 400, "stop strings must not be empty"),
        ("/generate", {"prompts": ["x"], "seeds": [1, 2]}, 400, "one seed for each text"),
        ("/score", {"texts": [3]}, 400, "texts must be a list of strings"),
        ("/sessions/unknown", {"tokens": [1]}, 404, "no session 'unknown'"),
        ("/sessions/unknown", {"tokens": [256]}, 400, "tokens must be a list of integers from 0 to 255"),
    ],
)
def test_wrong_requests_get_a_reason(call, path, request_, status, reason):
    found, answer = call(path, request_)
    assert found == status
    assert reason in answer["error"]


def test_every_setting_of_sampling_is_a_field_that_may_be_left_out(address, call, plain_model):
    with urllib.request.urlopen(address + "/sampling", timeout=120) as answer:
        assert json.load(answer) == json.loads(sampling_settings.to_json())
    given = {"temperature": 2.0, "top_k": 200, "top_p": 0.99, "repetition_penalty": 1.1, "min_p": 0.02}
    given |= {"typical_p": 0.9}
    assert set(given) == set(sampling_settings.names())
    request = {"prompts": ["x"], "max_tokens": 30, "seeds": [3]}
    texts = [plain_model.generate("x", 30, seed=3, **given), plain_model.generate("x", 30, seed=3)]
    assert [call("/generate", request | options)[1]["texts"] for options in (given, {})] == [[text] for text in texts]
    assert texts[0] != texts[1]


def test_there_is_a_wrong_method(call):
    assert call("/score", method="PUT")[0] == 405


def test_sessions_are_limited_and_forgotten_when_unused(call, clock):
    clock.now += 61  # whatever other tests left open
    names = [call("/sessions")[1]["session"] for _ in range(8)]
    status, answer = call("/sessions")
    assert status == 429 and "8 sessions are open" in answer["error"]
    clock.now += 50
    assert call(f"/sessions/{names[0]}", {"tokens": [1]})[0] == 200
    clock.now += 50
    assert call(f"/sessions/{names[1]}", {"tokens": [1]})[0] == 404
    assert call(f"/sessions/{names[0]}", {"tokens": [1]})[1]["length"] == 2
    assert call("/sessions")[0] == 200

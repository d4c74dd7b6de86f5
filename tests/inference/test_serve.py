"""The example server over HTTP."""

import concurrent.futures
import importlib.util
import json
import pathlib
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from txl_tf.inference.export import export


@pytest.fixture(scope="module")
def call(byte_model, tmp_path_factory):
    """call(path, request, method) -> (status, answer) of a running server."""
    path = pathlib.Path(__file__).parents[2] / "examples" / "serve.py"
    spec = importlib.util.spec_from_file_location("serve", path)
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    export_dir = str(tmp_path_factory.mktemp("served") / "model")
    export(byte_model.generator, byte_model.vocabulary, export_dir, "byte")
    server = serve.make_server(serve.Service(export_dir, max_sessions=8), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def call(path, request=None, method="POST"):
        data = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
        address = f"http://127.0.0.1:{server.server_port}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, data, method=method), timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    yield call
    server.shutdown()
    server.server_close()


def test_generate_and_score(call, byte_model):
    status, answer = call("/generate", {"prompts": ["def f(", ""], "max_tokens": 20, "top_p": 0.9, "seeds": [1, 2]})
    assert (status, answer["texts"]) == (200, byte_model.generate(["def f(", ""], 20, top_p=0.9, seed=[1, 2]))
    status, answer = call("/score", {"texts": ["abc", ""]})
    assert status == 200
    assert answer["total"] == pytest.approx([byte_model.score("abc").total, 0.0], abs=1e-3)
    assert answer["tokens"] == [[97, 98, 99], []]


def test_concurrent_sessions_do_not_mix(call, byte_model):
    texts = np.random.default_rng(0).integers(0, 256, [4, 12])

    def run(text):
        session = call("/sessions")[1]["session"]
        answers = [call(f"/sessions/{session}", {"tokens": [int(token)], "top": 256})[1] for token in text]
        assert [answer["length"] for answer in answers] == list(range(1, 13))
        assert call(f"/sessions/{session}", method="DELETE")[0] == 200
        return answers[-1]["next"]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, texts))
    reach = byte_model.generator.decoder.reach
    hidden, _ = byte_model.model(texts.astype(np.int32), reach=reach)
    for expected, following in zip(byte_model.model.log_prob(hidden)[:, -1].numpy(), found, strict=True):
        assert [one["token"] for one in following[:3]] == np.argsort(-expected)[:3].tolist()
        for one in following:
            assert one["log_prob"] == pytest.approx(expected[one["token"]], abs=1e-3)


@pytest.mark.parametrize(
    ("path", "request_", "status", "reason"),
    [
        ("/nothing", {}, 404, "there is no /nothing"),
        ("/generate", b"{", 400, "not JSON"),
        ("/generate", b"[1]", 400, "JSON object"),
        ("/generate", {"prompts": "x"}, 400, "prompts must be a list"),
        ("/generate", {"prompts": ["x"], "temperature": "hot"}, 400, "temperature must be of type float"),
        ("/generate", {"prompts": ["x"], "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ("/generate", {"prompts": ["x"], "max_tokens": 10**6}, 400, "max_tokens must be at most"),
        ("/generate", {"prompts": ["x"], "top_p": 7}, 400, "top_p must be above 0"),
        ("/generate", {"prompts": ["x"], "seeds": [1, 2]}, 400, "one seed for each prompt"),
        ("/score", {"texts": [3]}, 400, "texts must be a list of strings"),
        ("/sessions/unknown", {"tokens": [1]}, 404, "no session 'unknown'"),
        ("/sessions/unknown", {"tokens": [256]}, 400, "tokens must be a list of integers from 0 to 255"),
    ],
)
def test_wrong_requests_get_a_reason(call, path, request_, status, reason):
    found, answer = call(path, request_)
    assert found == status
    assert reason in answer["error"]


def test_the_oldest_session_is_forgotten(call):
    first = call("/sessions")[1]["session"]
    for _ in range(8):
        call("/sessions")
    assert call(f"/sessions/{first}", {"tokens": [1]})[0] == 404

"""The example server with an XLNet, over HTTP."""

import base64
import concurrent.futures
import functools
import json
import time
import urllib.request

import numpy as np
import pytest
import server
import tensorflow as tf

from serving.answers.pace import Pace
from serving.model import ServedModel
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.xlnet.encoder import Encoder

pytestmark = pytest.mark.usefixtures("loaded_once")


@pytest.fixture(scope="module")
def served(xlnet_export):
    """A server that runs."""
    with server.started(str(xlnet_export)) as served:
        yield served


@pytest.fixture
def call(served):
    """call(path, request, method) -> (status, answer)."""
    return functools.partial(server.call, served.address)


class Slow:
    """A model whose calls take longer, and the names of those that began."""

    def __init__(self, model, seconds):
        self._model, self._seconds, self.signatures, self.called = model, seconds, model.signatures, []

    def __call__(self, signature, **tensors):
        self.called.append(signature)
        time.sleep(self._seconds)
        return self._model(signature, **tensors)


@pytest.fixture
def slow(served, monkeypatch):
    """The Slow model of parts of the least size."""
    parts, slow = served.service.texts.parts, Slow(served.service.model, 0.05)
    monkeypatch.setattr(parts, "_model", slow)
    for pace in ("_steps", "_tokens"):
        monkeypatch.setattr(parts, pace, Pace(1e-9, first=1, most=1))
    return slow


LONG = {"texts": ["____*25 is"], "beam_size": 3}


def test_parts_give_what_one_call_gives(served, call, slow, xlnet_fill_in):
    texts, options = ["the ____ River", "____*3 is so", "____"], {"order": "confident", "beam_size": 4, "top": 2}
    answer = call("/fill", {"texts": texts, **options})[1]
    assert slow.called == ["fill_part"] * (3 + 1)  # for the first two texts, and for the third
    for fillings, own in zip(answer["fillings"], xlnet_fill_in.fill(texts, **options), strict=True):
        assert [filling["tokens"] for filling in fillings] == [filling.ids.tolist() for filling in own]
        assert [filling["total"] for filling in fillings] == pytest.approx([f.total for f in own], abs=1e-4)
    slow.called.clear()
    answer = call("/score", {"texts": ["the River", "", "so one"]})[1]
    expected = xlnet_fill_in.score(["the River", "", "so one"])
    assert len(slow.called) == sum(len(score.ids) for score in expected) > 4
    for log_probs, total, own in zip(answer["log_probs"], answer["total"], expected, strict=True):
        np.testing.assert_allclose(log_probs, own.log_probs, rtol=0, atol=1e-4)
        assert total == pytest.approx(own.total, abs=1e-3)


def test_others_have_their_turns_amid_a_long_request_and_it_ends_when_its_client_leaves(served, call, slow):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(call, "/fill", LONG)
        while len(slow.called) < 3:
            time.sleep(0.01)
        assert call("/encode", {"texts": ["so"]})[0] == 200
        between = len(slow.called)
        assert long.result()[0] == 200
    assert between < 20 < len(slow.called) == 25
    slow.called.clear()
    connection = server.send(served.address, "/fill", LONG)
    while len(slow.called) < 3:
        time.sleep(0.01)
    connection.close()
    while served.service.admission.inside or served.service.turns.busy:
        time.sleep(0.01)
    assert len(slow.called) < 20


def test_fill(call, xlnet_fill_in):
    texts = ["the ____ River", "____*2 is"]
    status, answer = call("/fill", {"texts": texts, "order": "confident", "beam_size": 4, "top": 2, "context": "x"})
    expected = xlnet_fill_in.fill(texts, order="confident", beam_size=4, top=2, context="x")
    assert status == 200
    for fillings, own in zip(answer["fillings"], expected, strict=True):
        assert [filling["tokens"] for filling in fillings] == [filling.ids.tolist() for filling in own]
        assert [filling["text"] for filling in fillings] == [filling.text.strip() for filling in own]
        assert [filling["total"] for filling in fillings] == pytest.approx([f.total for f in own], abs=1e-4)
        assert [sum(filling["log_probs"]) for filling in fillings] == pytest.approx([f.total for f in own], abs=1e-4)
    assert len(call("/fill", {"texts": texts[:1]})[1]["fillings"][0]) == 5


def test_candidates(call, xlnet_fill_in):
    texts, candidates = ["the ____ River", "____ is"], ["a dash", "so", "one"]
    request = {"texts": texts, "candidates": candidates, "order": "right_to_left", "context": "x"}
    status, answer = call("/fill", request)
    expected = xlnet_fill_in.fill(texts, candidates=candidates, order="right_to_left", context="x")
    assert status == 200
    for fillings, own in zip(answer["fillings"], expected, strict=True):
        assert [filling["tokens"] for filling in fillings] == [filling.ids.tolist() for filling in own]
        assert [filling["text"] for filling in fillings] == [" ".join(filling.text.split()) for filling in own]
        assert [filling["total"] for filling in fillings] == pytest.approx([f.total for f in own], abs=1e-4)


def streamed(served, request):
    """The lines of a stream."""
    with urllib.request.urlopen(served.address + "/stream", json.dumps(request).encode(), timeout=120) as answer:
        return [json.loads(line) for line in answer]


def test_texts_are_continued(served, call, xlnet_continuation):
    own = xlnet_continuation
    prompts = ["the River is", "", "so one " * 40]
    request = {"prompts": prompts, "max_tokens": 20, "seeds": [1, 2, 3], "top_p": 0.9}
    expected = own.generate(prompts, 20, seed=[1, 2, 3], top_p=0.9)
    assert call("/generate", request) == (200, {"texts": expected})
    lines = streamed(served, {"prompt": prompts[2], "max_tokens": 20, "seed": 3, "top_p": 0.9, "top": 2})
    assert "".join(line["text"] for line in lines) == expected[2]
    tokens = [token for line in lines for token in line["tokens"]]
    ids = [token["token"] for token in tokens]
    before = own.vocabulary.encode(prompts[2])
    log_probs, _ = own.generator.read(tf.constant([[*before, *ids]], tf.int32), own.generator.begin(1).cache)
    log_probs = log_probs[0, len(before) - 1 : -1].numpy()
    assert [token["log_prob"] for token in tokens] == pytest.approx(log_probs[np.arange(20), ids].tolist(), abs=1e-4)
    assert [token["top"][0]["log_prob"] for token in tokens] == pytest.approx(log_probs.max(axis=1).tolist(), abs=1e-4)
    about = call("/model", method="GET")[1]
    assert about["note"].startswith("An XLNet is trained to fill gaps, not to continue texts")
    assert call("/sampling", method="GET") == (200, json.loads(sampling_settings.to_json()))


def test_a_session_reads_tokens(call, xlnet_continuation):
    own = xlnet_continuation
    ids = own.vocabulary.encode("the River is")
    session = call("/sessions", {})[1]["session"]
    status, answer = call(f"/sessions/{session}", {"tokens": ids.tolist(), "top": 3})
    log_probs, _ = own.generator.read(tf.constant([ids], tf.int32), own.generator.begin(1).cache)
    assert (status, answer["length"]) == (200, len(ids))
    assert [one["token"] for one in answer["next"]] == np.argsort(-log_probs[0, -1].numpy())[:3].tolist()


@pytest.mark.slow
def test_once_ready_the_first_request_of_each_route_calls_what_the_warm_up_has_called(served, call, monkeypatch):
    """It calls signatures with these shapes."""
    called, real = set(), ServedModel.__call__

    def recording(model, signature, **tensors):
        called.add((signature, *sorted((name, tuple(np.shape(value))) for name, value in tensors.items())))
        return real(model, signature, **tensors)

    monkeypatch.setattr(ServedModel, "__call__", recording)
    served.run(served.service.warm_up())
    warm = set(called)
    session = call("/sessions", {})[1]["session"]
    for path, request in (
        ("/generate", {"prompts": ["b"], "max_tokens": 2}),
        (f"/sessions/{session}", {"tokens": [5]}),
        ("/fill", {"texts": ["b ____"]}),
        ("/score", {"texts": ["b"]}),
    ):
        assert call(path, request)[0] == 200
    assert streamed(served, {"prompt": "b", "max_tokens": 2, "top": 2})
    assert {"write", "step", "decode_after"} <= {signature for signature, *_ in warm} and called == warm


def test_an_older_export_continues_no_texts(served, call, monkeypatch):
    monkeypatch.setattr(served.service.model, "routes", ("/fill", "/encode", "/score"))
    monkeypatch.setattr(served.service.model, "continues", False)
    assert call("/generate", {"prompts": ["x"]}) == (
        404,
        {"error": "the served model has no generate: export it again"},
    )
    assert "note" not in call("/model", method="GET")[1]


def test_encode_and_score(call, xlnet, xlnet_fill_in):
    pairs = [("the River", "is"), ("x", "")]
    request = {"texts": [a for a, _ in pairs], "second": [b for _, b in pairs], "pool": "mean", "per_token": True}
    status, answer = call("/encode", request)
    expected = Encoder(*xlnet, jit_compile=False)(pairs, pool="mean")
    assert status == 200 and answer["tokens"] == [ids.tolist() for ids in expected.ids]
    np.testing.assert_allclose(answer["pooled"], expected.pooled, rtol=0, atol=1e-4)
    for found, own in zip(answer["hidden"], expected.hidden, strict=True):
        np.testing.assert_allclose(found, own, rtol=0, atol=1e-4)
    assert set(call("/encode", {"texts": ["x"]})[1]) == {"pooled", "tokens"}
    status, answer = call("/score", {"texts": ["the River"]})
    own = xlnet_fill_in.score("the River")
    assert (status, answer["tokens"]) == (200, [own.ids.tolist()])
    assert answer["total"] == pytest.approx([own.total], abs=1e-3)


def test_openais_routes_give_what_its_own_give(call):
    texts = ["the River", "so one"]
    status, answer = call("/v1/embeddings", {"input": texts, "model": "model"})
    own = call("/encode", {"texts": texts, "pool": "mean"})[1]
    assert status == 200 and [one["embedding"] for one in answer["data"]] == own["pooled"]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, own["tokens"]))
    coded = call("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})[1]["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded), "<f4"), own["pooled"][0], rtol=0, atol=1e-5)
    for wrong in ({"input": [1, 2]}, {"input": "a", "dimensions": 3}, {"input": []}, {"encoding_format": "float"}):
        status, answer = call("/v1/embeddings", wrong)
        assert status == 400 and answer["error"]["param"] in ("input", "dimensions")
    request = {"max_tokens": 6, "top_k": 5}
    own = call("/generate", request | {"prompts": texts, "seeds": [1, 2]})[1]["texts"]
    choices = call("/v1/completions", request | {"prompt": texts, "seed": 1, "logprobs": 1, "echo": True})[1]["choices"]
    assert [choice["text"] for choice in choices] == [a + b for a, b in zip(texts, own, strict=True)]
    tokens = call("/tokenize", {"prompt": texts[0]})[1]["tokens"]
    assert len(choices[0]["logprobs"]["tokens"]) == len(tokens) + 6
    assert call("/detokenize", {"tokens": tokens})[1]["prompt"].strip() == texts[0]


def test_tensorflow_servings_requests_are_answered_in_parts(call, served, slow):
    signatures, path = served.service.model.signatures, "/v1/models/model:predict"
    texts = ["the River", "", "so one is"]
    expected = signatures["score"](texts=tf.constant(texts))
    found = call(path, {"signature_name": "score", "inputs": texts})[1]["outputs"]
    assert len(slow.called) == sum(found["lengths"]) == expected["lengths"].numpy().sum()
    assert found["tokens"] == expected["tokens"].numpy().tolist()
    for name in ("log_probs", "total"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-3)
    given = {
        "texts": ["the ____ River", "____*3 is so"],
        "context": "x",
        "order": "confident",
        "beam_size": 4,
        "top": 2,
    }
    given["free"] = False
    tensors = {name: tf.constant(value) for name, value in given.items()}
    expected = signatures["fill"](**tensors)
    slow.called.clear()
    found = call(path, {"signature_name": "fill", "inputs": given})[1]["outputs"]
    assert slow.called == ["fill_part"] * 3 and found["tokens"] == expected["tokens"].numpy().tolist()
    np.testing.assert_allclose(found["log_probs"], expected["log_probs"], rtol=0, atol=1e-3)
    status, answer = call(path, {"signature_name": "fill", "inputs": given | {"beam_size": 65}})
    assert (status, answer["error"]) == (400, "beam_size may be at most 64")


@pytest.mark.parametrize(
    ("path", "request_", "status", "reason"),
    [
        (
            "/classify",
            {"texts": ["x"]},
            404,
            "/classify is for an XLNet for classification: the served model has /fill",
        ),
        ("/generate", {"prompts": ["x"], "top_p": 2}, 400, "top_p must be above 0 and at most 1"),
        ("/score", {"texts": ["x"], "top": 1}, 400, "'top' is not a field of this request"),
        ("/nothing", {}, 404, "POST /nothing: Not Found"),
        ("/fill", {"texts": ["x"]}, 400, "a text has no blank"),
        ("/fill", {"texts": ["____" + " the" * 50]}, 400, "a text has more than 32 tokens"),
        ("/fill", {"texts": ["____"], "top": 9}, 400, "top must be from 1 to beam_size"),
        ("/fill", {"texts": ["____"], "free": 1}, 400, "free must be true or false"),
        ("/fill", {"texts": ["____"], "order": "up"}, 400, "order must be left_to_right"),
        ("/fill", {"texts": ["____"], "candidates": []}, 400, "candidates must be a list of strings, at least 1"),
        ("/fill", {"texts": ["____"], "candidates": ["a"] * 17}, 413, "at most 16"),
        ("/fill", {"texts": ["____"], "candidates": ["a" * 65]}, 413, "a candidate may have at most 64 bytes"),
        ("/fill", {"texts": ["____"], "candidates": ["a"], "top": 1}, 400, "'top' is not a field of this request"),
        ("/fill", {"texts": ["____ ____"], "candidates": ["a"]}, 400, "candidates are for a text with one blank"),
        ("/fill", {"texts": ["____"], "order": "1"}, 400, "order must be left_to_right"),
        ("/fill", {"texts": ["____"], "temperature": 1}, 400, "'temperature' is not a field of this request"),
        ("/encode", {"texts": ["x"], "pool": "max"}, 400, "pool must be one of last, first, mean"),
        ("/encode", {"texts": ["x"], "second": ["y", "z"]}, 400, "second text"),
    ],
)
def test_wrong_requests_get_a_reason(call, path, request_, status, reason):
    found, answer = call(path, request_)
    assert found == status
    assert reason in answer["error"]

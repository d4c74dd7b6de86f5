"""OpenAI's completions, and a vocabulary over HTTP."""

import concurrent.futures
import functools
import json
import urllib.request

import numpy as np
import pytest
import server
import tensorflow as tf
from random_model import draw

from serving.answers.completions import Held
from serving.answers.host_sampling import OFF, choose
from txl_tf.inference.causal.draw_token import Choice

pytestmark = pytest.mark.usefixtures("loaded_once")

LONG = "def f(" * 20
"""A prompt of several segments."""


@pytest.fixture(scope="module")
def served(byte_export):
    with server.started(byte_export) as served:
        yield served


@pytest.fixture
def call(served):
    return functools.partial(server.call, served.address)


@pytest.fixture
def complete(call):
    """complete(**request) -> the choices and the usage."""

    def ask(**request):
        status, answer = call("/v1/completions", request)
        assert status == 200, answer
        assert answer["object"] == "text_completion" and answer["model"] == "model"
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
        return answer["choices"], answer["usage"]

    return ask


@pytest.fixture
def streamed(served):
    """streamed(**request) -> the events of a stream, without the last one."""

    def ask(**request):
        data = json.dumps(request | {"stream": True}).encode()
        with urllib.request.urlopen(served.address + "/v1/completions", data, timeout=120) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            *events, end, rest = answer.read().decode().split("\n\n")
        assert (end, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    return ask


def log_probs_of(model, tokens):
    """The log-probabilities after each of the tokens of one text, float [n, V]."""
    hidden, _ = model.model(np.array([tokens], np.int32), reach=model.generator.decoder.reach)
    return model.model.log_prob(hidden).numpy()[0]


def test_texts_are_those_of_generate(complete, plain_model):
    given = {"max_tokens": 20, "top_p": 0.9}
    texts = plain_model.generate(["def f(", "", LONG], 20, top_p=0.9, seed=[7, 8, 9])
    choices, usage = complete(prompt=["def f(", "", LONG], seed=7, **given)
    assert [choice["text"] for choice in choices] == texts
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    read = 6 + 1 + len(LONG)
    assert usage == {"prompt_tokens": read, "completion_tokens": 60, "total_tokens": read + 60}
    ids = [list(b"def f("), list(LONG.encode())]
    choices, _ = complete(prompt=ids, seed=7, n=2, **given)
    expected = plain_model.generate(["def f("] * 2 + [LONG] * 2, 20, top_p=0.9, seed=[7, 8, 9, 10])
    assert [choice["text"] for choice in choices] == expected
    assert complete(prompt=ids[0], seed=7, **given)[0][0]["text"] == texts[0]
    many, _ = complete(prompt=["x"] * 10, seed=2**31 - 4, max_tokens=3)
    seeds = [(2**31 - 4 + i) % 2**31 for i in range(10)]
    assert [choice["text"] for choice in many] == plain_model.generate(["x"] * 10, 3, seed=seeds)


def test_without_a_seed_texts_differ(complete):
    assert len({complete(prompt="x", max_tokens=30)[0][0]["text"] for _ in range(4)}) > 1


def test_log_probabilities_of_prompt_and_text_are_the_models(complete, plain_model):
    for prompt in ("def f(", LONG, "x"):
        ((choice,), usage) = complete(prompt=prompt, echo=True, logprobs=3, max_tokens=20, seed=1)
        assert choice["text"] == prompt + plain_model.generate(prompt, 20, seed=1)
        found = choice["logprobs"]
        assert {len(column) for column in found.values()} == {len(prompt) + 20} and usage["completion_tokens"] == 20
        assert "".join(found["tokens"]) == choice["text"]
        assert found["text_offset"] == np.cumsum([0, *map(len, found["tokens"][:-1])]).tolist()
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
        ((without,), _) = complete(prompt=prompt, logprobs=3, max_tokens=20, seed=1)
        assert without["logprobs"]["token_logprobs"] == found["token_logprobs"][len(prompt) :]
        assert without["logprobs"]["text_offset"][0] == 0
        # The tokens of the text are not in the answer, but their ids are among those that /stream gives.
        expected = log_probs_of(plain_model, list(prompt.encode()))
        for i in range(1, len(prompt)):
            rates = expected[i - 1]
            assert found["token_logprobs"][i] == pytest.approx(rates[ord(prompt[i])], abs=1e-3)
            best = sorted(found["top_logprobs"][i].values(), reverse=True)
            assert len(best) in (3, 4) and best[:3] == pytest.approx(np.sort(rates)[:-4:-1], abs=1e-3)


def test_log_probabilities_without_new_tokens_are_those_of_score(complete, call):
    ids = [10, *LONG.encode()]  # the token that begins a text in /score
    ((choice,), usage) = complete(prompt=ids, echo=True, logprobs=0, max_tokens=0)
    scored = call("/score", {"texts": [LONG]})[1]
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(scored["log_probs"][0], abs=1e-5)
    assert choice["finish_reason"] == "length" and usage["completion_tokens"] == 0


def test_a_text_ends_before_a_stop_string(complete, plain_model, streamed):
    text = plain_model.generate("def f(", 60, seed=3)
    for begin, size in ((5, 1), (9, 3), (len(text) // 2, 2), (len(text) - 5, 4)):
        stop = text[begin : begin + size]
        wanted = text[: text.index(stop)]
        ((choice,), usage) = complete(prompt="def f(", max_tokens=60, seed=3, stop=["not in it", stop])
        assert (choice["text"], choice["finish_reason"]) == (wanted, "stop")
        ((rated,), counted) = complete(prompt="def f(", max_tokens=60, seed=3, stop=stop, logprobs=1)
        assert rated["text"] == wanted and "".join(rated["logprobs"]["tokens"]) == wanted
        assert counted == usage and usage["completion_tokens"] == len(rated["logprobs"]["tokens"])
        events = streamed(prompt="def f(", max_tokens=60, seed=3, stop=stop)
        assert "".join(event["choices"][0]["text"] for event in events) == wanted
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_text_is_held_back_while_a_stop_string_can_begin_in_it():
    """For every text over two letters, every way to cut it, and several stop strings: the whole text's answer."""
    draw = np.random.default_rng(0)
    for _ in range(500):
        text = "".join(draw.choice(["a", "b"], 12))
        stop = ["".join(draw.choice(["a", "b"], draw.integers(2, 6))) for _ in range(draw.integers(0, 3))]
        places = [text.index(one) for one in stop if one in text]
        held, begin, found = Held(stop), 0, []
        while begin < len(text) and not (found and found[-1].finish):
            end = min(len(text), begin + int(draw.integers(1, 5)))
            held.add(list(text[begin:end]), [b""] * (end - begin), [{}] * (end - begin))
            found.append(held.take(end == len(text)))
            begin = end
        assert "".join(piece.text for piece in found) == text[: min(places, default=len(text))], (text, stop)
        assert "".join(one["text"] for piece in found for one in piece.tokens) == "".join(p.text for p in found)
        assert found[-1].finish == ("stop" if places else "length")


def test_a_stream_has_the_texts_in_parts(streamed, complete):
    request = {"prompt": ["def f(", "x"], "n": 2, "max_tokens": 40, "seed": 5, "echo": True, "logprobs": 2}
    choices, usage = complete(**request)
    *events, last = streamed(**request, stream_options={"include_usage": True})
    assert last["choices"] == [] and last["usage"] == usage and len({event["id"] for event in events}) == 1
    for i, whole in enumerate(choices):
        parts = [choice for event in events for choice in event["choices"] if choice["index"] == i]
        assert len(parts) > 3 and "".join(part["text"] for part in parts) == whole["text"]
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
        columns = {name: [one for part in parts for one in part["logprobs"][name]] for name in whole["logprobs"]}
        for name in ("tokens", "text_offset"):
            assert columns[name] == whole["logprobs"][name]
        assert columns["token_logprobs"][1:] == pytest.approx(whole["logprobs"]["token_logprobs"][1:], abs=1e-4)
        for best, wanted in zip(columns["top_logprobs"][1:], whole["logprobs"]["top_logprobs"][1:], strict=True):
            assert best == pytest.approx(wanted, abs=1e-4)
    assert all("usage" not in event for event in streamed(prompt="x", max_tokens=3))


def test_a_bias_adds_to_the_log_probabilities(complete, plain_model):
    request = {"prompt": LONG, "max_tokens": 20, "seed": 3}
    for settings in (
        {},
        {"top_p": 0.9, "temperature": 0.8},
        {"top_k": 5, "repetition_penalty": 1.3},
        {"typical_p": 0.5},
    ):
        (unbiased,), _ = complete(**request, **settings, logit_bias={"120": 0})
        assert unbiased["text"] == plain_model.generate(LONG, 20, seed=3, **settings)
    ((only,), _) = complete(**request, logit_bias={"120": 100}, logprobs=1)
    assert only["text"] == "x" * 20 and only["logprobs"]["token_logprobs"][0] < 0  # without the bias
    (best,) = np.argsort(log_probs_of(plain_model, list(LONG.encode()))[-1])[-1:]
    never, _ = complete(**request | {"n": 20, "max_tokens": 1}, logit_bias={str(best): -100}, logprobs=0)
    greedy, _ = complete(**request | {"max_tokens": 1}, temperature=0, logprobs=0)
    wanted = greedy[0]["logprobs"]["top_logprobs"][0].keys()
    assert not any(choice["logprobs"]["top_logprobs"][0].keys() == wanted for choice in never)


def test_tokens_are_chosen_as_in_the_graph():
    rng = np.random.default_rng(1)
    for i in range(300):
        log_probs = np.float32(rng.normal(0, 3, 30) - (rng.random(30) < 0.1) * 1000)
        log_probs = np.float32(np.round(log_probs * 2) / 2 if i % 3 else log_probs)  # with equal ones
        log_probs -= np.log(np.exp(log_probs).sum())
        seen, seed, length = rng.random(30) < 0.3, int(rng.integers(-(2**31), 2**31)), int(rng.integers(1, 9999))
        settings = {
            "temperature": float(rng.choice([0, 0.3, 1, 2.5])),
            "top_k": int(rng.choice([0, 1, 7])),
            "top_p": float(rng.choice([1, 0.9, 0.31])),
            "min_p": float(rng.choice([0, 0.07])),
            "typical_p": float(rng.choice([1, 0.77])),
            "repetition_penalty": float(rng.choice([1, 1.4])),
        }
        choice = Choice.of([seed], **settings)
        position = tf.constant([length])
        wanted = draw(tf.constant(log_probs[None]), tf.constant(seen[None]), choice.seeds, position, choice.values)
        assert choose(log_probs, seen, seed, length, settings) == int(wanted[0]), (i, settings)
    assert {name: value.numpy() for name, value in Choice.of([0]).values.items()} == OFF


def test_requests_at_the_same_time_do_not_mix(call, plain_model):
    """Each gets its own text, as with /generate; some leave amid the answer."""
    prompts = [f"{i} def" + "x" * (i % 7) for i in range(24)]

    def ask(i):
        request = {"prompt": prompts[i], "max_tokens": 30, "seed": i} | ({"logprobs": 1, "echo": True} if i % 3 else {})
        if i % 4 == 3:
            request |= {"logit_bias": {"5": 0}}
        return call("/v1/completions", request)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    expected = plain_model.generate(prompts, 30, seed=list(range(24)))
    for i, (status, answer) in enumerate(answers):
        text = answer["choices"][0]["text"]
        assert (status, text) == (200, (prompts[i] if i % 3 else "") + expected[i])


@pytest.mark.parametrize(
    ("request_", "status", "param", "reason"),
    [
        ({}, 400, "prompt", "prompt must be a text, a list of texts, or token ids"),
        ({"prompt": []}, 400, "prompt", "prompt must be a list of strings, at least 1"),
        ({"prompt": [1, "a"]}, 400, "prompt", "prompt must be a list of strings"),
        ({"prompt": [[]]}, 400, "prompt", "prompt must be a list of strings"),
        ({"prompt": [256]}, 400, "prompt", "prompt must be a list of integers from 0 to 255"),
        ({"prompt": "a", "model": "gpt"}, 404, "model", "there is no model 'gpt': the server has model"),
        ({"prompt": "a", "suffix": "b"}, 400, "suffix", "suffix is not supported"),
        ({"prompt": "a", "best_of": 2}, 400, "best_of", "best_of is not supported: it must equal n"),
        ({"prompt": "a", "presence_penalty": 1}, 400, "presence_penalty", "use repetition_penalty"),
        ({"prompt": "a", "n": 0}, 400, "n", "n must be at least 1"),
        ({"prompt": "a", "n": 65}, 413, None, "prompt, n times, has 65 entries"),
        ({"prompt": "a", "logprobs": 21}, 400, "logprobs", "logprobs must be from 0 to 20"),
        ({"prompt": "a", "logprobs": True}, 400, "logprobs", "logprobs must be an integer"),
        ({"prompt": "a", "max_tokens": 0}, 400, None, "max_tokens must be at least 1"),
        ({"prompt": "a", "max_tokens": 10_000, "n": 60, "logprobs": 20}, 413, None, "the answer would have"),
        ({"prompt": "a", "top_p": 2}, 400, None, "top_p must be above 0"),
        ({"prompt": "a", "stop": ""}, 400, "stop", "stop strings must not be empty"),
        ({"prompt": "a", "stop": 5}, 400, "stop", "stop must be a list of strings"),
        ({"prompt": "a", "logit_bias": {"a": 1}}, 400, "logit_bias", "its names must be tokens from 0 to 255"),
        ({"prompt": "a", "logit_bias": {"1": 101}}, 400, "logit_bias", "values from -100 to 100"),
        ({"prompt": "a", "logit_bias": [1]}, 400, "logit_bias", "logit_bias must be an object"),
        ({"prompt": "a", "stream": 1}, 400, "stream", "stream must be true or false"),
        ({"prompt": "a", "stream": True, "stream_options": {"x": 1}}, 400, "x", "'x' is not a field"),
        ({"prompt": "a", "messages": []}, 400, "messages", "'messages' is not a field of this request"),
    ],
)
def test_a_wrong_request_gets_openais_error(call, request_, status, param, reason):
    found, answer = call("/v1/completions", request_)
    error = answer["error"]
    assert (found, error["type"], error["param"]) == (status, "invalid_request_error", param), error
    assert reason in error["message"]


def test_other_errors_have_openais_form_too(call):
    assert call("/v1/completions", b"{")[1]["error"]["message"].startswith("the request is not JSON")
    status, answer = call("/v1/models/gpt", None, "GET")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    status, answer = call("/v1/chat/completions", {"model": "model", "messages": []})
    assert status == 404 and "was not trained to chat" in answer["error"]["message"]
    status, answer = call("/v1/embeddings", {"input": "a"})
    assert status == 404 and "/v1/embeddings is for an XLNet" in answer["error"]["message"]


def test_the_vocabulary_over_http(call):
    text = "def é"
    status, answer = call("/tokenize", {"model": "model", "prompt": text, "add_special_tokens": False})
    assert (status, answer["tokens"], answer["count"]) == (200, list(text.encode()), 6)
    assert answer["max_model_len"] == 8192 and answer["token_strs"] is None
    names = call("/tokenize", {"prompt": text, "return_token_strs": True})[1]["token_strs"]
    assert names == ["d", "e", "f", " ", "\\xc3", "\\xa9"]
    assert call("/detokenize", {"tokens": answer["tokens"]}) == (200, {"prompt": text})
    assert call("/detokenize", {"tokens": []}) == (200, {"prompt": ""})
    info = call("/tokenizer_info", None, "GET")[1]
    assert (info["eos_token"], info["bos_token_id"], info["vocab_size"]) == ("\n", 10, 256)
    status, answer = call("/detokenize", {"tokens": [256]})
    assert (status, answer["error"]["param"]) == (400, "tokens")

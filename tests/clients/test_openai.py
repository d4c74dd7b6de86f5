"""The package openai asks the server."""

import asyncio
import base64

import numpy as np
import pytest
import server
from random_xlnet import random_xlnet, with_prefix

from serving.access import Access
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.inference.causal.left_to_right import LeftToRightXLNet
from txl_tf.inference.generating_xlnet import GeneratingXLNet
from txl_tf.inference.xlnet.encoder import Encoder

openai = pytest.importorskip("openai", reason="make test-clients has it")

TOKEN = "a-token-that-nobody-knows"


@pytest.fixture(scope="module")
def address(byte_export):
    with server.running(byte_export, access=Access(TOKEN)) as address:
        yield f"{address}/v1"


@pytest.fixture
def client(address):
    with openai.OpenAI(api_key=TOKEN, base_url=address, max_retries=0) as client:
        yield client


REQUEST = {"model": "model", "prompt": ["def f(", "x"], "max_tokens": 20, "seed": 3, "top_p": 0.9}


@pytest.fixture(scope="module")
def texts(byte_model):
    return byte_model.generate(["def f(", "x"], 20, seed=[3, 4], top_p=0.9)


def test_completions(client, texts):
    answer = client.completions.create(**REQUEST, logprobs=2, echo=True, user="someone")
    assert [choice.text for choice in answer.choices] == ["def f(" + texts[0], "x" + texts[1]]
    assert answer.usage.total_tokens == 7 + 40 and answer.model == "model"
    rates = answer.choices[0].logprobs
    assert rates.token_logprobs[0] is None and len(rates.tokens) == len(rates.text_offset) == 26
    for value, best in zip(rates.token_logprobs[1:], rates.top_logprobs[1:], strict=True):
        assert value in best.values() and max(best.values()) >= value
    stop = texts[0][4:6]
    choice = client.completions.create(**REQUEST | {"prompt": "def f("}, stop=stop).choices[0]
    assert (choice.text, choice.finish_reason) == (texts[0][: texts[0].index(stop)], "stop")
    ids = client.completions.create(**REQUEST | {"prompt": list(b"def f(")}, extra_body={"top_k": 0})
    assert ids.choices[0].text == texts[0]
    biased = client.completions.create(**REQUEST, logit_bias={"97": 100})
    assert [choice.text for choice in biased.choices] == ["a" * 20] * 2


def test_a_stream(client, texts):
    found, usage = ["", ""], None
    for event in client.completions.create(**REQUEST, stream=True, stream_options={"include_usage": True}):
        usage = event.usage
        for choice in event.choices:
            found[choice.index] += choice.text
    assert found == texts and usage.completion_tokens == 40


def test_many_clients_at_a_time(address, texts, byte_model):
    async def ask(client, i):
        if i % 2:
            answer = await client.completions.create(**REQUEST | {"prompt": f"{i}", "seed": i})
            return answer.choices[0].text
        stream = await client.completions.create(**REQUEST | {"prompt": f"{i}", "seed": i}, stream=True)
        return "".join([event.choices[0].text async for event in stream])

    async def ask_all():
        async with openai.AsyncOpenAI(api_key=TOKEN, base_url=address) as client:
            return await asyncio.gather(*(ask(client, i) for i in range(20)))

    expected = byte_model.generate([f"{i}" for i in range(20)], 20, seed=list(range(20)), top_p=0.9)
    assert asyncio.run(ask_all()) == expected


def test_errors_are_those_of_the_package(client, address):
    with pytest.raises(openai.NotFoundError, match="was not trained to chat"):
        client.chat.completions.create(model="model", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(openai.NotFoundError) as raised:
        client.completions.create(**REQUEST | {"model": "gpt"})
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(**REQUEST | {"max_tokens": -1})
    assert raised.value.type == "invalid_request_error" and "max_tokens" in raised.value.message
    with openai.OpenAI(api_key="wrong", base_url=address) as wrong:
        with pytest.raises(openai.AuthenticationError, match="send the server's token"):
            wrong.completions.create(**REQUEST)
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()


def test_models(client):
    assert [model.id for model in client.models.list()] == ["model"]
    assert client.models.retrieve("model").owned_by == "txl_tf"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_embeddings_are_the_encoders(tmp_path):
    vocabulary = with_prefix(XLNetVocabulary)
    model = random_xlnet(vocab_size=vocabulary.vocab_size)
    folder = str(tmp_path / "xlnet")
    GeneratingXLNet(LeftToRightXLNet(model, vocabulary, jit_compile=False), lengths=(32,), jit_compile=False).save(
        folder
    )
    texts = ["the River", "is so"]
    expected = Encoder(model, vocabulary, jit_compile=False)(texts, pool="mean").pooled
    with server.running(folder) as address, openai.OpenAI(api_key="none", base_url=f"{address}/v1") as client:
        for form in ("base64", "float"):
            answer = client.embeddings.create(model="xlnet", input=texts, encoding_format=form)
            vectors = [one.embedding for one in answer.data]
            if form == "base64":  # which the package leaves as it is, if it was asked for
                vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in vectors]
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-4)
        usual = client.embeddings.create(model="xlnet", input=texts[0])
        np.testing.assert_allclose([usual.data[0].embedding], expected[:1], rtol=0, atol=1e-4)
        with pytest.raises(openai.BadRequestError, match="dimensions=3"):
            client.embeddings.create(model="xlnet", input=texts, dimensions=3)

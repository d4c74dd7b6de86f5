"""A model's vocabulary over HTTP, as vLLM has it; and vectors of texts, as OpenAI's protocol has them."""

import base64

import numpy as np
import tensorflow as tf

from serving import fields
from serving.answers.pieces import label
from serving.errors import RequestError


class Tokens:
    """Texts as tokens, and back.

    Args:
        model: a Model.
        turns: its Turns.
        limits: a Limits.
        catalogue: a Catalogue.
    """

    def __init__(self, model, turns, limits, catalogue):
        self._model, self._turns, self._limits, self._catalogue = model, turns, limits, catalogue

    async def tokenize(self, request, record):
        """The tokens of request["prompt"]; the model has no special tokens to add to them."""
        request = {name: value for name, value in request.items() if value is not None}
        fields.check_known(request, ("model", "prompt", "add_special_tokens", "return_token_strs"))
        self._catalogue.check_name(request)
        fields.flag(request, "add_special_tokens", True)
        wants_texts = fields.flag(request, "return_token_strs")
        prompt = fields.string(request, "prompt", self._limits)
        tokens, names = await self._turns.run(self._tokens, (prompt, wants_texts))
        record.tokens += len(tokens)
        return {
            "count": len(tokens),
            "max_model_len": self._limits.text_tokens,
            "tokens": tokens,
            "token_strs": names,
        }

    async def detokenize(self, request, record):
        """The text of request["tokens"]."""
        request = {name: value for name, value in request.items() if value is not None}
        fields.check_known(request, ("model", "tokens"))
        self._catalogue.check_name(request)
        tokens = fields.integers(request, "tokens", range(self._model.vocab_size))
        record.tokens += len(tokens)
        text = await self._turns.run(self._text, np.array(tokens, np.int32)) if tokens else b""
        return {"prompt": text.decode("utf-8", "replace")}

    async def info(self):
        """A tokenizer's facts for clients. The token that ends a line, or a document, also begins a text."""
        start, name = await self._turns.run(self._start, None)
        text = label(name)
        return {
            "tokenizer_class": self._model.kind.title,
            "vocab_size": self._model.vocab_size,
            "model_max_length": self._limits.text_tokens,
            "bos_token": text,
            "bos_token_id": start,
            "eos_token": text,
            "eos_token_id": start,
        }

    def _tokens(self, items):
        """The tokens of a text, and their texts if they are wanted; in the model's thread."""
        ((prompt, wants_texts),) = items
        found = self._model(self._model.kind.encode, texts=tf.constant([prompt]))
        tokens = found["tokens"].numpy()[0][: found["lengths"].numpy()[0]]
        return [(tokens.tolist(), list(map(label, self._model.pieces.names(tokens))) if wants_texts else None)]

    def _text(self, items):
        return [self._model.pieces.text(tokens) for tokens in items]

    def _start(self, items):
        del items
        start = int(self._model(self._model.kind.encode, texts=tf.constant([""]))["start_token"].numpy())
        return [(start, self._model.pieces.names([start])[0])]


class Embeddings:
    """Vectors of texts.

    Args:
        texts: a Texts.
        limits: a Limits.
        catalogue: a Catalogue.
    """

    def __init__(self, texts, limits, catalogue):
        self._texts, self._limits, self._catalogue = texts, limits, catalogue

    async def embed(self, request, record):
        """The vectors of request["input"], a text or a list of them: those of /encode with the pool "mean"."""
        request = {name: value for name, value in request.items() if value is not None}
        fields.check_known(request, ("model", "input", "encoding_format", "dimensions", "user"))
        self._catalogue.check_name(request)
        form = request.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise RequestError(400, "encoding_format must be float or base64", param="encoding_format")
        given = request.get("input")
        if isinstance(given, list) and any(isinstance(one, (int, list)) for one in given):
            raise RequestError(400, "input must be a text or a list of texts, not tokens", param="input")
        texts = {"input": [given] if isinstance(given, str) else given}
        fields.strings(texts, "input", self._limits)
        answer = await self._texts.encode({"texts": texts["input"], "pool": "mean"}, record)
        vectors = answer["pooled"]
        if (size := fields.number(request, "dimensions", int, len(vectors[0]))) != len(vectors[0]):
            reason = f"dimensions={size}: the model's vectors have {len(vectors[0])}"
            raise RequestError(400, reason, param="dimensions")
        read = sum(map(len, answer["tokens"]))
        return {
            "object": "list",
            "model": self._catalogue.name,
            "data": [
                {"object": "embedding", "index": i, "embedding": _written(vector, form)}
                for i, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": read, "total_tokens": read},
        }


def _written(vector, form):
    if form == "float":
        return vector
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()

"""Generation: /generate and /stream, a few tokens at a time, so that requests take turns and can end at any token.

A prompt is read alone, exactly as the signature `generate` reads it: first its whole segments, without its last token,
then token by token. Then the texts of all requests with equal settings of sampling are continued together, by the
signature `write`. The same seed gives the same text as one call of `generate` for all tokens, whatever other requests
there are.
"""

import contextlib
import dataclasses
import functools
import time
from typing import Any

import numpy as np
import tensorflow as tf

from serving import fields
from serving.answers.batches import padded_rows, split_rows, stack, stack_rows
from serving.answers.host_sampling import choose
from serving.answers.pace import Pace
from serving.answers.pieces import Writer, check_top, rated
from serving.answers.reading import likeliest, read_segments, step_texts
from serving.errors import RequestError
from serving.metrics import Record
from serving.model import CACHE

DEFAULT_TOKENS = 100
STREAM_TOKENS = 16
"""The most tokens between two pieces of streamed text."""
MOST_TOKENS = 64
"""The most tokens in one call; more would not be faster."""


@dataclasses.dataclass(eq=False)
class Continuation:
    """Texts of one request that are being continued.

    Attributes:
        prompts: list of bytes, the texts that are continued.
        options: the settings of sampling, values by name.
        seeds: int32 [B].
        left: tokens that each text still gets.
        most: tokens in one call.
        cache: the tensors of `CACHE`, by name.
        last: int32 [B, 1], the tokens made last, which the model has not read yet.
        made: list of int32 [B, n].
        wants_texts: whether `texts` are needed before the last token is made.
        tokens: of each prompt, list of int32 [n]; None: they are those of `prompts`.
        top: with `rates`, how many of the likeliest tokens to return in the place of each new one.
        rates: for one text, whether its new tokens are rated.
        bias: for one text, float32 [V], added to the log-probabilities before the settings of sampling; None: nothing.
        texts: the decoded texts, list of bytes.
        read: with `rates`, the cache before the tokens of the last call, and these tokens, int32 [1, n].
        log_probs: with `bias` and `rates`, those that the last tokens were chosen from, without it: float32 [n, V].
    """

    prompts: list[bytes]
    options: dict[str, Any]
    seeds: np.ndarray
    left: int
    most: int
    wants_texts: bool
    tokens: list[np.ndarray] | None = None
    top: int = 0
    rates: bool = False
    bias: np.ndarray | None = None
    cache: dict[str, tf.Tensor] = dataclasses.field(default_factory=dict)
    last: Any = None
    made: list[np.ndarray] = dataclasses.field(default_factory=list)
    texts: list[bytes] = dataclasses.field(default_factory=list)
    read: Any = None
    log_probs: Any = None


class Generation:
    """Continues texts.

    Args:
        model: a Model.
        turns: its Turns.
        admission: an Admission; its rows are the texts that memory can hold.
        limits: a Limits.
        rows: texts in one call.
    """

    def __init__(self, model, turns, admission, limits, rows):
        self._model, self._turns, self._admission, self._limits = model, turns, admission, limits
        self._fields = ("max_tokens", *(setting["name"] for setting in model.settings))
        self._rows = rows
        self._pace = Pace(limits.slice_seconds, first=STREAM_TOKENS, most=MOST_TOKENS)  # of tokens, by the rows

    async def generate(self, request, record):
        """Texts that continue request["prompts"]."""
        texts, _ = await self.whole(request, record, early=True)
        return {"texts": [text.decode("utf-8", "replace") for text in texts]}

    async def whole(self, request, record, early=False):
        """The texts of `generate` as bytes, and their new tokens, arrays int32 [n].

        early: ends when all texts of a call have a stop string; then there are fewer tokens.
        """
        fields.check_known(request, ("prompts", "seeds", "stop", *self._fields))
        prompts = fields.strings(request, "prompts", self._limits, at_most=self._limits.prompts)
        rows = len(prompts)
        seeds = fields.integers(request, "seeds", range(-(2**31), 2**31), default=list(range(rows)))
        if len(seeds) != rows:
            raise RequestError(400, "give one seed for each text")
        stop = fields.strings(request, "stop", self._limits, at_least=0, at_most=self._limits.stop_strings)
        if b"" in stop:
            raise RequestError(400, "stop strings must not be empty")
        texts, tokens, ends = [], [], bool(stop and early)
        async with self._admission.texts(min(rows, self._rows)):
            for begin in range(0, rows, self._rows):
                part = slice(begin, begin + self._rows)
                draft = self.draft(request, prompts[part], seeds[part], MOST_TOKENS, wants_texts=ends)
                async for _ in self.write(draft, record):
                    if ends and all(_ends_early(text, stop) for text in draft.texts):
                        break
                if not ends:
                    draft.texts = await self._turns.run(self.decode, draft)
                texts += draft.texts
                tokens += list(np.concatenate(draft.made, axis=1))
        return [text[: _end(text, stop)] for text in texts], tokens

    async def stream(self, request, record):
        """Pieces of the text that continues request["prompt"]; with request["top"] the tokens of each."""
        fields.check_known(request, ("prompt", "seed", "top", *self._fields))
        prompt = fields.string(request, "prompt", self._limits)
        seed = fields.number(request, "seed", int, 0)
        top = check_top(request, self._model)
        sent, writer = 0, Writer()
        async with self._admission.texts(1):
            draft = self.draft(request, [prompt], [seed], STREAM_TOKENS, wants_texts=True)
            draft.top, draft.rates = top, bool(top)
            async for _ in self.write(draft, record):
                # Decoded from the first token on: how a word is written depends on the text before it.
                (text,) = draft.texts
                new, sent, final = text[sent:], len(text), not draft.left
                if top:
                    names, tokens = await self._turns.run(self.rate, draft, again=True)
                    pieces = writer.pieces(new, names, final)
                    yield {
                        "text": "".join(pieces),
                        "tokens": [{"text": piece} | token for piece, token in zip(pieces, tokens, strict=True)],
                    }
                else:
                    yield {"text": "".join(writer.pieces(new, [new], final))}

    async def warm_up(self):
        """Makes a token for 1, 2, 4, .. texts at a time, so that the first requests need not wait for compilation."""
        rows = self._rows
        while rows:
            draft = self.draft({"max_tokens": 2}, [b""] * rows, [0] * rows, 1, wants_texts=False)
            async for _ in self.write(draft, None):
                pass
            rows //= 2
        request, record = {"max_tokens": 2}, Record("/generate", "POST")
        await self.generate(request | {"prompts": ["a"]}, record)
        for top in (0, 1) if self._model.rates else (0,):
            async for _ in self.stream(request | {"prompt": "a"} | ({"top": top} if top else {}), record):
                pass

    def draft(self, request, prompts, seeds, most, wants_texts):
        """A Continuation with the settings of sampling of a request."""
        left = fields.number(request, "max_tokens", int, DEFAULT_TOKENS)
        if not 1 <= left <= self._limits.max_tokens:
            raise RequestError(400, f"max_tokens must be at least 1 and at most {self._limits.max_tokens}")
        options = {}
        for setting in self._model.settings:
            name, low, high = setting["name"], setting["low"], setting["high"]
            kind = {"int": int, "float": float}[setting["type"]]
            value = options[name] = fields.number(request, name, kind, setting["default"])
            if value < low or (value == low and setting["above_low"]) or (high is not None and value > high):
                raise RequestError(400, f"{name} must be {setting['range']}")
        return Continuation(prompts, options, np.array(seeds, np.int32), left, most, wants_texts)

    async def write(self, draft, record):
        """Reads a draft's prompts and continues them; yields after every call of the model."""
        tokens = draft.tokens or await self._turns.run(self.encode, draft.prompts)
        if record is not None:
            record.tokens += sum(map(len, tokens))
        if draft.bias is not None:
            async with contextlib.aclosing(self._write_biased(draft, tokens[0], record)) as calls:
                async for _ in calls:
                    yield
            return
        read = [await self._read(row, seed, draft.options) for row, seed in zip(tokens, draft.seeds, strict=True)]
        draft.cache = {name: stack([cache[name] for cache, *_ in read]) for name in CACHE}
        draft.last = np.concatenate([made for _, made, _ in read])
        draft.made, draft.left = [draft.last], draft.left - 1
        draft.read = read[0][-1] if draft.rates else None
        del read
        if draft.wants_texts:
            draft.texts = await self._turns.run(self.decode, draft)
        key = ("write", *draft.options.values())
        while True:
            if record is not None:
                record.tokens += draft.made[-1].size
            yield
            if not draft.left:
                return
            await self._turns.run(self._continue, draft, key, len(draft.seeds), self._rows, again=True)

    async def _write_biased(self, draft, tokens, record):
        """`write` for one text with a bias, which the signature `write` does not know: its tokens are chosen here."""
        model, size = self._model, self._model.segment
        whole = (len(tokens) - 1) // size * size if size else 0
        reading = await read_segments(
            model, self._turns, tokens[:whole], np.full(whole, -1, np.int32), self._limits.slice_seconds
        )
        cache, step = reading.cache, functools.partial(step_texts, model)
        unread = [part for part in (tokens[whole:-1], tokens[-1:]) if len(part)]
        while draft.left:
            made, rows = [], []
            while len(made) < min(draft.most, draft.left):
                for part in unread:
                    key = "step" if len(part) == 1 else None
                    item = part[None], cache
                    cache, log_probs = await self._turns.run(step, item, key, most=self._rows, again=True)
                seen, length = cache["seen"][0].numpy(), int(cache["length"][0])
                made.append(choose(log_probs + draft.bias, seen, int(draft.seeds[0]), length, draft.options))
                unread = [np.array(made[-1:], np.int32)]
                rows += [log_probs] if draft.rates else []
            draft.made.append(np.array([made], np.int32))
            draft.left, draft.log_probs = draft.left - len(made), np.array(rows)
            if draft.wants_texts:
                draft.texts = await self._turns.run(self.decode, draft, again=True)
            record.tokens += len(made)
            yield

    def encode(self, items):
        """The tokens of each prompt: a list of int32 [n], n at least 1."""
        (prompts,) = items
        found = self._model(self._model.kind.encode, texts=tf.constant(prompts))
        lengths, start = found["lengths"].numpy(), found["start_token"].numpy()
        most = self._limits.text_tokens
        if lengths.max() > most:
            raise RequestError(413, f"a prompt has {lengths.max():,} tokens: it may have at most {most:,}")
        rows = zip(found["tokens"].numpy(), lengths, strict=True)
        return [[row[:n] if n else np.array([start], np.int32) for row, n in rows]]

    async def _read(self, tokens, seed, options):
        """The cache of one text after its prompt, int32 [n], and its first new token, int32 [1, 1].

        Also the last part that was read: the cache before it, and its tokens, int32 [1, n].
        """
        model, size = self._model, self._model.segment
        whole = (len(tokens) - 1) // size * size if size else 0
        reading = await read_segments(
            model, self._turns, tokens[:whole], np.full(whole, -1, np.int32), self._limits.slice_seconds
        )
        cache, rest = reading.cache, tokens[whole:]
        while len(rest):
            count = self._pace[1] if size else len(rest)  # an older export reads all segments here, at once
            item = (cache, rest[None, :count], seed, options)
            key = ("begin", item[1].size, *options.values()) if size else None
            cache, made = await self._turns.run(self._begin, item, key, most=self._rows, again=True)
            rest = rest[count:]
        return cache, made, item[:2]

    def _begin(self, items):
        """The caches of texts after more tokens, int32 [1, n], and the tokens that would follow, int32 [1, 1]."""
        caches, tokens, seeds, (options, *_) = zip(*items, strict=True)
        cache, made = self._call(caches, tokens, [[seed] for seed in seeds], options, 1)
        return [
            ({name: split_rows(cache[name], i, i + 1) for name in CACHE}, made[i : i + 1]) for i in range(len(items))
        ]

    def _call(self, caches, tokens, seeds, options, count):
        """The signature `write` for stacked texts: the new caches and the new tokens, stacked."""
        size = padded_rows(sum(map(len, tokens)))
        given = {
            "tokens": stack_rows(tokens, size),
            "seeds": stack_rows([np.array(some, np.int32) for some in seeds], size),
            "max_tokens": count,
        }
        out = self._model(
            "write",
            **{name: tf.constant(value) for name, value in (given | options).items()},
            **{name: stack_rows([cache[name] for cache in caches], size) for name in CACHE},
        )
        return out, out["made"].numpy()

    def _continue(self, drafts):
        """A few tokens more for the texts of drafts with equal options."""
        size = padded_rows(sum(len(draft.seeds) for draft in drafts))
        count = min(self._pace[size], *(min(draft.left, draft.most) for draft in drafts))
        start = time.monotonic()
        columns = zip(*((draft.cache, draft.last, draft.seeds) for draft in drafts), strict=True)
        out, made = self._call(*columns, drafts[0].options, count)
        self._pace.learn(size, count, time.monotonic() - start)
        begin = 0
        for draft in drafts:
            end = begin + len(draft.seeds)
            if draft.rates:
                draft.read = draft.cache, np.concatenate([draft.last, made[begin:end, :-1]], axis=1)
            draft.cache = {name: split_rows(out[name], begin, end) for name in CACHE}
            draft.made.append(made[begin:end])
            draft.last, draft.left, begin = made[begin:end, -1:], draft.left - count, end
            if draft.wants_texts:
                (draft.texts,) = self.decode([draft])
        return drafts

    def rate(self, drafts):
        """Rates the newest tokens with the model, in the model's thread: see `rated`."""
        (draft,) = drafts
        made = draft.made[-1][0]
        log_probs = self._after(*draft.read)[-len(made) :] if draft.bias is None else draft.log_probs
        chosen = np.take_along_axis(log_probs, made[:, None], axis=1)[:, 0]
        return [rated(self._model.pieces, made, chosen, likeliest(log_probs, draft.top))]

    def _after(self, cache, tokens):
        """The log-probabilities after each of int32 [1, n] tokens, float32 [n, V]; in the model's thread."""
        size, rows = self._model.segment - 1, []  # fewer than a segment: they are read one by one, as they were
        for begin in range(0, tokens.shape[1], size):
            cache = self._model(
                "step", tokens=tf.constant(tokens[:, begin : begin + size]), **{name: cache[name] for name in CACHE}
            )
            rows.append(cache["log_probs"].numpy()[0])
        return np.concatenate(rows)

    def decode(self, drafts):
        """The texts of each draft, as continuations of its prompts, each a list of bytes."""
        return [
            self._model(
                self._model.kind.decode,
                tokens=tf.constant(np.concatenate(draft.made, axis=1)),
                after=tf.constant(draft.prompts),
            )["texts"]
            .numpy()
            .tolist()
            for draft in drafts
        ]


def _end(text, stop):
    """Where the first stop string begins in a text, or the text's end."""
    return min((place for place in map(text.find, stop) if place >= 0), default=len(text))


def _ends_early(text, stop):
    """Whether further tokens cannot change the text before the first stop string.

    A longer stop string may begin before one that is complete. The last few bytes may belong to an incomplete
    character, which is decoded differently once its other bytes are there.
    """
    end = _end(text, stop)
    return end < len(text) and len(text) >= end + max(map(len, stop)) + 16

"""OpenAI's completions: texts that continue prompts, whole or as they are written."""

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import secrets
import time
import uuid

import numpy as np

from serving import fields
from serving.answers.generation import MOST_TOKENS, STREAM_TOKENS
from serving.answers.host_sampling import OFF
from serving.answers.pieces import MAX_TOP, Writer, label, rated
from serving.answers.reading import read_segments
from serving.errors import RequestError, older_export

DEFAULT_TOKENS = 16
FIELDS = ("model", "prompt", "max_tokens", "n", "stop", "seed", "logprobs", "echo", "logit_bias", "stream")
IGNORED = ("stream_options", "best_of", "suffix", "presence_penalty", "frequency_penalty", "user")
"""Fields that are checked, and then change nothing but the end of a stream."""
MOST_BIAS = 100


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A request, checked.

    Attributes:
        prompts, tokens: of each prompt, its text in UTF-8 and its tokens, int32 [m].
        settings: max_tokens and the settings of sampling, by name.
        n: choices for each prompt.
        seeds: of each choice.
        stop: the strings before which a text ends.
        top: how many of the likeliest tokens to return in the place of each; None: no log-probabilities.
        echo: whether a choice begins with its prompt.
        bias: float32 [V], added to the log-probabilities; None: nothing.
    """

    prompts: list[bytes]
    tokens: list[np.ndarray]
    settings: dict
    n: int
    seeds: list[int]
    stop: list[str]
    top: int | None
    echo: bool
    bias: np.ndarray | None


@dataclasses.dataclass
class Chunk:
    """A part of a choice: text, its tokens (dicts as from `rated`, with their `text`), and how many were made.

    finish: at the end, why: "length" or "stop".
    """

    text: str
    tokens: list[dict] = dataclasses.field(default_factory=list)
    made: int = 0
    finish: str | None = None


class Completions:
    """Answers in OpenAI's form.

    Args:
        model: a Model.
        turns: its Turns.
        admission: an Admission.
        limits: a Limits.
        rows: texts in one call.
        catalogue: a Catalogue.
        generation: a Generation.
    """

    def __init__(self, model, turns, admission, limits, rows, catalogue, generation):
        self._model, self._turns, self._admission, self._limits, self._rows = model, turns, admission, limits, rows
        self._catalogue, self._generation = catalogue, generation
        self._settings = tuple(setting["name"] for setting in model.settings)

    async def complete(self, request, record):
        """All choices at once."""
        wanted = await self._checked(_given(request))
        found = [[] for _ in wanted.seeds]
        async with contextlib.aclosing(self._pieces(wanted, record, stream=False)) as pieces:
            async for i, piece in pieces:
                found[i].append(piece)
        choices = [
            _choice(
                i,
                "".join(piece.text for piece in of_choice),
                [token for piece in of_choice for token in piece.tokens],
                wanted,
                of_choice[-1].finish,
            )
            for i, of_choice in enumerate(found)
        ]
        made = sum(piece.made for of_choice in found for piece in of_choice)
        return self._head() | {"choices": choices, "usage": _usage(wanted, made)}

    async def stream(self, request, record):
        """The choices in parts, as they are written."""
        request = _given(request)
        options = request.get("stream_options", {})
        if not isinstance(options, dict):
            raise RequestError(400, "stream_options must be an object", param="stream_options")
        fields.check_known(options, ("include_usage",))
        wants_usage, wanted = fields.flag(options, "include_usage"), await self._checked(request)
        head, made = self._head(), 0
        if wants_usage:
            head["usage"] = None
        async with contextlib.aclosing(self._pieces(wanted, record, stream=True)) as pieces:
            async for i, piece in pieces:
                made += piece.made
                if piece.text or piece.tokens or piece.finish:
                    yield head | {"choices": [_choice(i, piece.text, piece.tokens, wanted, piece.finish)]}
        if wants_usage:
            yield head | {"choices": [], "usage": _usage(wanted, made)}

    def _head(self):
        name = f"cmpl-{uuid.uuid4().hex}"
        return {"id": name, "object": "text_completion", "created": int(time.time()), "model": self._model.name}

    async def _checked(self, request):
        """The Wanted of a request without nulls."""
        fields.check_known(request, (*FIELDS, *self._settings, *IGNORED))
        _check_unsupported(request)
        self._catalogue.check_name(request)
        n = fields.number(request, "n", int, 1)
        prompts, tokens = await self._prompts(request)
        rows = len(prompts) * n
        if n < 1:
            raise RequestError(400, "n must be at least 1", param="n")
        self._limits.check_count("prompt, n times,", rows, self._limits.prompts)
        seed = fields.number(request, "seed", int, secrets.randbits(31))
        settings = {name: request[name] for name in self._settings if name in request}
        settings["max_tokens"] = fields.number(request, "max_tokens", int, DEFAULT_TOKENS)
        echo = fields.flag(request, "echo")
        if not echo or settings["max_tokens"]:
            self._generation.draft(settings, [], [], 1, wants_texts=False)  # checks them
        return Wanted(
            prompts,
            tokens,
            settings,
            n,
            [(seed + i) % 2**31 for i in range(rows)],
            self._stop(request),
            self._top(request, (sum(map(len, tokens)) * echo + len(prompts) * settings["max_tokens"]) * n),
            echo,
            self._bias(request),
        )

    async def _prompts(self, request):
        """The texts of request["prompt"] in UTF-8, and their tokens."""
        given = request.get("prompt")
        if isinstance(given, list) and given and all(type(one) is int for one in given):
            given = [given]
        is_ids = isinstance(given, list) and bool(given) and all(isinstance(one, list) and one for one in given)
        most = self._limits.prompts
        if is_ids:
            self._limits.check_count("prompt", len(given), most)
            ids = range(self._model.vocab_size)
            tokens = [np.array(fields.integers({"prompt": one}, "prompt", ids), np.int32) for one in given]
            for row in tokens:
                self._limits.check_count("prompt", len(row), self._limits.text_tokens)
            return await self._turns.run(self._texts, tokens), tokens
        if not isinstance(given, (str, list)):
            reason = f"prompt must be a text, a list of texts, or token ids, not {fields.shown(given)}"
            raise RequestError(400, reason, param="prompt")
        texts = {"prompt": [given] if isinstance(given, str) else given}
        prompts = fields.strings(texts, "prompt", self._limits, at_most=most)
        return prompts, await self._turns.run(self._generation.encode, prompts)

    def _texts(self, items):
        """The texts of tokens, a list of int32 [n]; in the model's thread."""
        return [[self._model.pieces.text(row) for row in rows] for rows in items]

    def _stop(self, request):
        """request["stop"], a text or a list of them."""
        given = request.get("stop", [])
        texts = {"stop": [given] if isinstance(given, str) else given}
        stop = fields.strings(texts, "stop", self._limits, at_least=0, at_most=self._limits.stop_strings)
        if b"" in stop:
            raise RequestError(400, "stop strings must not be empty", param="stop")
        return [text.decode() for text in stop]

    def _top(self, request, tokens):
        """request["logprobs"]; tokens: how many the answer may have."""
        if "logprobs" not in request:
            return None
        top = fields.number(request, "logprobs", int, 0)
        if not 0 <= top <= MAX_TOP:
            raise RequestError(400, f"logprobs must be from 0 to {MAX_TOP}", param="logprobs")
        if not self._model.rates:
            raise older_export("logprobs")
        self._limits.check_answer(3 * (top + 1) * tokens, "send fewer prompts, or smaller logprobs or max_tokens")
        return min(top, self._model.vocab_size)

    def _bias(self, request):
        """request["logit_bias"] as float32 [V]."""
        given, size = request.get("logit_bias"), self._model.vocab_size
        if not given and isinstance(given, (dict, type(None))):
            return None
        if not isinstance(given, dict):
            raise RequestError(400, "logit_bias must be an object", param="logit_bias")
        if unknown := set(self._settings) - set(OFF):
            reason = f"logit_bias does not work with this model, which has the setting {min(unknown)}"
            raise RequestError(400, reason, param="logit_bias")
        bias = np.zeros(size, np.float32)
        for name in given:
            if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < size):
                reason = f"logit_bias has {fields.shown(name)}: its names must be tokens from 0 to {size - 1}"
                raise RequestError(400, reason, param="logit_bias")
            value = fields.number(given, name, float, 0.0)
            if not -MOST_BIAS <= value <= MOST_BIAS:
                reason = f"logit_bias must have values from -{MOST_BIAS} to {MOST_BIAS}"
                raise RequestError(400, reason, param="logit_bias")
            bias[int(name)] = value
        return bias

    async def _pieces(self, wanted, record, stream):
        """(number of a choice, Chunk) of all choices, a few choices at a time; stream: in small Chunks."""
        rows = len(wanted.seeds)
        async with self._admission.texts(min(rows, self._rows)):
            for begin in range(0, rows, self._rows):
                numbers = range(begin, min(rows, begin + self._rows))
                async with contextlib.AsyncExitStack() as stack:
                    running = {}
                    for i in numbers:
                        running[i] = self._write(wanted, i, record, stream)
                        await stack.enter_async_context(contextlib.aclosing(running[i]))
                    while running:  # side by side, so that they share calls
                        found = await asyncio.gather(*map(_next, running.values()), return_exceptions=True)
                        for i, piece in zip(list(running), found, strict=True):
                            if isinstance(piece, BaseException):
                                raise piece
                            if piece is None:
                                del running[i]
                            else:
                                yield i, piece

    async def _write(self, wanted, i, record, stream):
        """The Pieces of a choice."""
        row = i // wanted.n
        prompt, tokens = wanted.prompts[row], wanted.tokens[row]
        if wanted.echo:
            rates = [] if wanted.top is None else await self._rate_prompt(tokens, wanted.top)
            yield Chunk(prompt.decode("utf-8", "replace"), rates)
        if not wanted.settings["max_tokens"]:
            yield Chunk("", finish="length")
            return
        is_rated, most = wanted.top is not None, STREAM_TOKENS if stream else MOST_TOKENS
        draft = self._generation.draft(
            wanted.settings, [prompt], [wanted.seeds[i]], most, wants_texts=is_rated or stream or bool(wanted.stop)
        )
        draft.tokens, draft.rates, draft.top, draft.bias = [tokens], is_rated, wanted.top or 0, wanted.bias
        begin = len(prompt.decode("utf-8", "replace")) if wanted.echo else 0
        held, writer, read, made = Held(wanted.stop, begin), Writer(), 0, 0
        async with contextlib.aclosing(self._generation.write(draft, record)) as calls:
            async for _ in calls:
                final = not draft.left
                if not draft.wants_texts:
                    if not final:
                        continue
                    draft.texts = await self._turns.run(self._generation.decode, draft, again=True)
                (text,) = draft.texts
                new, read = text[read:], len(text)
                names, rates = [new], [{}]
                if is_rated:
                    names, rates = await self._turns.run(self._generation.rate, draft, again=True)
                held.add(writer.pieces(new, names, final), names, rates)
                piece, total = held.take(final), sum(part.size for part in draft.made)
                if piece.finish == "stop":
                    total = await self._turns.run(self._count, (draft, held.sent), again=True)
                piece.made, made = total - made, total
                if not is_rated:
                    piece.tokens = []
                yield piece
                if piece.finish:
                    return

    def _count(self, items):
        """How many tokens of a draft begin in the first characters of its text; in the model's thread."""
        ((draft, characters),) = items
        names = self._model.pieces.names(np.concatenate(draft.made, axis=1)[0])
        ends = itertools.accumulate(map(len, Writer().pieces(draft.texts[0], names, final=True)), initial=0)
        return [sum(end < characters for end in list(ends)[:-1])]

    async def _rate_prompt(self, tokens, top):
        """The tokens of a prompt, int32 [n], as in a Chunk; the first one has no log-probability."""
        model, size = self._model, self._model.segment
        length = -(-(len(tokens) - 1) // size) * size
        given, targets = np.zeros(length, np.int32), np.full(length, -1, np.int32)
        given[: len(tokens) - 1], targets[: len(tokens) - 1] = tokens[:-1], tokens[1:]
        reading = await read_segments(model, self._turns, given, targets, self._limits.slice_seconds, top=top)
        rows = reading.likeliest or [(np.zeros([length, 0], np.int32), np.zeros([length, 0], np.float32))]
        best = [np.concatenate(part) for part in zip(*rows, strict=True)]
        log_probs = np.concatenate([np.zeros(0, np.float32), *reading.log_probs])
        return await self._turns.run(self._rated_prompt, (tokens, log_probs, best), again=True)

    def _rated_prompt(self, items):
        """What `_rate_prompt` returns; in the model's thread."""
        ((tokens, log_probs, best),) = items
        pieces, count = self._model.pieces, len(tokens) - 1
        names, rates = rated(pieces, tokens[1:], log_probs[:count], [values[:count] for values in best])
        first = pieces.names(tokens[:1])
        texts = Writer().pieces(pieces.text(tokens), first + names, final=True)
        held = Held([])
        held.add(texts, first + names, [{"log_prob": None, "top": None}, *rates])
        return [held.take(True).tokens]


class Held:
    """Text that is held back while a stop string could still begin in it.

    Args:
        stop: the stop strings; the text ends before the first of them.
        begin: where the text begins in its choice.

    Attributes:
        sent: how many characters were taken.
    """

    def __init__(self, stop, begin=0):
        self._stop, self._longest, self._begin = stop, max(map(len, stop), default=0), begin
        self._text, self.sent, self._tokens = "", 0, collections.deque()

    def add(self, pieces, names, tokens):
        """Text in pieces, with the bytes and a dict for each."""
        for piece, name, token in zip(pieces, names, tokens, strict=True):
            place = {"text": piece, "name": name, "offset": self._begin + len(self._text)}
            self._tokens.append((len(self._text), token | place))
            self._text += piece

    def take(self, final):
        """The next Chunk; final: whether no more is added."""
        places = (self._text.find(one, self.sent) for one in self._stop)
        end = min((place for place in places if place >= 0), default=len(self._text))
        stopped = end < len(self._text) and (final or len(self._text) >= end + self._longest)
        limit = end
        if not (stopped or final) and self._stop:  # a longer stop string may begin before a complete one
            limit = max(self.sent, min(end, len(self._text) - self._longest + 1))
        tokens = []
        while self._tokens:
            begin, token = self._tokens[0]
            if (begin >= limit) if stopped else (begin + len(token["text"]) > limit):
                break
            tokens.append(token)
            self._tokens.popleft()
        text, self.sent = self._text[self.sent : limit], limit
        return Chunk(text, tokens, finish="stop" if stopped else "length" if final else None)


def _given(request):
    """A request without the fields that are null, as clients send those that are not set."""
    return {name: value for name, value in request.items() if value is not None}


def _check_unsupported(request):
    """Raises RequestError for what OpenAI's protocol has and this server has not."""
    for name in ("presence_penalty", "frequency_penalty"):
        if fields.number(request, name, float, 0.0):
            raise RequestError(400, f"{name} is not supported: use repetition_penalty", param=name)
    if request.get("suffix"):
        raise RequestError(400, "suffix is not supported: the model reads from left to right", param="suffix")
    if fields.number(request, "best_of", int, n := fields.number(request, "n", int, 1)) != n:
        raise RequestError(400, "best_of is not supported: it must equal n", param="best_of")


async def _next(pieces):
    return await anext(pieces, None)


def _choice(index, text, tokens, wanted, finish):
    """A choice as an answer has it."""
    log_probs = None if wanted.top is None else _log_probs(tokens)
    return {"index": index, "text": text, "logprobs": log_probs, "finish_reason": finish}


def _log_probs(tokens):
    """The log-probabilities of tokens as an answer has them."""
    best = []
    for token in tokens:
        if token["top"] is None:
            best.append(None)
            continue
        found = {}
        for other in (*token["top"], {"text": label(token["name"]), "log_prob": token["log_prob"]}):
            found.setdefault(other["text"], other["log_prob"])  # two tokens may have the same text
        best.append(found)
    return {
        "tokens": [token["text"] for token in tokens],
        "token_logprobs": [token["log_prob"] for token in tokens],
        "top_logprobs": best,
        "text_offset": [token["offset"] for token in tokens],
    }


def _usage(wanted, made):
    read = sum(map(len, wanted.tokens))
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

"""The routes that compute each text by itself: scores, blanks, vectors, and the tasks of fine-tuned models.

The texts of a request are computed a few at a time, together with other requests' texts of about the same length. Work
on a single text that can take long is done in parts. Other texts change a text's results by rounding at most.
"""

import functools
import time

import numpy as np
import tensorflow as tf

from serving import fields
from serving.answers.batches import padded_rows
from serving.answers.pace import Pace
from serving.answers.parts import Parts
from serving.answers.pieces import Writer, check_top, rated
from serving.answers.reading import read_segments
from serving.errors import RequestError, older_export

DEFAULT_BEAM, DEFAULT_TOP, MAX_BEAM = 8, 5, 64
MAX_OPTIONS, MAX_CANDIDATE = 16, 64
"""Options of a question, or candidates for a blank; and the bytes of a candidate."""
POOLS = {"last": "pooled", "first": "first", "mean": "mean"}
"""The outputs of the signature encode, by the field `pool`."""
WHOLE = ("start_token",)
"""The outputs that have no row for each text."""


class Texts:
    """Answers that are rows of a signature's outputs.

    Args:
        model: a Model.
        turns: its Turns.
        limits: a Limits.
        rows: texts in one call.

    Attributes:
        parts: a Parts.
        paces: the Paces of its calls.
    """

    def __init__(self, model, turns, limits, rows):
        self._model, self._turns, self._limits, self._rows = model, turns, limits, rows
        self._reads_any_length = "encode" in model.kind.inputs  # a Transformer-XL
        self.parts = Parts(model, turns, limits, rows)
        self._pace = Pace(limits.slice_seconds, first=padded_rows(rows), most=padded_rows(rows))
        self.paces = (self._pace, *self.parts.paces)

    async def score(self, request, record):
        """Log-probabilities of request["texts"].

        "pieces" adds the text of each token, and "top" the likeliest tokens in the place of each. With "memory": false
        a Transformer-XL reads each segment as if it were a separate text.
        """
        reads = self._reads_any_length
        fields.check_known(request, ("texts", "pieces", *(("top", "memory") if reads else ())))
        texts, wants_pieces = self._strings(request, "texts"), fields.flag(request, "pieces")
        if wants_pieces and not self._model.pieces:
            raise older_export("pieces")
        best = []
        if reads:
            top, memory = check_top(request, self._model), fields.flag(request, "memory", True)
            if not memory and not self._model.segment:
                raise older_export("memory")
            scores, best = await self._score_any_length(texts, top, memory)
        else:
            scores = await self.scores(texts)
        record.tokens += sum(len(ids) for _, ids, _ in scores)
        answer = {
            "total": [float(total) for total, _, _ in scores],
            "tokens": [ids.tolist() for _, ids, _ in scores],
            "log_probs": [log_probs.tolist() for _, _, log_probs in scores],
        }
        if wants_pieces:
            answer["pieces"] = [await self._turns.run(self._write, ids, again=True) for _, ids, _ in scores]
        if best:
            rows = [(ids, log_probs, of_text) for (_, ids, log_probs), of_text in zip(scores, best, strict=True)]
            answer["top"] = [await self._turns.run(self._rate, row, again=True) for row in rows]
        return answer

    async def scores(self, texts):
        """For each text, bytes, the sum of its tokens' log-probabilities, the tokens, and their log-probabilities."""
        if self._reads_any_length:
            return (await self._score_any_length(texts, 0, True))[0]
        return await self.parts.score(texts)

    def _write(self, texts):
        """The pieces of one text, int32 [n]; in the model's thread."""
        (ids,) = texts
        if not len(ids):
            return [[]]
        pieces = self._model.pieces
        return [Writer().pieces(pieces.text(ids), pieces.names(ids), final=True)]

    def _rate(self, rows):
        """The likeliest tokens in the place of each token of one text; in the model's thread."""
        return [[token["top"] for token in rated(self._model.pieces, *row)[1]] for row in rows]

    async def _score_short(self, texts):
        """For each text, the sum of the log-probabilities, the tokens, and their log-probabilities, in shared calls."""
        names = ("total", "tokens", "log_probs", "lengths")
        found = await self._compute("score", {"texts": texts}, names)
        rows = zip(*(found[name] for name in names), strict=True)
        return [(total, ids[:n], log_probs[:n]) for total, ids, log_probs, n in rows]

    async def _score_any_length(self, texts, top, memory):
        """The same, but a text of several segments is read alone, segment by segment. top, memory: as in `Reading`.

        With `top` also the likeliest tokens of each text, as in `Reading`.
        """
        found = await self._compute("encode", {"texts": texts}, ("tokens", "lengths", "start_token"))
        most, size = self._limits.text_tokens, self._model.segment
        rows = [ids[:n] for ids, n in zip(found["tokens"], found["lengths"], strict=True)]
        for i, row in enumerate(rows):
            if len(row) > most:
                raise RequestError(413, f"texts[{i}] has {len(row):,} tokens: it may have at most {most:,}")
        self._limits.check_answer(3 * top * sum(map(len, rows)), "send fewer texts, or a smaller top")
        short = [] if top else [i for i, row in enumerate(rows) if not size or len(row) <= size]
        scores = dict(zip(short, await self._score_short([texts[i] for i in short]) if short else (), strict=True))
        best = {}
        for i, row in enumerate(rows):
            if i in scores:
                continue
            targets = np.full(-(-len(row) // size) * size, -1, np.int32)
            targets[: len(row)] = row
            tokens = np.maximum(np.concatenate([found["start_token"][None], targets[:-1]]), 0)
            reading = await read_segments(
                self._model, self._turns, tokens, targets, self._limits.slice_seconds, top=top, memory=memory
            )
            log_probs = np.concatenate([*reading.log_probs, np.zeros(0, np.float32)])[: len(row)]
            scores[i] = (log_probs.sum(dtype=np.float64), row, log_probs)
            if top:
                parts = [*reading.likeliest, (np.zeros([0, top], np.int32), np.zeros([0, top], np.float32))]
                best[i] = [np.concatenate(part)[: len(row)] for part in zip(*parts, strict=True)]
        return [scores[i] for i in range(len(rows))], [best[i] for i in range(len(rows))] if top else []

    async def fill(self, request, record):
        """The likeliest fillings of the blanks in request["texts"]: for each text a list, the likeliest first.

        With "candidates" these, in the only blank of each text.
        """
        if "candidates" in request:
            return await self._rank(request, record)
        fields.check_known(request, ("texts", "context", "order", "beam_size", "top", "free"))
        beam_size = fields.number(request, "beam_size", int, DEFAULT_BEAM)
        top = fields.number(request, "top", int, min(DEFAULT_TOP, beam_size))
        if not 1 <= top <= beam_size <= MAX_BEAM:
            raise RequestError(400, f"top must be from 1 to beam_size, and beam_size at most {MAX_BEAM}")
        settings = {
            "context": fields.string(request, "context", self._limits, ""),
            "order": fields.string(request, "order", self._limits, "left_to_right"),
            "beam_size": beam_size,
            "top": top,
            "free": fields.flag(request, "free"),
        }
        found = await self.parts.fill(self._strings(request, "texts"), settings)
        record.tokens += sum(int((ids[0] >= 0).sum()) for ids in found["tokens"])
        return {"fillings": [_fillings(zip(*rows, strict=True)) for rows in zip(*found.values(), strict=True)]}

    async def _rank(self, request, record):
        """The candidates for the only blank of each text, the likeliest first."""
        fields.check_known(request, ("texts", "candidates", "context", "order"))
        if "score_candidates" not in self._model.signatures:
            raise older_export("candidates")
        texts = self._strings(request, "texts")
        candidates = fields.strings(request, "candidates", self._limits, at_most=MAX_OPTIONS)
        if max(map(len, candidates)) > MAX_CANDIDATE:
            raise RequestError(413, f"a candidate may have at most {MAX_CANDIDATE} bytes")
        rows = [(text, candidate) for text in texts for candidate in candidates]
        columns = dict(zip(("texts", "candidates"), map(list, zip(*rows, strict=True)), strict=True))
        for name, default in (("context", ""), ("order", "left_to_right")):
            columns[name] = [fields.string(request, name, self._limits, default)] * len(rows)
        found = await self._compute("score_candidates", columns, ("texts", "tokens", "log_probs", "total"))
        record.tokens += sum(int((ids >= 0).sum()) for ids in found["tokens"])
        fillings, size = _fillings(zip(*found.values(), strict=True)), len(candidates)
        parts = (fillings[begin : begin + size] for begin in range(0, len(rows), size))
        return {"fillings": [sorted(part, key=lambda filling: -filling["total"]) for part in parts]}

    async def encode(self, request, record):
        """Vectors of request["texts"], or of pairs of them and request["second"]; "per_token" adds each token's."""
        pairs = self._pairs(request, "pool", "per_token")
        pool = request.get("pool", "last")
        if not isinstance(pool, str) or pool not in POOLS:
            raise RequestError(400, f"pool must be one of {', '.join(POOLS)}")
        per_token = fields.flag(request, "per_token")
        names = (POOLS[pool], "tokens", "lengths", *(["hidden"] if per_token else []))
        if per_token:
            await self._check_vectors(pairs)
        found = await self._compute("encode", pairs, names)
        lengths = found["lengths"]
        record.tokens += int(sum(lengths))
        answer = {"pooled": [vector.tolist() for vector in found[POOLS[pool]]]}
        for name in ("tokens", "hidden")[: 1 + per_token]:
            answer[name] = [row[:n].tolist() for row, n in zip(found[name], lengths, strict=True)]
        return answer

    async def classify(self, request, record):
        """The most likely class of each of request["texts"], or of pairs of them and request["second"]."""
        del record
        found = await self._compute("classify", self._pairs(request), ("labels", "probabilities", "classes"))
        classes = [name.decode() for name in found["classes"][0]]
        return {
            "labels": [label.decode() for label in found["labels"]],
            "probabilities": [dict(zip(classes, row.tolist(), strict=True)) for row in found["probabilities"]],
        }

    async def label(self, request, record):
        """The labels that fit each of request["texts"], or of pairs of them and request["second"].

        A label fits if its probability is at least request["threshold"]; without one the export has its own.
        """
        del record
        threshold = fields.number(request, "threshold", float, 0) if "threshold" in request else None
        if threshold is not None and not 0 <= threshold <= 1:
            raise RequestError(400, "threshold must be from 0 to 1")
        pairs = self._pairs(request, "threshold")
        found = await self._compute("label", pairs, ("probabilities", "given", "classes"))
        if threshold is not None:
            found["given"] = [row >= threshold for row in found["probabilities"]]
        classes = [name.decode() for name in found["classes"][0]]
        return {
            "labels": [[name for name, given in zip(classes, row, strict=True) if given] for row in found["given"]],
            "probabilities": [dict(zip(classes, row.tolist(), strict=True)) for row in found["probabilities"]],
        }

    async def regress(self, request, record):
        """The score of each of request["texts"], or of pairs of them and request["second"]."""
        del record
        found = await self._compute("regress", self._pairs(request), ("scores",))
        return {"scores": [float(score) for score in found["scores"]]}

    async def choose(self, request, record):
        """The most likely of request["options"], a list for each of request["questions"] on request["articles"]."""
        del record
        fields.check_known(request, ("articles", "questions", "options"))
        options = request.get("options")
        if not isinstance(options, list) or not options:
            raise RequestError(400, "options must be a list of lists of strings, at least 1")
        self._limits.check_count("options", len(options), self._limits.texts)
        rows = [
            fields.strings({"options": row}, "options", self._limits, at_least=2, at_most=MAX_OPTIONS)
            for row in options
        ]
        if len({len(row) for row in rows}) > 1:
            raise RequestError(400, "all questions of a request must have the same number of options")
        columns = {name: self._strings(request, name) for name in ("articles", "questions")} | {"options": rows}
        if len({len(column) for column in columns.values()}) > 1:
            raise RequestError(400, "give an article and options for each question")
        found = await self._compute(
            "choose", columns, ("choice", "probabilities"), rows=max(1, self._rows // len(rows[0]))
        )
        return {
            "choices": [int(choice) for choice in found["choice"]],
            "probabilities": [row.tolist() for row in found["probabilities"]],
        }

    async def answer(self, request, record):
        """The most likely answer to each of request["questions"], in the text of request["contexts"]."""
        del record
        fields.check_known(request, ("questions", "contexts"))
        columns = {name: self._strings(request, name) for name in ("questions", "contexts")}
        if len(columns["questions"]) != len(columns["contexts"]):
            raise RequestError(400, "give a context for each question")
        found = await self.parts.answer(columns)
        texts, rows = found.pop("answers"), zip(*found.values(), strict=True)
        return {
            "answers": [
                {"text": text.decode()} | {name: value.item() for name, value in zip(found, row, strict=True)}
                for text, row in zip(texts, rows, strict=True)
            ]
        }

    async def tag(self, request, record):
        """The tags of the words of each of request["texts"], and the entities that they name."""
        del record
        fields.check_known(request, ("texts",))
        words = ("tags", "probability", "begin", "end")
        entities = ("entity_labels", "entity_begin", "entity_end")
        found = await self._compute("tag", {"texts": self._strings(request, "texts")}, words + entities)
        return {
            "words": _places(found, dict(zip(words, ("tag", "probability", "begin", "end"), strict=True))),
            "entities": _places(found, dict(zip(entities, ("label", "begin", "end"), strict=True))),
        }

    def _strings(self, request, name):
        return fields.strings(request, name, self._limits)

    def _pairs(self, request, *further):
        """request["texts"], and request["second"] or empty texts; `further` fields may be given."""
        fields.check_known(request, ("texts", "second", *further))
        texts = self._strings(request, "texts")
        second = fields.strings(request, "second", self._limits, at_least=0) or [b""] * len(texts)
        if len(second) != len(texts):
            raise RequestError(400, 'give a second text, or "", for each text')
        return {"texts": texts, "second": second}

    async def _check_vectors(self, pairs):
        """Raises RequestError if the vectors of all tokens would be too many numbers for an answer."""
        width = self._model.signatures["encode"].structured_outputs["pooled"].shape[-1]
        most, tokens = self._limits.answer_values // width, 0
        for texts in pairs.values():
            tokens += int(sum((await self._compute("tokenize", {"texts": texts}, ("lengths",)))["lengths"]))
        if tokens > most:
            raise RequestError(
                413, f"the texts have {tokens:,} tokens: with per_token a request may have at most {most:,}"
            )

    async def _compute(self, signature, columns, names, rows=None):
        """Outputs of a signature, a list of rows by name.

        Args:
            signature: its name.
            columns: its inputs, which have a row for each text: lists of equal length by name.
            names: the outputs to return.
            rows: texts in one call, at most.
        """
        count, rows = len(next(iter(columns.values()))), rows or self._rows
        outputs, begin = {name: [] for name in names}, 0
        slow = (signature, max(len(text) for column in columns.values() for text in _flat(column)).bit_length())
        while begin < count:
            size = min(rows, self._pace[slow])
            part = {name: column[begin : begin + size] for name, column in columns.items()}
            # A text is computed at the length of the longest of its batch: only texts of similar lengths share one.
            longest = max(len(text) for column in part.values() for text in _flat(column))
            widths = tuple(len(column[0]) for column in part.values() if isinstance(column[0], list))
            key = (signature, names, longest.bit_length(), widths)
            taken = len(next(iter(part.values())))
            share = -(-self._rows // size) * taken  # of a batch
            call = functools.partial(self._call, signature, names, slow)
            found = await self._turns.run(call, part, key, rows=share, again=begin > 0)
            begin += taken
            for name in names:
                outputs[name] = found[name] if name in WHOLE else outputs[name] + found[name]
        return outputs

    def _call(self, signature, names, slow, parts):
        """The outputs of each part, in the model's thread."""
        sizes = [len(next(iter(part.values()))) for part in parts]
        rows = padded_rows(sum(sizes))
        columns = {}
        for name in parts[0]:
            column = [row for part in parts for row in part[name]]
            columns[name] = tf.constant(column + column[:1] * (rows - len(column)), tf.string)
        start = time.monotonic()
        found = self._model(signature, **columns)
        arrays = {name: found[name].numpy() for name in names}
        self._pace.learn(slow, rows, time.monotonic() - start)
        results, begin = [], 0
        for size in sizes:
            own = slice(begin, begin + size)
            results.append({name: array if name in WHOLE else list(array[own]) for name, array in arrays.items()})
            begin += size
        return results


def _fillings(rows):
    """Fillings as an answer has them; rows: text, tokens, log_probs and total of each, without those that are none."""
    return [
        {
            "text": text.decode("utf-8", "replace"),
            "tokens": ids[ids >= 0].tolist(),
            "log_probs": log_probs[ids >= 0].tolist(),
            "total": float(total),
        }
        for text, ids, log_probs, total in rows
        if np.isfinite(total)
    ]


def _places(found, names):
    """Parts of texts, a list of dicts for each text.

    Args:
        found: lists of rows, by output; after a text's last part its ends are -1.
        names: of the outputs to return, with their names in the answer; the last one is the end.
    """
    *_, end = names
    texts = zip(*(found[name] for name in names), strict=True)
    ends = found[end]
    return [
        [
            {
                name: value.decode() if isinstance(value, bytes) else value.item()
                for name, value in zip(names.values(), part, strict=True)
            }
            for part in zip(*(row[: (own >= 0).sum()] for row in text), strict=True)
        ]
        for text, own in zip(texts, ends, strict=True)
    ]


def _flat(column):
    return (text for row in column for text in (row if isinstance(row, list) else [row]))

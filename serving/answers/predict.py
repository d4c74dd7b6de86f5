"""TensorFlow Serving's requests: any signature whose outputs have a row for each row of its inputs."""

import dataclasses
import functools
import itertools
import time

import numpy as np
import tensorflow as tf

from serving import fields, tensors
from serving.answers.batches import padded_rows
from serving.answers.pace import Pace
from serving.answers.texts import MAX_BEAM
from serving.errors import RequestError
from serving.model import KINDS

ELSEWHERE = {
    **dict.fromkeys(("initial_cache", "step", "read", "write"), "/sessions"),
    "fill_part": "/fill",
    "score_part": "/score",
    "answer_part": "/answer",
    "answer_whole": "/answer",
}
"""Signatures that keep something between calls, which only these routes do."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a signature.

    Attributes:
        name: its name.
        inputs, outputs: their TensorSpecs by name.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]

    @classmethod
    def of(cls, name, definition):
        """That of a SignatureDef, by whose shapes a function of TensorFlow 1 does not go."""
        specs = (
            {each: tf.TensorSpec(infos[each].tensor_shape, infos[each].dtype) for each in sorted(infos)}
            for infos in (definition.inputs, definition.outputs)
        )
        return cls(name, *specs)

    @functools.cached_property
    def by_row(self):
        """The names of the inputs that have a row for each answer."""
        return [name for name, spec in self.inputs.items() if _has_rows(spec)]

    @functools.cached_property
    def is_alone(self):
        """Whether other requests' rows could change the answer: shared inputs, or padded outputs."""
        known = (spec.shape.rank is not None and spec.shape[1:].is_fully_defined() for spec in self.outputs.values())
        return len(self.by_row) < len(self.inputs) or not all(known)


class Predict:
    """Answers of signatures.

    Args:
        model: a Model.
        turns: its Turns.
        limits: a Limits.
        rows: of one call.
        catalogue: a Catalogue.
        generation: a Generation.
        texts: a Texts.
    """

    def __init__(self, model, turns, limits, rows, catalogue, generation, texts):
        self._model, self._turns, self._limits, self._rows = model, turns, limits, rows
        self._catalogue, self._generation, self._texts = catalogue, generation, texts
        self._pace = Pace(limits.slice_seconds, first=padded_rows(rows), most=padded_rows(rows))

    async def answer(self, request, record, name, verb, version=None):
        """{"predictions": a row for each of request["instances"]}, or {"outputs": those of request["inputs"]}."""
        self._catalogue.find(name, version)
        if verb != "predict":
            reason = "reads tf.Example records, which this server does not" if verb in ("classify", "regress") else ""
            raise RequestError(404, f":{fields.shown(verb)[1:-1]} {reason or 'is not known'}: use :predict")
        fields.check_known(request, ("signature_name", "instances", "inputs"))
        if ("instances" in request) == ("inputs" in request):
            raise RequestError(400, "give instances, which are rows, or inputs, which are columns")
        signature, in_rows = self._signature(request), "instances" in request
        given = _columns(request["instances"], signature) if in_rows else _named(request["inputs"], signature)
        arrays, is_flat = self._arrays(given, signature)
        own = self._own(signature.name)
        found = await own(arrays, record) if own else await self._compute(signature, arrays)
        return _written(found, signature, is_flat, in_rows)

    def _signature(self, request):
        """The Signature that is asked for."""
        name = request.get("signature_name") or "serving_default"
        known = [one for one in self._model.signatures if one not in ELSEWHERE or not self._model.kind.routes]
        if not isinstance(name, str) or name not in self._model.signatures:
            raise RequestError(400, f"the model has no signature {fields.shown(name)}: choose from {', '.join(known)}")
        if name not in known:
            raise RequestError(400, f"the signature {name} keeps a state between calls: use {ELSEWHERE[name]}")
        return Signature.of(name, self._model.definitions[name])

    def _arrays(self, given, signature):
        """The inputs by name, checked; and whether a last axis of length 1 was left out."""
        names = ", ".join(signature.inputs)
        for name in given:
            if name not in signature.inputs:
                raise RequestError(400, f"{signature.name} has no input {fields.shown(name)}: it has {names}")
        for name in signature.inputs:
            if name not in given:
                raise RequestError(400, f"the input {name} is missing: {signature.name} needs {names}")
        if not signature.by_row or not any(map(_has_rows, signature.outputs.values())):
            raise RequestError(
                400, f"the signature {signature.name} has no row for each answer: it cannot be asked here"
            )
        read = {name: tensors.read(given[name], name, spec, self._limits) for name, spec in signature.inputs.items()}
        arrays = {name: array for name, (array, _) in read.items()}
        shared = ("stop",) if signature.name == "generate" and self._model.continues else ()  # one list for all rows
        counts = {name: len(arrays[name]) for name in signature.by_row if name not in shared}
        if len(set(counts.values())) > 1:
            raise RequestError(400, f"the inputs have different numbers of rows: {counts}".replace("'", ""))
        (rows,) = set(counts.values())
        if not rows:
            raise RequestError(400, "there must be at least one row")
        self._limits.check_count("the request", rows, self._limits.texts)
        return arrays, any(is_flat for _, is_flat in read.values())

    def _own(self, name):
        """The function for a signature whose rows take long, in parts as its route does; None for other signatures."""
        kind = self._model.kind
        if kind is KINDS["answer"] and name in ("answer", "serving_default"):
            return self._answer
        long = {"generate": self._generate, "score": self._score, "fill": self._fill}
        return long.get(name) if kind.newer or kind is KINDS["generate"] else None

    async def _generate(self, arrays, record):
        """The outputs of the signature `generate`, in the turns of /generate."""
        request = {name: value.tolist() for name, value in arrays.items()}
        for name in ("prompts", "stop"):
            request[name] = [text.decode("utf-8", "replace") for text in request[name]]
        texts, tokens = await self._generation.whole(request, record)
        return {"texts": np.array(texts, object), "tokens": np.array(tokens)}

    async def _score(self, arrays, record):
        total, tokens, log_probs = zip(*await self._texts.scores(arrays["texts"].tolist()), strict=True)
        lengths = np.array(list(map(len, tokens)))
        record.tokens += int(lengths.sum())
        found = {"tokens": _padded(tokens, -1), "log_probs": _padded(log_probs, 0), "lengths": lengths}
        return found | {"total": np.array(total, np.float32)}

    async def _fill(self, arrays, record):
        del record
        settings = {name: array.item() for name, array in arrays.items() if name != "texts"}
        if settings["beam_size"] > MAX_BEAM:
            raise RequestError(400, f"beam_size may be at most {MAX_BEAM}", param="beam_size")
        found = await self._texts.parts.fill(arrays["texts"].tolist(), settings)
        padding = {"tokens": -1, "log_probs": 0}
        return {
            name: _padded(rows, padding[name]) if name in padding else np.array(rows) for name, rows in found.items()
        }

    async def _answer(self, arrays, record):
        del record
        found = await self._texts.parts.answer({name: array.tolist() for name, array in arrays.items()})
        return {name: np.array(rows, object if name == "answers" else None) for name, rows in found.items()}

    async def _compute(self, signature, arrays):
        """The outputs by name, those of one call with all rows."""
        by_row = {name: arrays[name] for name in signature.by_row}
        shared = {name: array for name, array in arrays.items() if name not in by_row}
        count, begin, parts, found = len(next(iter(by_row.values()))), 0, [], []
        bits = max(_longest(array) for array in by_row.values()).bit_length()
        shapes = tuple(array.shape[1:] for array in by_row.values())
        slow = (signature.name, bits, shapes)
        key = None if signature.is_alone else ("predict", *slow)

        async def outputs(part):
            call, rows = functools.partial(self._call, signature.name, signature, shared, slow), _rows(part)
            share = -(-self._rows // self._pace[slow]) * rows
            return await self._turns.run(call, part, key, rows=share, again=bool(parts))

        while begin < count:
            size = min(self._rows, self._pace[slow])
            part = {name: array[begin : begin + size] for name, array in by_row.items()}
            found.append(await outputs(part))
            parts.append(part)
            begin += size
            self._limits.check_answer(sum(array.size for one in found for array in one.values()), "send fewer rows")
        widest = _widest(found, [name for name, spec in signature.outputs.items() if _has_rows(spec)])
        others = _parts_that_reach(found, widest)
        for i, part in enumerate(parts):
            if any(widest[name] != array.shape[1:] for name, array in found[i].items() if name in widest):
                # Padded outputs are as wide as those of the request's widest rows, which are computed with it.
                joined = {name: np.concatenate([part[name], *(parts[j][name] for j in others)]) for name in part}
                wide = await outputs(joined)
                found[i] = {name: array[: _rows(part)] if name in widest else array for name, array in wide.items()}
        return {
            name: np.concatenate([one[name] for one in found]) if name in widest else found[0][name]
            for name in signature.outputs
        }

    def _call(self, name, signature, shared, slow, parts):
        """The outputs of each part, in the model's thread."""
        sizes = [_rows(part) for part in parts]
        rows, start = padded_rows(sum(sizes)), time.monotonic()
        given = dict(shared)
        for each in parts[0]:
            column = np.concatenate([part[each] for part in parts])
            given[each] = np.concatenate([column, np.repeat(column[:1], rows - len(column), axis=0)])
        found = self._model(
            name, **{each: tf.constant(array, signature.inputs[each].dtype) for each, array in given.items()}
        )
        found = {each: tensor.numpy() for each, tensor in found.items()}
        self._pace.learn(slow, rows, time.monotonic() - start)
        split = [each for each, spec in signature.outputs.items() if _has_rows(spec)]
        if any(found[each].shape[:1] != (rows,) for each in split):
            raise RequestError(
                400, f"the outputs of {name} have no row for each row of its inputs: it cannot be asked here"
            )
        ends = list(itertools.accumulate(sizes, initial=0))
        return [
            {each: array[begin:end] if each in split else array for each, array in found.items()}
            for begin, end in itertools.pairwise(ends)
        ]


def _named(value, signature):
    """Inputs by name; a bare value if there is one input."""
    if isinstance(value, dict) and not tensors.is_bytes(value):
        return value
    if len(signature.inputs) != 1:
        reason = f"{signature.name} has the inputs {', '.join(signature.inputs)}: give an object with these names"
        raise RequestError(400, reason)
    return dict(zip(signature.inputs, [value], strict=True))


def _columns(instances, signature):
    """The inputs by name, columns of a list of rows."""
    if not isinstance(instances, list) or not instances:
        raise RequestError(400, "instances must be a list of rows, at least one", param="instances")
    for name in signature.inputs:
        if name not in signature.by_row:
            raise RequestError(400, f"the input {name} has no row for each instance: send inputs, not instances")
    rows = [_named(instance, signature) for instance in instances]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise RequestError(400, "all instances must have the same names", param="instances")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _written(found, signature, is_flat, in_rows):
    """The answer with these outputs, arrays by name; is_flat: a last axis of length 1 is left out."""
    if is_flat:
        found = {
            name: array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array for name, array in found.items()
        }
    values = {name: tensors.write(array, name) for name, array in found.items()}
    if not in_rows:
        return {"outputs": values if len(values) > 1 else next(iter(values.values()))}
    for name, spec in signature.outputs.items():
        if not _has_rows(spec):
            raise RequestError(400, f"the output {name} has no row for each instance: send inputs, not instances")
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return {"predictions": rows if len(values) > 1 else next(iter(values.values()))}


def _has_rows(spec):
    """Whether a TensorSpec has a first axis of any length."""
    return spec.shape.rank is None or (spec.shape.rank > 0 and spec.shape[0] is None)


def _rows(part):
    return len(next(iter(part.values())))


def _longest(array):
    """The bytes of the longest text of an array, or the numbers of a row."""
    if array.dtype == object:
        return max(map(len, array.ravel()), default=0)
    return array[0].size


def _padded(rows, filler):
    """Arrays [.., n] as one, [B, .., the largest n]."""
    width = max(row.shape[-1] for row in rows)
    padding = [(0, 0)] * (rows[0].ndim - 1)
    return np.stack([np.pad(row, [*padding, (0, width - row.shape[-1])], constant_values=filler) for row in rows])


def _widest(found, names):
    """The largest shape of a row, by output."""
    return {name: tuple(np.max([one[name].shape[1:] for one in found], axis=0).astype(int).tolist()) for name in names}


def _parts_that_reach(found, widest):
    """The numbers of parts that together reach the largest shapes on each axis."""
    return sorted(
        {
            next(i for i, one in enumerate(found) if one[name].shape[1 + axis] == size)
            for name, shape in widest.items()
            for axis, size in enumerate(shape)
        }
    )

"""Maps tensors of a published checkpoint to weights of a TransformerXL, completely in both directions.

Each format gives its *layout*, a list of `TensorEntry`, which serves import and export.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.model_dir import variables_by_path
from txl_tf.models.transformer_xl.config import TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.published.tensor_files import TensorFile

_LISTED = 40  # names in a message; further ones are only counted


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint, and the weights that it holds.

    Reshaped to `view`, its axes permuted by `order`, and flattened, it equals the weights `ours`, flattened and
    concatenated.

    Attributes:
        name: in the checkpoint.
        shape: in the checkpoint.
        ours: paths of our weights, below the model's name.
        view: a shape with as many elements; (): `shape`.
        order: permutation of the view's axes; (): as they are.
        reverse: whether the view's first axis is reversed.
        copies: other names under which the same tensor may be stored, in addition or instead.
    """

    name: str
    shape: tuple[int, ...]
    ours: tuple[str, ...]
    view: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    reverse: bool = False
    copies: tuple[str, ...] = ()

    def split(self, array: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Our weights, of these shapes, from the checkpoint's tensor."""
        array = array.reshape(self.view or self.shape)
        array = array[::-1] if self.reverse else array
        flat = array.transpose(self.order or range(array.ndim)).ravel()
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]

    def join(self, arrays: Iterable[np.ndarray]) -> np.ndarray:
        """The checkpoint's tensor from our weights."""
        view = self.view or self.shape
        order = self.order or tuple(range(len(view)))
        flat = np.concatenate([array.ravel() for array in arrays])
        array = flat.reshape([view[axis] for axis in order]).transpose(np.argsort(order))
        return (array[::-1] if self.reverse else array).reshape(self.shape)


Layout = Callable[[TransformerXLConfig, Collection[str]], list[TensorEntry]]
"""The tensors of a format for a TransformerXLConfig whose model has weights of these names."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open published checkpoint.

    Attributes:
        file: TensorFile of its weights only.
        architecture: fields of TransformerXLConfig that follow from the weights.
        settings: fields of TransformerXLConfig that do not, with the values of this source.
        evaluation: fields of EvalConfig that the source states.
        layout: function (TransformerXLConfig, names of the model's weights) -> list of TensorEntry.
    """

    file: TensorFile
    architecture: dict[str, Any]
    settings: dict[str, Any]
    evaluation: dict[str, Any]
    layout: Layout


def load(model: TransformerXL, checkpoint: Checkpoint) -> None:
    """Assigns the weights of a Checkpoint to a TransformerXL.

    Raises:
        InputError: tensors are missing, left over, of another shape or not equal to their copies; lists them.
    """
    weights, file = _weights(model), checkpoint.file
    layout = _covering(checkpoint.layout, model.config, weights)
    present = {entry: [name for name in (entry.name, *entry.copies) if name in file.shapes] for entry in layout}
    known = {name for names in present.values() for name in names}
    problems = {
        "missing": [entry.name for entry, names in present.items() if not names],
        "left over": sorted(set(file.shapes) - known),
        "of another shape": [
            f"{name} {list(file.shapes[name])}, expected {list(entry.shape)}"
            for entry, names in present.items()
            for name in names
            if tuple(file.shapes[name]) != entry.shape
        ],
    }
    _refuse(problems, file.path)
    unequal = []
    for entry, (name, *copies) in present.items():
        array = file.read(name)
        unequal += [f"{copy} and {name}" for copy in copies if not np.array_equal(file.read(copy), array)]
        shapes = [tuple(weights[path].shape) for path in entry.ours]
        for path, part in zip(entry.ours, entry.split(array, shapes), strict=True):
            weights[path].assign(part.astype(weights[path].dtype.as_numpy_dtype))
    _refuse({"not equal, though the model ties them": unequal}, file.path)


def save(model: TransformerXL, layout: Layout) -> list[tuple[TensorEntry, type[np.generic], Callable[[], np.ndarray]]]:
    """A model's tensors in a format's layout: [(TensorEntry, dtype, make)]; make() returns the tensor's array."""
    weights = _weights(model)

    def make(entry: TensorEntry) -> Callable[[], np.ndarray]:
        return lambda: entry.join([weights[path].numpy() for path in entry.ours])

    entries = _covering(layout, model.config, weights)
    return [(entry, weights[entry.ours[0]].dtype.as_numpy_dtype, make(entry)) for entry in entries]


def _weights(model: TransformerXL) -> dict[str, tf.Variable]:
    """{path below the model's name: variable}."""
    return {path.partition("/")[2]: variable for path, variable in variables_by_path(model).items()}


def _covering(layout: Layout, config: TransformerXLConfig, weights: Collection[str]) -> list[TensorEntry]:
    """The entries of the layout; ValueError unless they hold every weight once."""
    entries = layout(config, weights)
    covered = sorted(path for entry in entries for path in entry.ours)
    if covered != sorted(weights):
        raise ValueError(f"the layout does not cover the model: {sorted(set(covered) ^ set(weights))}")
    return entries


def _refuse(problems: Mapping[str, Sequence[str]], where: str) -> None:
    found = [
        f"{len(names)} {kind}: {', '.join(names[:_LISTED])}" + (", .." if len(names) > _LISTED else "")
        for kind, names in problems.items()
        if names
    ]
    if found:
        raise InputError(f"{where} does not fit the model; tensors {'; '.join(found)}. Check the format and the preset")

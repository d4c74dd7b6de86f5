"""Which tensor of a published checkpoint holds which weights of a TransformerXL: every number accounted for.

Each format gives its *layout*, a list of `TensorEntry`. Read one way it imports, read the other way it exports.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from txl_tf.errors import InputError
from txl_tf.model_dir import variables_by_path
from txl_tf.published.tensor_files import TensorFile

_LISTED = 40  # names in a message; the rest are counted


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint, and the weights whose numbers it holds one after the other.

    Seen as `view` and with its axes in `order`, it is the weights `ours`, flattened and joined.

    Attributes:
        name: in the checkpoint.
        shape: there.
        ours: paths of weights, below the model's name.
        view: a shape with as many elements; (): `shape`.
        order: permutation of the view's axes; (): as they are.
        reverse: the view's first axis runs the other way.
        copies: other names under which the same tensor may also be stored, or be stored instead.
    """

    name: str
    shape: tuple[int, ...]
    ours: tuple[str, ...]
    view: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    reverse: bool = False
    copies: tuple[str, ...] = ()

    def split(self, array, shapes):
        """The weights, of these shapes, in a tensor of the checkpoint."""
        array = array.reshape(self.view or self.shape)
        array = array[::-1] if self.reverse else array
        flat = array.transpose(self.order or range(array.ndim)).ravel()
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]

    def join(self, arrays):
        """The checkpoint's tensor from the weights."""
        view = self.view or self.shape
        order = self.order or tuple(range(len(view)))
        flat = np.concatenate([array.ravel() for array in arrays])
        array = flat.reshape([view[axis] for axis in order]).transpose(np.argsort(order))
        return (array[::-1] if self.reverse else array).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint, opened.

    Attributes:
        file: TensorFile of its weights and nothing else.
        architecture: fields of ModelConfig that the weights fix.
        settings: fields of ModelConfig that they do not, as this source has them.
        evaluation: fields of EvalConfig that the source states.
        layout: (ModelConfig, names of the model's weights) -> list of TensorEntry.
    """

    file: TensorFile
    architecture: dict[str, Any]
    settings: dict[str, Any]
    evaluation: dict[str, Any]
    layout: Callable


def load(model, checkpoint):
    """Gives a TransformerXL the weights of a Checkpoint.

    Raises:
        InputError: lists tensors that are missing, left over, of another shape or not equal to their copies.
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


def save(model, layout):
    """A model's tensors in a format's layout: [(TensorEntry, dtype, make)], where make() returns the tensor."""
    weights = _weights(model)

    def make(entry):
        return lambda: entry.join([weights[path].numpy() for path in entry.ours])

    entries = _covering(layout, model.config, weights)
    return [(entry, weights[entry.ours[0]].dtype.as_numpy_dtype, make(entry)) for entry in entries]


def _weights(model):
    """The variables by their path below the model's name."""
    return {path.partition("/")[2]: variable for path, variable in variables_by_path(model).items()}


def _covering(layout, config, weights):
    """The layout's list, which must hold every weight once."""
    entries = layout(config, weights)
    covered = sorted(path for entry in entries for path in entry.ours)
    if covered != sorted(weights):
        raise ValueError(f"the layout does not cover the model: {sorted(set(covered) ^ set(weights))}")
    return entries


def _refuse(problems, where):
    found = [
        f"{len(names)} {kind}: {', '.join(names[:_LISTED])}" + (", .." if len(names) > _LISTED else "")
        for kind, names in problems.items()
        if names
    ]
    if found:
        raise InputError(f"{where} does not fit the model; tensors {'; '.join(found)}. Check the format and the preset")

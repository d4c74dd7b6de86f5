"""Maps tensors of a published checkpoint to weights of a model. The map is complete in both directions.

Each format defines a *layout*, a list of `TensorEntry`, which is used for import and export.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.families.xlnet import XLNET
from txl_tf.progress import progress_bar
from txl_tf.published.tensor_files import TensorFile
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.settings.run import Config

_LISTED = 40  # names listed in a message; further names are only counted


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint, and the weights that it contains.

    Reshaped to `view`, its axes permuted by `order`, and flattened, it equals the weights `ours`, flattened and
    concatenated.

    Attributes:
        name: the tensor's name in the checkpoint.
        shape: the tensor's shape in the checkpoint.
        ours: paths of our weights, below the model's name.
        view: a shape with the same number of elements; (): `shape`.
        order: permutation of the view's axes; (): not permuted.
        reverse: whether the view's first axis is reversed.
        copies: other names under which the same tensor may be stored, in addition or instead.
        optional: whether a checkpoint may lack the tensor; its weights then keep their values.
    """

    name: str
    shape: tuple[int, ...]
    ours: tuple[str, ...]
    view: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    reverse: bool = False
    copies: tuple[str, ...] = ()
    optional: bool = False

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


class Entries:
    """The entries of a layout for those weights that a model has; some weights are only in some models.

    Names are given with slashes. With `torch` they get dots, and kernels of linear layers are [out, in].
    """

    def __init__(self, weights: Collection[str], torch: bool = False):
        self.found: list[TensorEntry] = []
        self._weights, self._torch = set(weights), torch

    def add(self, name: str, shape: Sequence[int], *ours: str, **how: Any) -> None:
        """A tensor that contains `ours`; other arguments as for TensorEntry."""
        if ours[0] in self._weights:
            name = name.replace("/", ".") if self._torch else name
            self.found.append(TensorEntry(name, tuple(shape), ours, **how))

    def kernel(self, name: str, rows: int, columns: int, *ours: str) -> None:
        """The kernel of one or several linear layers with the same input, here each [rows, columns]."""
        n = len(ours)
        if self._torch:
            self.add(f"{name}/weight", (n * columns, rows), *ours, view=(n, columns, rows), order=(0, 2, 1))
        else:
            self.add(f"{name}/kernel", (rows, n * columns), *ours, view=(rows, n, columns), order=(1, 0, 2))

    def dense(self, name: str, rows: int, columns: int, ours: str, bias: bool = True) -> None:
        """A linear layer."""
        self.kernel(name, rows, columns, f"{ours}/kernel")
        if bias:
            self.add(f"{name}/bias", (columns,), f"{ours}/bias")

    def norm(self, name: str, width: int, ours: str) -> None:
        """A layer norm."""
        scale, shift = ("weight", "bias") if self._torch else ("gamma", "beta")
        self.add(f"{name}/{scale}", (width,), f"{ours}/gamma")
        self.add(f"{name}/{shift}", (width,), f"{ours}/beta")


Layout = Callable[[Any, Collection[str]], list[TensorEntry]]
"""A function from a model's settings and the names of its weights to the tensors of a format."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open published checkpoint.

    Attributes:
        file: TensorFile of its weights only.
        architecture: fields of the model's settings that follow from the weights.
        settings: fields of the model's settings that do not follow from the weights, with the values of this source.
        evaluation: fields of the group "eval" that the source states.
        layout: function (the model's settings, names of its weights) -> list of TensorEntry.
        config: the subclass of Config with the settings of its run.
        source: a file or directory, local or gs://. The other published files are in the directory, or next to the
            file.
        dataset: the corpus the model was trained on, if it is known; else None.
        data: fields of the group "data" that the source states.
        labels: the names of a classifier's classes, if the source states them.
        notes: lines about changes and omissions of the import.
        unstated: settings that such a source usually states but this one does not, so that defaults are used.
        origin: hf://OWNER/NAME@COMMIT, if the source is a model of the Hub.
        unpacked: the temporary folder that holds the source's files; "" if there is none.
    """

    file: TensorFile
    architecture: dict[str, Any]
    settings: dict[str, Any]
    evaluation: dict[str, Any]
    layout: Layout
    config: type[Config]
    source: str
    dataset: str | None = None
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unstated: tuple[str, ...] = ()
    origin: str = ""
    unpacked: str = ""

    def shown(self, text: str) -> str:
        """A text with the user's file in place of the temporary folder."""
        return _in_place_of(self.unpacked, self.file.path, text)


def _in_place_of(folder: str, source: str, text: str) -> str:
    """A text with paths in a temporary folder written as parts of `source`; unchanged if folder is ""."""
    return text.replace(f"{folder}/", f"{source}: ").replace(folder, source) if folder else text


@contextlib.contextmanager
def naming_source(source: str, folder: str) -> Iterator[None]:
    """In this context messages of InputErrors name parts of `source` in place of paths in a temporary folder."""
    try:
        yield
    except InputError as error:
        raise InputError(_in_place_of(folder, source, str(error))) from error


def xlnet_run(task: str) -> type[Config]:
    """The settings of the runs of an XLNet for a task."""
    return next(one.config for one in XLNET.tasks if one.name == task)


def require_agreement(stated: Mapping[str, Any], inferred: Mapping[str, Any], where: str) -> None:
    """Raises InputError if the settings that a config.json states are not those that follow from the tensors."""
    differing = [
        f"{name}={value!r} ({inferred[name]!r} in the tensors)"
        for name, value in stated.items()
        if name in inferred and inferred[name] != value
    ]
    if differing:
        raise InputError(f"{where} does not fit these tensors: {', '.join(differing)}")


def load(model: keras.Model, checkpoint: Checkpoint) -> list[str]:
    """Assigns the weights of a Checkpoint to a model; the names of the optional tensors that it lacks.

    The weights of these keep their values. InputError, with a list, if tensors are missing, unused, of a wrong shape or
    not equal to their copies.
    """
    weights, file = _weights(model), checkpoint.file
    layout = _covering(checkpoint.layout, model.config, weights)
    present = {entry: [name for name in (entry.name, *entry.copies) if name in file.shapes] for entry in layout}
    known = {name for names in present.values() for name in names}
    problems = {
        "missing": [entry.name for entry, names in present.items() if not names and not entry.optional],
        "left over": sorted(set(file.shapes) - known),
        "of another shape": [
            f"{name} {list(file.shapes[name])}, expected {list(entry.shape)}"
            for entry, names in present.items()
            for name in names
            if tuple(file.shapes[name]) != entry.shape
        ],
    }
    _refuse(problems, file.path)
    unequal, lacking = [], [entry.name for entry, names in present.items() if not names]
    with progress_bar("reading", len(known), " tensors") as bar:
        for entry, (name, *copies) in ((entry, names) for entry, names in present.items() if names):
            array = file.read(name)
            unequal += [f"{copy} and {name}" for copy in copies if not np.array_equal(file.read(copy), array)]
            shapes = [tuple(weights[path].shape) for path in entry.ours]
            for path, part in zip(entry.ours, entry.split(array, shapes), strict=True):
                weights[path].assign(part.astype(weights[path].dtype.as_numpy_dtype))
            bar.update(1 + len(copies))
    _refuse({"not equal, though the model ties them": unequal}, file.path)
    return lacking


def save(model: keras.Model, layout: Layout) -> list[tuple[TensorEntry, np.ndarray]]:
    """A model's tensors in a format's layout."""
    weights = _weights(model)
    entries = _covering(layout, model.config, weights)
    return [(entry, entry.join([weights[path].numpy() for path in entry.ours])) for entry in entries]


def _weights(model: keras.Model) -> dict[str, tf.Variable]:
    """{path below the model's name: variable}."""
    named = {path.partition("/")[2]: variable for path, variable in variables_by_path(model).items()}
    if len(named) != len(model.variables):
        raise ValueError(f"{model.name}: two weights have the same path below the names of its parts")
    return named


def _covering(layout: Layout, config: Any, weights: Collection[str]) -> list[TensorEntry]:
    """The entries of the layout; ValueError unless they contain every weight exactly once."""
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
        raise InputError(f"{where} does not fit the model; tensors {'; '.join(found)}. Check --format and --preset")

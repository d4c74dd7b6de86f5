"""The parameters of a model: as a table, by names of kinds, and which are frozen."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import keras

from txl_tf.errors import InputError

_LAYERS = re.compile(r"layers:(\d+)(?:-(\d+))?")
LAYER = re.compile(r"(?:^|/)layer_(\d+)/")
"""The part of a weight's path with the number of its layer."""


def count_layers(paths: Iterable[str]) -> int:
    """The number of layers that weights have: one more than the highest I in a path with layer_I."""
    return max((int(match[1]) + 1 for path in paths if (match := LAYER.search(path))), default=0)


def parameter_table(model: keras.Model) -> str:
    """The `weights_table` of a model."""
    frozen = {variable.path for variable in model.variables if not variable.trainable}
    return weights_table({variable.path: tuple(variable.shape) for variable in model.variables}, frozen)


def weights_table(shapes: Mapping[str, Sequence[int]], frozen: Collection[str]) -> str:
    """A Markdown table of weights: each kind with its shape, number and share of all parameters.

    `shapes` and the weights that training does not change, `frozen`, are given by Keras paths.
    """
    kinds: dict[tuple, list[str]] = collections.defaultdict(list)
    for path, shape in shapes.items():
        kinds[kind_of(path), tuple(shape), path in frozen].append(path)
    total = sum(map(math.prod, shapes.values()))
    lines = ["| weights | shape | copies | parameters | share |", "|---|---|--:|--:|--:|"]
    for (kind, shape, is_frozen), paths in kinds.items():
        count = math.prod(shape) * len(paths)
        name, size = kind + " (frozen)" * is_frozen, " x ".join(f"{n:,}" for n in shape)
        lines.append(f"| {name} | {size} | {len(paths)} | {count:,} | {100 * count / total:.1f} % |")
    lines.append(f"| **total** | | | **{total:,}** | **100 %** |")
    return "\n".join(lines)


def kind_of(path: str) -> str:
    """A weight's path without the model's name; it is the same in all layers: "layer/attention/query_kernel"."""
    part, *rest = path.split("/")[1:]
    return "/".join(["layer", *rest] if part.startswith("layer_") else [part, *rest])


def freeze(model: keras.Model, names: str) -> None:
    """Makes the weights that `frozen_paths` finds not trainable.

    InputError if a name fits no weight, or nothing is left to train.
    """
    frozen = frozen_paths(names, [variable.path for variable in model.variables])
    for variable in model.variables:
        if variable.path in frozen:
            variable.trainable = False
    if not model.trainable_variables:
        raise InputError(f"freeze={names} leaves no weight to train: freeze less")


def frozen_paths(names: str, paths: Iterable[str]) -> set[str]:
    """Which of a model's paths a value of the setting `freeze` means; InputError if a name fits none.

    The names are separated by commas, each a kind of weight or the beginning of one (embedding, layer/attention), or
    layers:3, or layers:0-7; "": none.
    """
    paths = list(paths)
    numbers = {path: int(number[1]) for path in paths if (number := LAYER.search(path))}
    found: set[str] = set()
    for name in names.split(",") if names else ():
        if match := _LAYERS.fullmatch(name):
            first, last = int(match[1]), int(match[2] or match[1])
            known = last in numbers.values()
            fits = {path for path, number in numbers.items() if known and first <= number <= last}
        else:
            fits = {path for path in paths if f"{kind_of(path)}/".startswith(f"{name}/")}
        if not fits:
            kinds = sorted({kind_of(path).split("/")[0] for path in paths})
            among = f"layers:0-{max(numbers.values())}, " if numbers else ""
            raise InputError(
                f"freeze={names}: {name!r} fits no weight of this model: choose from {among}{', '.join(kinds)}, or "
                "longer names from the table of scripts/describe_model.py"
            )
        found |= fits
    return found

"""The model's parameters as a table."""

from __future__ import annotations

import collections

import keras


def parameter_table(model: keras.Model) -> str:
    """A Markdown table of a model's weights: each kind of weight with its shape, number and share of all parameters."""
    kinds = collections.defaultdict(list)
    for variable in model.trainable_variables:
        kinds[kind_of(variable), tuple(variable.shape)].append(variable)
    total = model.count_params()
    lines = ["| weights | shape | copies | parameters | share |", "|---|---|--:|--:|--:|"]
    for (kind, shape), variables in kinds.items():
        count = sum(int(variable.value.shape.num_elements()) for variable in variables)
        size = " x ".join(f"{n:,}" for n in shape)
        lines.append(f"| {kind} | {size} | {len(variables)} | {count:,} | {100 * count / total:.1f} % |")
    lines.append(f"| **total** | | | **{total:,}** | **100 %** |")
    return "\n".join(lines)


def kind_of(variable: keras.Variable) -> str:
    """The name of a weight without the model's; it is the same in all layers: "layer/attention/query_kernel"."""
    part, *rest = variable.path.split("/")[1:]
    return "/".join(["layer", *rest] if part.startswith("layer_") else [part, *rest])

"""Tables that are values of Python: DataFrames of pandas, lists of dicts, dicts of lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txl_tf.data.tables.results import new_names
from txl_tf.data.tables.table import Table, refuse_twice
from txl_tf.errors import InputError


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame; pandas is not loaded."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "to_dict") and hasattr(value, "columns")


def table_of(value: Any) -> Table | None:
    """A value as a Table, whose lines are the numbers of the rows from 1 on; None if it is not a table.

    InputError if two columns have one name as text, or the columns of a dict are not equally long.
    """
    if isinstance(value, Table):
        return value
    if is_frame(value):
        names = [str(name) for name in value.columns]
        cells = value.astype(object).where(value.notna(), None)
        records = [dict(zip(names, row, strict=True)) for row in cells.itertuples(index=False, name=None)]
    elif isinstance(value, Mapping) and value and all(_is_column(column) for column in value.values()):
        names = list(map(str, value))
        if len({len(column) for column in value.values()}) > 1:
            sizes = ", ".join(f"{name!r} {len(column):,}" for name, column in value.items())
            raise InputError(f"the columns of the table must be equally long, and have {sizes} values")
        records = [dict(zip(names, row, strict=True)) for row in zip(*value.values(), strict=True)]
    elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        records = [{str(name): cell for name, cell in row.items()} for row in value]
        names = list(map(str, dict.fromkeys(name for row in value for name in row)))
    else:
        return None
    refuse_twice(names, "the table")
    return Table(names, [(i, {name: _native(cell) for name, cell in row.items()}) for i, row in enumerate(records, 1)],
                 [], "the table")  # fmt: skip


def with_predictions(frame: Any, found: Mapping[int, Mapping[str, Any]]) -> Any:
    """A copy of a DataFrame with the columns of `results.as_columns`, by the numbers of rows; other rows get None."""
    names = new_names([str(name) for name in frame.columns], list(next(iter(found.values()), {})))
    lines = range(1, len(frame) + 1)
    return frame.assign(**{new: [found.get(line, {}).get(name) for line in lines] for name, new in names.items()})


def refuse_paths(inputs: Any) -> None:
    """Raises InputError if the only input is a text that names a file."""
    (text,) = inputs if isinstance(inputs, list) and len(inputs) == 1 else (inputs,)
    if isinstance(text, str) and len(text) < 1000 and os.path.splitext(text)[1] and os.path.isfile(text):
        raise InputError(
            f"{text!r} is a file here, and would be read as a text: did you mean predict_file({text!r})? Give "
            f"[({text!r}, '')] if it is a text"
        )


def _is_column(value: Any) -> bool:
    return not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__len__") and hasattr(value, "__iter__")


def _native(value: Any) -> Any:
    """A NumPy number as a Python number; arrays, Series, tuples and sets as lists."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, tuple):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value

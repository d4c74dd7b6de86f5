"""Tables that are values of Python: DataFrames of pandas, tables of pyarrow, lists of dicts, dicts of lists.

The type of a column is str, int, float, bool, np.float32, [the type of items], or {name: type}.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.data.tables.results import new_names
from txl_tf.data.tables.table import Table, refuse_twice
from txl_tf.errors import InputError


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame; pandas is not loaded."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "to_dict") and hasattr(value, "columns")


def is_arrow(value: Any) -> bool:
    """Whether a value is a Table or RecordBatch of pyarrow, which is not loaded."""
    return type(value).__module__.startswith("pyarrow") and hasattr(value, "to_pydict")


def table_of(value: Any) -> Table | None:
    """A value as a Table, whose lines are the numbers of the rows from 1 on; None if it is not a table.

    InputError if two columns have one name as text, or the columns of a dict are not equally long.
    """
    if isinstance(value, Table):
        return value
    value = value.to_pydict() if is_arrow(value) else value
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


_SPARK = {str: "string", int: "bigint", float: "double", bool: "boolean", np.float32: "float"}
"""The names of types in Spark."""


def type_name(kind: Any) -> str:
    """A column's type as Spark writes it, such as array<string>."""
    if isinstance(kind, list):
        return f"array<{type_name(kind[0])}>"
    if isinstance(kind, Mapping):
        return f"struct<{','.join(f'{name}:{type_name(one)}' for name, one in kind.items())}>"
    return _SPARK[kind]


def _arrow_type(kind: Any) -> Any:
    import pyarrow

    if isinstance(kind, list):
        return pyarrow.list_(_arrow_type(kind[0]))
    if isinstance(kind, Mapping):
        return pyarrow.struct([(name, _arrow_type(one)) for name, one in kind.items()])
    return pyarrow.string() if kind is str else pyarrow.from_numpy_dtype(kind)


def with_columns(batch: Any, new: Mapping[str, tuple[Any, list[Any]]]) -> Any:
    """A DataFrame, table of pyarrow or dict of columns with new columns: {name: (its type, its values, or None)}."""
    if is_arrow(batch):
        import pyarrow

        for name, (kind, values) in new.items():
            of_type = _arrow_type(kind)
            batch = batch.append_column(pyarrow.field(name, of_type), pyarrow.array(values, of_type))
        return batch
    if is_frame(batch):
        import pandas

        nullable = {int: "Int64", bool: "boolean", float: "float64"}
        series = {
            name: pandas.Series(values, batch.index, nullable.get(kind) if isinstance(kind, type) else object)
            for name, (kind, values) in new.items()
        }
        return batch.assign(**series)
    return {**batch, **{name: _array(kind, values) for name, (kind, values) in new.items()}}


def _array(kind: Any, values: list[Any]) -> np.ndarray:
    """Values as an array, of objects if a value is missing or not a number; missing floats are NaN."""
    if kind is float or (kind in (int, bool) and None not in values):
        return np.array(values, kind)
    found = np.empty(len(values), object)
    for i, value in enumerate(values):
        found[i] = value
    return found


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
    """A NumPy number as a Python number; arrays, Series, tuples and sets as lists; also inside of lists and dicts."""
    if type(value) is str:
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, (list, tuple)):
        return list(map(_native, value))
    return {name: _native(one) for name, one in value.items()} if isinstance(value, dict) else value

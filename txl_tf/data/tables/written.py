"""Lists and other values in the cells of a table, as JSON, Python or NumPy writes them."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
from typing import Any

from txl_tf.data.tables.table import Table, content

_NUMPY = re.compile(r"""\[\s*(?:(?:'[^']*'|"[^"]*"|\d+\.?\d*)(?:\s+|(?=\])))*\]""")
"""An array as NumPy prints it, without commas, which Python would read as one joined text."""
_NAMES = ("array", "frozenset", "Index", "deque", "dict_keys", "tensor")
"""The names that programs of Python write before lists and sets."""
_BEGINS = ("[", "(", "{", "set(", *(f"{name}(" for name in _NAMES))
_ITEM = re.compile(r"""'[^']*'|"[^"]*"|\d+\.?\d*""")
_MADE = re.compile(rf"(?:{'|'.join(_NAMES)})\(([\[{{].*?[]}}])(?:,\s*\w+=['<>|.\w]+)*\)", re.DOTALL)
"""An array or a set as programs of Python write it, such as Index(['a'], dtype='object')."""


def written_value(text: str) -> Any:
    """The value that a text writes in JSON, Python or NumPy; None if it writes none."""
    text = _MADE.sub(r"\1", text.strip())
    if text == "set()":
        return []
    items = _ITEM.findall(text) if _NUMPY.fullmatch(text) else []
    for parse in (json.loads, ast.literal_eval):
        try:
            return [ast.literal_eval(item) for item in items] if len(items) > 1 else parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def written_nested(value: Any) -> list[Any] | dict[str, Any] | None:
    """The object or list that a text writes, or the items of a tuple or set of Python; None if it writes none."""
    if not isinstance(value, str) or not value.lstrip().startswith(_BEGINS):
        return None
    found = written_value(value)
    return list(found) if isinstance(found, (list, tuple, set)) else found if isinstance(found, dict) else None


def written_list(value: Any) -> list[Any] | None:
    """The list of `written_nested`; None if a text writes none."""
    found = written_nested(value)
    return found if isinstance(found, list) else None


def with_lists(table: Table) -> Table:
    """A table whose columns of written lists, as CSV has them, are lists."""
    rows = table.rows
    for name in table.names:
        full = [i for i, (_, values) in enumerate(rows) if content(values.get(name))]
        lists = itertools.takewhile(lambda one: one is not None, (written_list(rows[i][1][name]) for i in full))
        found = dict(zip(full, lists, strict=False))
        if full and len(found) == len(full):
            rows = [(line, values | {name: found.get(i)}) for i, (line, values) in enumerate(rows)]
    return dataclasses.replace(table, rows=rows)

"""Lists in the cells of a table, as JSON, Python or NumPy writes them."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_NUMPY = re.compile(r"""\[\s*(?:(?:'[^']*'|"[^"]*"|\d+\.?\d*)(?:\s+|(?=\])))*\]""")
"""An array as NumPy prints it, without commas, which Python would read as one joined text."""
_ITEM = re.compile(r"""'[^']*'|"[^"]*"|\d+\.?\d*""")


def written_list(value: Any) -> list[Any] | None:
    """The list that a text writes, or the items of a tuple or set of Python; None if it writes none."""
    text = value.strip() if isinstance(value, str) else ""
    if text == "set()":
        return []
    if not text.startswith(("[", "(", "{")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            items = _ITEM.findall(text) if _NUMPY.fullmatch(text) else []
            found = [ast.literal_eval(item) for item in items] if len(items) > 1 else ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
    return list(found) if isinstance(found, (list, tuple, set)) else None

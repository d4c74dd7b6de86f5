"""Reads JSON that may be damaged or hostile, and writes lines of JSON.

Every error is an InputError of one line that names the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from txl_tf.errors import TYPES, InputError, one_line
from txl_tf.storage.surrogates import whole

NUMBER = (int, float)
"""The type of a field that may be an integer or not."""
Fields = Mapping[str, type | tuple[type, ...]]
"""The fields that a record must have, and the types of their values; true and false do not count as numbers."""
_FEW = 100
"""The keys of a text that may be one line of a table."""


def parse_json(text: str | bytes, where: str, remedy: str = "") -> Any:
    """The value of a JSON text, or of bytes in UTF-8, UTF-16 or UTF-32.

    Half a surrogate pair becomes U+FFFD; see `surrogates.whole`. InputError if it is not JSON, in none of these
    encodings, or too deeply nested; `where` is the file, and `remedy` ends the message.
    """
    try:
        value = _without_equal_keys(text)
        escape = r"\\u[dD][89a-fA-F]"  # of a surrogate, which UTF-8 itself cannot hold
        if re.search(escape, text) if isinstance(text, str) else re.search(escape.encode(), text):
            value = json.loads(whole(json.dumps(value, ensure_ascii=False)))
        return value
    except RecursionError:
        raise _error(f"{where} is nested too deeply", remedy) from None
    except ValueError as error:  # of JSON or of the encoding
        raise _error(f"{where} is not JSON ({one_line(error)})", remedy) from error


def _without_equal_keys(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if a key stands twice in an object, with different values."""
    if isinstance(text, bytes):
        return json.loads(text, object_pairs_hook=_object)
    keys = text.count('":')  # or more, since a text can have it, too
    value = json.loads(text) if keys < _FEW else None  # faster than with a function for each object
    return value if isinstance(value, dict) and len(value) == keys else _READER.decode(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    for name, value in pairs if len(found) < len(pairs) else ():
        if value != found[name]:
            raise ValueError(f"an object has the key {name!r} twice, with different values")
    return found


_READER = json.JSONDecoder(object_pairs_hook=_object)


def check_record(value: Any, where: str, fields: Fields, remedy: str = "") -> dict[str, Any]:
    """`value`, checked to be an object that has these fields with values of these types. It may have others.

    Otherwise InputError, with `where` and `remedy` as for `parse_json`.
    """
    if not isinstance(value, dict):
        raise _error(f"{where} must be a JSON object, not {_shown(value)}", remedy)
    for name, kinds in fields.items():
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if name not in value:
            raise _error(f"{where} has no {name!r}", remedy)
        if type(value[name]) not in kinds:
            wanted = " or ".join(TYPES.get(kind, kind.__name__) for kind in kinds)
            raise _error(f"{where}: {name!r} must be {wanted}, not {_shown(value[name])}", remedy)
    return value


def json_line(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """A value as a line of JSON; NaN and infinity, which JSON does not have, are null. `default` as of json.dumps."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=default) + "\n"
    except ValueError:
        finite = json.loads(json.dumps(value, default=default), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False) + "\n"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _error(message: str, remedy: str) -> InputError:
    return InputError(f"{message}: {remedy}" if remedy else message)

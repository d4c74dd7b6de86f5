"""The fields of a request, checked: a wrong field is a RequestError that says what is wrong."""

import json

from serving.errors import RequestError, one_line


def json_object(data):
    """The JSON object in the bytes of a request."""
    try:
        sent = json.loads(data)
    except RecursionError:
        raise RequestError(400, "the request is nested too deeply") from None
    except ValueError as error:
        raise RequestError(400, f"the request is not JSON: {one_line(error)}") from None
    if not isinstance(sent, dict):
        raise RequestError(400, "the request must be a JSON object")
    return sent


def check_known(request, known):
    """Raises RequestError if there is a field that is not in `known`."""
    for name in request:
        if name not in known:
            fields = f"choose from {', '.join(known)}" if known else "there are none"
            raise RequestError(400, f"{shown(name)} is not a field of this request: {fields}", param=shown(name)[1:-1])


def shown(value):
    """A value for a message: short, and without the contents of lists."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= 50 else text[:50] + ".."


def text_bytes(value, name, limits):
    """A string in UTF-8. Half a surrogate pair, which is not a character, becomes U+FFFD, as in every command."""
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a string, not {shown(value)}", param=name)
    data = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    limits.check_text(name, len(data))
    return data


def string(request, name, limits, default=None):
    """request[name], a string, in UTF-8."""
    return text_bytes(request.get(name, default), name, limits)


def strings(request, name, limits, at_least=1, at_most=None):
    """request[name], a list of strings, in UTF-8; without the field []. at_most: None: limits.texts."""
    values = request.get(name, [])
    if not isinstance(values, list) or len(values) < at_least:
        raise RequestError(400, f"{name} must be a list of strings, at least {at_least}", param=name)
    limits.check_count(name, len(values), limits.texts if at_most is None else at_most)
    if not all(isinstance(value, str) for value in values):
        raise RequestError(400, f"{name} must be a list of strings, at least {at_least}", param=name)
    return [text_bytes(value, f"{name}[{i}]", limits) for i, value in enumerate(values)]


def integers(request, name, allowed, default=None):
    """request[name], a list of integers within a range."""
    values = request.get(name, default)
    if not isinstance(values, list) or not all(type(value) is int and value in allowed for value in values):
        reason = f"{name} must be a list of integers from {allowed[0]} to {allowed[-1]}"
        raise RequestError(400, reason, param=name)
    return values


def number(request, name, kind, default):
    """request[name], an int or a float."""
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        wanted = "an integer" if kind is int else "a number"
        raise RequestError(400, f"{name} must be {wanted}, not {shown(value)}", param=name)
    if not abs(value) < 2**31:  # nor NaN
        raise RequestError(400, f"{name}={shown(value)} is too large or not a number", param=name)
    return kind(value)


def flag(request, name, default=False):
    """request[name], true or false."""
    value = request.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(400, f"{name} must be true or false", param=name)
    return value

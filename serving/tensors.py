"""Values in JSON as tensors and back, as TensorFlow Serving's REST interface has them."""

import base64
import binascii

import numpy as np

from serving import fields
from serving.errors import RequestError


def is_bytes(value):
    """Whether a JSON value stands for bytes: {"b64": ..}."""
    return isinstance(value, dict) and set(value) == {"b64"}


def read(value, name, spec, limits):
    """A JSON value as an array of a TensorSpec's type and shape; texts become bytes.

    A last axis of length 1 may be left out, as in [1.0, 2.0] for the shape [None, 1].

    Returns:
        the array, and whether this axis was left out.

    Raises:
        RequestError: it has another type or shape.
    """
    shape, leaves = _flat(value, name)
    wanted = spec.shape.as_list() if spec.shape.rank is not None else None
    is_flat = wanted is not None and len(wanted) > 1 and len(shape) == len(wanted) - 1 and wanted[-1] == 1
    shape += [1] * is_flat
    fits = wanted is None or (
        len(shape) == len(wanted)
        and all(size is None or size == found for size, found in zip(wanted, shape, strict=True))
    )
    if not fits:
        raise RequestError(400, f"{name} has the shape {shown(shape)} and must have {shown(wanted)}", param=name)
    convert, dtype = _converter(spec.dtype, name, limits)
    return np.array([convert(leaf) for leaf in leaves], dtype).reshape(shape), is_flat


def write(array, name):
    """An array as a JSON value; bytes as texts, or as {"b64": ..} if they are none or the name ends in _bytes."""
    if array.dtype.kind not in "OS":
        return (array if array.dtype.kind in "fiub" else array.astype(np.float32)).tolist()  # bfloat16 has no kind
    texts = np.empty(array.shape, object)
    for place, data in np.ndenumerate(array):
        texts[place] = _text(data, name)
    return texts.tolist()


def shown(shape):
    """A shape in words, such as [n, 3]."""
    return f"[{', '.join('n' if size is None else str(size) for size in shape)}]"


def _text(data, name):
    if not name.endswith("_bytes"):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(data).decode()}


def _flat(value, name):
    """The shape of nested lists, and their values in order."""
    shape, level = [], [value]
    while level and isinstance(level[0], list):
        sizes = {len(one) if isinstance(one, list) else None for one in level}
        if len(sizes) > 1:
            raise RequestError(400, f"{name} has lists of different lengths beside each other", param=name)
        shape += sizes
        level = [inner for one in level for inner in one]
    if any(isinstance(one, list) for one in level):
        raise RequestError(400, f"{name} has lists of different lengths beside each other", param=name)
    return shape, level


def _converter(dtype, name, limits):
    """A function from a JSON value to one of this tf.DType, and the NumPy type for many."""
    if dtype.name == "string":
        return lambda value: _bytes(value, name, limits), object
    if not (dtype.is_bool or dtype.is_integer or dtype.is_floating):
        raise RequestError(400, f"{name} has the type {dtype.name}, which JSON cannot give", param=name)
    kinds = (bool,) if dtype.is_bool else (int,) if dtype.is_integer else (int, float)

    def convert(value):
        if type(value) not in kinds:
            raise RequestError(
                400, f"{name} must have values of type {dtype.name}, not {fields.shown(value)}", param=name
            )
        if dtype.is_integer and not dtype.min <= value <= dtype.max:
            raise RequestError(400, f"{name} has {fields.shown(value)}, which {dtype.name} cannot hold", param=name)
        return value if not dtype.is_floating else _float(value, name)

    return convert, dtype.as_numpy_dtype


def _float(value, name):
    try:
        return float(value)
    except OverflowError:
        raise RequestError(400, f"{name} has {fields.shown(value)}, which is too large", param=name) from None


def _bytes(value, name, limits):
    if not is_bytes(value):
        return fields.text_bytes(value, name, limits)
    try:
        data = base64.b64decode(value["b64"], validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise RequestError(400, f'{name} has a "b64" that is not base64', param=name) from None
    limits.check_text(name, len(data))
    return data

"""An interface for files of named tensors, and a reader and writer of safetensors.

The safetensors format, a JSON header and raw numbers, is small enough to be handled here without a dependency.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.files import atomic_writer, check_file
from txl_tf.strict_json import check_record, parse_json

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LONGEST_HEADER = 100 << 20


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """Named tensors on disk.

    path: for messages.
    shapes: {name: shape}.
    read: function name -> array; reads one tensor into memory.
    """

    path: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def open_binary(path: str) -> io.BufferedReader:
    """Opens a buffered binary file for reading and seeking; local or gs://. InputError if there is none."""
    remedy = "give the file as it was published"
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path} not found: {remedy}")
    check_file(path, remedy)
    return io.BufferedReader(_Raw(path), 1 << 20)


class _Raw(io.RawIOBase):
    """tf.io.gfile as a raw file for io.BufferedReader, since GFile is slow for small reads."""

    def __init__(self, path: str):
        self._file = tf.io.gfile.GFile(path, "rb")
        self._size = self._file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self.tell(), self._size)[whence]
        self._file.seek(min(start + offset, self._size))  # GFile refuses positions after the end
        return self.tell()

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_safetensors(path: str) -> TensorFile:
    """The TensorFile of a .safetensors file.

    Raises:
        InputError: the file has another format, is cut short, or its tensors overlap or leave gaps.
    """
    file = open_binary(path)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
        raise InputError(f"{path} is not a safetensors file: the length of its header is impossible")
    start = 8 + length
    try:
        header = check_record(parse_json(file.read(length), path), path, {})
        header.pop("__metadata__", None)
        entries = {
            name: (_DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])), *map(int, entry["data_offsets"]))
            for name, entry in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} has no header of safetensors ({type(error).__name__}: {error})") from error
    end = 0
    for name, (dtype, shape, first, last) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if first != end or last - first != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
            raise InputError(f"{path} is damaged: the place of {name} does not follow from its shape; fetch it again")
        end = last
    if start + end != size:
        raise InputError(f"{path} has {size:,} bytes, not {start + end:,}: fetch it again")

    def read(name: str) -> np.ndarray:
        dtype, shape, first, last = entries[name]
        file.seek(start + first)
        return np.frombuffer(file.read(last - first), dtype).reshape(shape)

    return TensorFile(path, {name: shape for name, (_, shape, _, _) in entries.items()}, read)


def write_safetensors(
    path: str, tensors: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...], Callable[[], np.ndarray]]]
) -> None:
    """Writes a .safetensors file with the metadata that PyTorch's users expect.

    Args:
        path: local or gs://.
        tensors: {name: (dtype, shape, make)}; make() returns the array, and is called when it is written.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, _) in tensors.items():
        first, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": _NAMES[np.dtype(dtype)], "shape": list(shape), "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_writer(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for dtype, shape, make in tensors.values():
            array = make()
            if array.dtype != dtype or array.shape != tuple(shape):
                raise ValueError(f"announced {dtype} {shape}, got {array.dtype} {array.shape}")
            file.write(np.ascontiguousarray(array).tobytes())

"""Reads files of torch.save without torch, and without running code: tensors, and the tree of objects around them.

There are two formats: a zip archive with a pickle and one member per storage (since PyTorch 1.6), and before that a few
consecutive pickles, then the storages. pickles.py reads the pickles of both.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from txl_tf.data.text.archives import named_damage
from txl_tf.errors import InputError
from txl_tf.published.pickles import PickledCall, as_dict, read_pickle
from txl_tf.published.tensor_files import TensorFile, open_binary

TENSORS = (
    r"torch\._utils\._rebuild_(tensor|tensor_v2|parameter)|torch\.\w+Storage|torch\.nn\.parameter\.Parameter"
    r"|collections\.OrderedDict"
)
"""A regular expression for the names in a file of tensors."""
MODULES = (
    r"torch\.nn\.(modules|backends)\.\w+\.\w+|(__builtin__|builtins)\.set|copy_reg\._reconstructor|__builtin__\.object"
    r"|((pytorch\.)?(utils\.)?(mem_transformer|proj_adaptive_softmax|adaptive_softmax))\.\w+"
)
"""The same with the further names in a pickled model of the official code."""
MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_STORAGES = {
    "torch.DoubleStorage": "<f8",
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": ml_dtypes.bfloat16,
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "?",
}


class _Storage(NamedTuple):
    """The numbers that tensors share: their type, and the storage's name in the file."""

    dtype: np.dtype
    key: str


class _Tensor(NamedTuple):
    """A tensor's position: `shape` and `strides` in elements of the storage, from element `offset` on."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TorchFile:
    """A file that torch.save wrote; `root` is the tree of its pickle.

    InputError if it has another format, names that the regular expression `allowed` does not match, or damage.
    """

    def __init__(self, path: str, allowed: str = TENSORS):
        self.path, self._names = path, re.compile(allowed)
        self._file = open_binary(path)
        self._storages: dict[str, _Storage] = {}
        self._bytes: Callable[[str], bytes]
        if self._file.peek(2)[:2] == b"PK":
            self._read_zip()
        else:
            self._read_legacy()

    def _pickled(self, file: IO[bytes]) -> Any:
        return read_pickle(file, self._names, self.path, self._outside)

    def _outside(self, id: Any) -> Any:
        """The _Storage, or the class, that an id in the pickle stands for; None for a storage that cannot be read."""
        kind, named, *more = id
        if kind == "module":  # a class, with its source
            return named
        if kind != "storage" or named.path not in _STORAGES or (len(id) > 5 and id[5] is not None):  # [5]: a view
            return None
        key = str(more[0])
        self._storages[key] = _Storage(np.dtype(_STORAGES[named.path]), key)
        return self._storages[key]

    def _read_zip(self) -> None:
        with named_damage(self.path):
            archive = zipfile.ZipFile(self._file)
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in archive.infolist()):
                raise InputError(f"{self.path} has compressed or encrypted members: torch.save writes none")
            (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", name)]
            folder = name.removesuffix("data.pkl")
            with archive.open(name) as file:
                self.root = self._pickled(file)
            if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
                raise InputError(f"{self.path} was written on a big-endian machine: write it again on another")
        self._bytes = lambda key: archive.read(f"{folder}data/{key}")

    def _read_legacy(self) -> None:
        if self._pickled(self._file) != MAGIC or self._pickled(self._file) != _PROTOCOL:
            raise InputError(f"{self.path} is not a file of torch.save (of PyTorch 0.1.10 or newer)")
        system = self._pickled(self._file)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise InputError(f"{self.path} was written on a big-endian machine: write it again on another")
        self.root, keys, position = self._pickled(self._file), self._pickled(self._file), self._file.tell()
        if not isinstance(keys, list) or not all(str(key) in self._storages for key in keys):
            raise InputError(f"{self.path} holds a storage of a type that is not read: its size is unknown")
        places, end = {}, self._file.seek(0, io.SEEK_END)
        for key in map(str, keys):  # one storage after the other, each after its number of elements
            self._file.seek(min(position, end))
            size = int.from_bytes(self._file.read(8), "little") * self._storages[key].dtype.itemsize
            places[key] = position + 8, size
            position += 8 + size
        if position != end:
            raise InputError(f"{self.path} does not end with its last storage: fetch it again")

        def read(key: str) -> bytes:
            position, size = places.get(key, (0, 0))
            self._file.seek(position)
            return self._file.read(size)

        self._bytes = read

    def tensors(self, named: Mapping[str, object]) -> TensorFile:
        """The TensorFile of {name: node}, where each node is a tensor's."""
        found = {name: tensor for name, node in named.items() if (tensor := _tensor(node)) is not None}
        if strange := [name for name in named if name not in found]:
            raise InputError(f"{self.path}: not tensors: {', '.join(map(str, strange[:20]))}")
        shapes = {name: tensor.shape for name, tensor in found.items()}
        return TensorFile(self.path, shapes, lambda name: self._array(found[name]))

    def _array(self, tensor: _Tensor) -> np.ndarray:
        dtype, key = tensor.storage
        with named_damage(self.path):
            stored = self._bytes(key)
        data = np.frombuffer(stored[: len(stored) // dtype.itemsize * dtype.itemsize], dtype)
        last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, dtype)
        if last >= len(data):
            raise InputError(f"{self.path} is damaged: a tensor reaches beyond its storage; fetch it again")
        strides = [stride * dtype.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(data[tensor.offset :], tensor.shape, strides, writeable=False)


def state_dict(root: object) -> dict[Any, Any]:
    """{name: tensor node} of the tree of a state_dict or a pickled nn.Module; empty for other trees."""
    found = as_dict(root) or {}
    for place, state in modules(root).items():
        for group in ("_parameters", "_buffers"):
            tensors = as_dict(state.get(group)) or {}
            found |= {f"{place}{name}": node for name, node in tensors.items() if node is not None}
    return found


def modules(root: object) -> dict[str, dict[Any, Any]]:
    """The attributes {name: node} of a pickled nn.Module and of all in it: {"": .., "layers.0.": ..}; else empty."""
    found: dict[str, dict[Any, Any]] = {}
    waiting, seen = [("", root)] if isinstance(root, PickledCall) and as_dict(root) is None else [], set()
    while waiting:
        place, module = waiting.pop()
        if id(module) in seen:
            raise InputError(f"the pickled model has a module twice, one as {place}: save its state_dict() instead")
        seen.add(id(module))
        state = getattr(module, "state", None)
        found[place] = state if isinstance(state, dict) else {}
        waiting += [(f"{place}{name}.", child) for name, child in (as_dict(found[place].get("_modules")) or {}).items()]
    return found


def _tensor(node: object) -> _Tensor | None:
    while isinstance(node, PickledCall) and node.path == "torch._utils._rebuild_parameter" and node.args:
        node = node.args[0]
    if not isinstance(node, PickledCall) or not node.path.startswith("torch._utils._rebuild_tensor"):
        return None
    try:
        storage, offset, shape, strides = node.args[:4]
        numbers = (offset, *shape, *strides)
    except (ValueError, TypeError):
        return None
    fits = isinstance(storage, _Storage) and len(shape) == len(strides)
    fits = fits and all(type(number) is int and number >= 0 for number in numbers)
    return _Tensor(storage, offset, tuple(shape), tuple(strides)) if fits else None

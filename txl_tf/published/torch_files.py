"""Reads files of torch.save without torch, and without running code: tensors, and the tree of objects around them.

There are two formats: a zip archive with a pickle and one member per storage (since PyTorch 1.6), and before that a few
consecutive pickles, then the storages. pickles.py reads the pickles of both.
"""

from __future__ import annotations

import dataclasses
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from txl_tf.data.text.archives import named_damage
from txl_tf.errors import InputError
from txl_tf.published.pickles import Global, Persistent, PickledCall, as_dict, read_pickle
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


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A tensor's position: `shape` and `strides` in elements of the storage `key`, from element `offset` on."""

    dtype: np.dtype
    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_Storage = Callable[[_Tensor], bytes]


class TorchFile:
    """A file that torch.save wrote; `root` is the tree of its pickle.

    InputError if it has another format, names that the regular expression `allowed` does not match, or damage.
    """

    def __init__(self, path: str, allowed: str = TENSORS):
        self.path = path
        self._file = open_binary(path)
        names = re.compile(allowed)
        if self._file.peek(2)[:2] == b"PK":
            self.root, self._storage = self._read_zip(names)
        else:
            self.root, self._storage = self._read_legacy(names)

    def _read_zip(self, allowed: re.Pattern[str]) -> tuple[Any, _Storage]:
        with named_damage(self.path):
            archive = zipfile.ZipFile(self._file)
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in archive.infolist()):
                raise InputError(f"{self.path} has compressed or encrypted members: torch.save writes none")
            (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", name)]
            folder = name.removesuffix("data.pkl")
            with archive.open(name) as file:
                root = read_pickle(file, allowed, self.path)
            if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
                raise InputError(f"{self.path} was written on a big-endian machine: write it again on another")

        def storage(tensor: _Tensor) -> bytes:
            with named_damage(self.path):
                return archive.read(f"{folder}data/{tensor.key}")

        return root, storage

    def _read_legacy(self, allowed: re.Pattern[str]) -> tuple[Any, _Storage]:
        def read() -> Any:
            return read_pickle(self._file, allowed, self.path)

        if read() != MAGIC or read() != _PROTOCOL:
            raise InputError(f"{self.path} is not a file of torch.save (of PyTorch 0.1.10 or newer)")
        system = read()
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise InputError(f"{self.path} was written on a big-endian machine: write it again on another")
        root, keys, start = read(), read(), self._file.tell()
        places: dict[str, tuple[int, int]] = {}

        def storage(tensor: _Tensor) -> bytes:
            # Storages are consecutive, each after its number of elements; the tensors give the size of an element.
            if not places:
                position, sizes = start, {found.key: found.dtype.itemsize for found in _tensors_below(root)}
                for key in keys:
                    self._file.seek(position)
                    count = int.from_bytes(self._file.read(8), "little")
                    if key not in sizes:
                        raise InputError(f"{self.path} holds a storage that no tensor uses: its size is unknown")
                    places[key] = position + 8, count * sizes[key]
                    position += 8 + count * sizes[key]
                if position != self._file.seek(0, io.SEEK_END):
                    raise InputError(f"{self.path} does not end with its last storage: fetch it again")
            if tensor.key not in places:
                raise InputError(f"{self.path} is damaged: it has no storage {tensor.key!r}; fetch it again")
            position, size = places[tensor.key]
            self._file.seek(position)
            return self._file.read(size)

        return root, storage

    def tensors(self, named: Mapping[str, object]) -> TensorFile:
        """The TensorFile of {name: node}, where each node is a tensor's."""
        found = {name: tensor for name, node in named.items() if (tensor := _tensor(node)) is not None}
        if strange := [name for name in named if name not in found]:
            raise InputError(f"{self.path}: not tensors: {', '.join(map(str, strange[:20]))}")
        return TensorFile(
            self.path, {name: tensor.shape for name, tensor in found.items()}, lambda name: self._array(found[name])
        )

    def _array(self, tensor: _Tensor) -> np.ndarray:
        stored = self._storage(tensor)
        data = np.frombuffer(stored[: len(stored) // tensor.dtype.itemsize * tensor.dtype.itemsize], tensor.dtype)
        last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, tensor.dtype)
        if last >= len(data):
            raise InputError(f"{self.path} is damaged: a tensor reaches beyond its storage; fetch it again")
        strides = [stride * tensor.dtype.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(data[tensor.offset :], tensor.shape, strides, writeable=False)


def state_dict(root: object) -> dict[Any, Any] | None:
    """{name: tensor node} of the tree of a state_dict or a pickled nn.Module; None for other trees."""
    if isinstance(root, PickledCall) and as_dict(root) is None:
        return _module_tensors(root)
    return as_dict(root)


def attributes(node: object) -> dict[Any, Any]:
    """The attributes {name: node} of a pickled object."""
    state = node.state if isinstance(node, PickledCall) else None
    return state if isinstance(state, dict) else {}


def _module_tensors(root: object) -> dict[str, Any]:
    """The result of nn.Module.state_dict()."""
    found: dict[str, Any] = {}
    waiting, seen = [("", root)], set()
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen:
            raise InputError(f"the pickled model has a module twice, one as {prefix}: save its state_dict() instead")
        seen.add(id(module))
        state = attributes(module)
        for group in ("_parameters", "_buffers"):
            tensors = as_dict(state.get(group)) or {}
            found |= {f"{prefix}{name}": node for name, node in tensors.items() if node is not None}
        waiting += [(f"{prefix}{name}.", child) for name, child in (as_dict(state.get("_modules")) or {}).items()]
    return found


def _tensor(node: object) -> _Tensor | None:
    """The _Tensor of a node; None for other nodes."""
    while isinstance(node, PickledCall) and node.path == "torch._utils._rebuild_parameter" and node.args:
        node = node.args[0]
    if not isinstance(node, PickledCall) or not node.path.startswith("torch._utils._rebuild_tensor"):
        return None
    try:
        storage, offset, shape, strides = node.args[:4]
        kind, storage_class, key = storage.id[:3]
        dtype = np.dtype(_STORAGES[storage_class.path])
        view = storage.id[5] if len(storage.id) > 5 else None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    numbers = (offset, *shape, *strides)
    if kind != "storage" or view is not None or len(shape) != len(strides):
        return None
    if not all(type(number) is int and number >= 0 for number in numbers):
        return None
    return _Tensor(dtype, str(key), offset, tuple(shape), tuple(strides))


def _tensors_below(root: object) -> Iterator[_Tensor]:
    """Yields every _Tensor in a tree."""
    waiting: list[Any] = [root]
    seen = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (str, bytes, int, float, Global, Persistent)) or node is None or id(node) in seen:
            continue
        seen.add(id(node))
        tensor = _tensor(node)
        if tensor is not None:
            yield tensor
        elif isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, PickledCall):
            waiting.extend([*node.args, node.state, *node.items])
        else:
            waiting.extend(node)

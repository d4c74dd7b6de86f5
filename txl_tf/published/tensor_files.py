"""An interface for files of named tensors; safetensors, read and written by their own package.

The package checks headers: their length, and that the tensors cover the file without overlaps or gaps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError, one_line
from txl_tf.storage.files import check_file, write_atomically

_REMEDY = "give the file as it was published"


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """Named tensors on disk: their {name: shape}, and a function that reads one into memory; `path` is for messages."""

    path: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]

    def shape(self, name: str, of: str) -> tuple[int, ...]:
        """The shape of a tensor that every Transformer-XL `of` a format has; InputError if it is missing."""
        if name not in self.shapes:
            raise InputError(f"{self.path} has no {name}: it is not a Transformer-XL of {of}")
        return self.shapes[name]


def open_binary(path: str) -> io.BufferedReader:
    """Opens a file for reading and seeking; a remote one is copied first. InputError if there is none."""
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path} not found: {_REMEDY}")
    check_file(path, _REMEDY)
    with _local(path) as local:
        return open(local, "rb")


@contextlib.contextmanager
def _local(path: str) -> Iterator[str]:
    """The path of a file's copy on this machine, which may be deleted once it is open; a local file's own."""
    with tempfile.TemporaryDirectory() as folder:
        local = path
        if "://" in path:
            local = f"{folder}/{path.rpartition('/')[2]}"
            tf.io.gfile.copy(path, local)
        yield local


def open_safetensors(path: str) -> TensorFile:
    """The TensorFile of a .safetensors file; a remote one is copied first.

    InputError if the file has another format, is cut short, or its tensors overlap or leave gaps.
    """
    from safetensors import SafetensorError, safe_open

    check_file(path, _REMEDY)
    try:
        with _local(path) as local:
            file = safe_open(local, "np")  # maps the file, so it need not keep its name
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged, or not a safetensors file ({one_line(error)}): fetch it again") from error

    def read(name: str) -> np.ndarray:
        try:
            return file.get_tensor(name)
        except (SafetensorError, TypeError) as error:
            raise InputError(f"{path}: {name} cannot be read ({one_line(error)}): {_REMEDY}") from error

    return TensorFile(path, shapes, read)


def unwrapped(file: TensorFile) -> TensorFile:
    """The file with the names that the model itself gives, without a wrapper's prefix before all; a line says so.

    The frequencies of sinusoids are left out: they are not weights.
    """
    prefix, names = "", [name for name in file.shapes if not name.endswith("pos_emb.inv_freq")]
    while wrapper := next((one for one in _WRAPPERS if names and all(n.startswith(prefix + one) for n in names)), ""):
        prefix += wrapper
    if prefix:
        print(f"{file.path}: {prefix} stands before all names of tensors, and is left out", file=sys.stderr)
    shapes = {name.removeprefix(prefix): file.shapes[name] for name in names}
    return TensorFile(file.path, shapes, lambda name: file.read(prefix + name))


_WRAPPERS = ("module.", "_orig_mod.", "model.", "transformer.")
"""Prefixes of nn.DataParallel, torch.compile, a module that holds the model, and a tf_model.h5 without a head."""


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a .safetensors file, local or gs://, with the metadata that PyTorch's users expect."""
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    write_atomically(path, save(contiguous, {"format": "pt"}))

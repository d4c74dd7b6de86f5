"""Reads the files that Hugging Face's save_pretrained writes for any model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.files import read_record
from txl_tf.published.tensor_files import TensorFile, open_safetensors
from txl_tf.published.torch_files import TorchFile, state_dict
from txl_tf.strict_json import check_record

_REMEDY = "--source is the directory as it was published"
_TYPES = {"model_type": str, "architectures": list, "cutoffs": list, "tie_projs": list, "ff_activation": str}
"""Fields that are not settings of ours, for which `from_dict` would check the type."""


def read_config(source: str) -> tuple[dict[str, Any], str]:
    """The object in a directory's config.json, and the file's path.

    Raises:
        InputError: there is no config.json, it is not a JSON object, or one of _TYPES is of another type.
    """
    path = tf.io.gfile.join(source, "config.json")
    config = read_record(path, {}, _REMEDY)
    stated = {name: kind for name, kind in _TYPES.items() if config.get(name) is not None}
    return check_record(config, path, stated, _REMEDY), path


def open_tensors(source: str) -> TensorFile:
    """The TensorFile of a directory's model.safetensors or pytorch_model.bin.

    Raises:
        InputError: neither file exists, or the file is damaged.
    """
    safe, pickled = (tf.io.gfile.join(source, name) for name in ("model.safetensors", "pytorch_model.bin"))
    if tf.io.gfile.exists(safe):
        return open_safetensors(safe)
    if tf.io.gfile.exists(pickled):
        torch_file = TorchFile(pickled)
        return torch_file.tensors(state_dict(torch_file.root) or {})
    raise InputError(f"{source} has neither model.safetensors nor pytorch_model.bin")

"""Reads the files that Hugging Face's save_pretrained writes for any model.

The weights are in one file, or in several that an index lists by tensor ("shards").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError, one_line
from txl_tf.published.tensor_files import TensorFile, open_binary, open_safetensors, unwrapped
from txl_tf.published.torch_files import TorchFile, state_dict
from txl_tf.published.vocabularies import VOCABULARIES
from txl_tf.storage.files import one_level_down, read_record
from txl_tf.storage.literal_paths import listed
from txl_tf.storage.strict_json import check_record

MODEL_TYPES = ("transfo-xl", "xlnet")
"""The values of model_type in config.json whose models are imported."""
_REMEDY = "--source is the directory as published"
_TYPES: dict[str, type] = dict.fromkeys(("model_type", "ff_activation", "problem_type"), str)
_TYPES |= dict.fromkeys(("architectures", "cutoffs", "tie_projs"), list)
"""Types of fields that are not settings of ours; `from_dict` checks the types of those."""


def read_config(source: str) -> tuple[dict[str, Any], str]:
    """The object in a directory's config.json, and the file's path.

    InputError if there is no config.json, it is not a JSON object, or one of _TYPES has another type.
    """
    path = tf.io.gfile.join(source, "config.json")
    if not tf.io.gfile.exists(path) and (below := one_level_down(source, "config.json")):
        raise InputError(f"{source} has no config.json, but {below} has: give that")
    config = read_record(path, {}, _REMEDY)
    stated = {name: kind for name, kind in _TYPES.items() if config.get(name) is not None}
    return check_record(config, path, stated, _REMEDY), path


def model_type(source: str) -> str:
    """The model_type in a directory's config.json, "" if it has none. InputError as `read_config`, or for a model that
    is not imported."""
    found = read_config(source)[0].get("model_type") or ""
    if found and found not in MODEL_TYPES:
        raise InputError(
            f"{source} is of model_type {found!r}: only {' and '.join(MODEL_TYPES)} (Transformer-XL, XLNet) are read"
        )
    return found


def has_tensors(source: str) -> bool:
    """Whether a directory has a file that `open_tensors` would read."""
    return any(_weights(_in(source)))


def needed(names: Sequence[str], where: str) -> list[str]:
    """The paths that are read, among those of all files of a published model; config.json first.

    InputError if there is no config.json, or no weights; `where` is the model.
    """
    kind, file = next(_weights(names.__contains__), ("", ""))
    weights = [file] if file else []
    if file.endswith(".index.json"):
        stem, _, ending = kind.rpartition(".")
        shard = re.compile(rf"{re.escape(stem)}-\d+-of-\d+\.{ending}")
        weights += filter(shard.fullmatch, names)
    if "config.json" not in names:
        raise InputError(f"{where} has no config.json")
    if not weights:
        raise InputError(f"{where} has none of {', '.join(_OPENERS)}")
    found = [next((name for name in known if name in names), "") for _, known in VOCABULARIES.values()]
    beside = ("tokenizer_config.json", "added_tokens.json") if any(found) else ("tokenizer.json",)
    return ["config.json", *filter(None, found), *(name for name in beside if name in names), *weights]


def open_tensors(source: str) -> TensorFile:
    """The TensorFile of a directory's model.safetensors, pytorch_model.bin or tf_model.h5, or of the shards of one.

    InputError if no such file exists, or one is damaged; or the shards are not those of their index.
    """
    kind, name = next(_weights(_in(source)), ("", ""))
    if not name:
        raise InputError(f"{source} has none of {', '.join(_OPENERS)}{_hint(source)}")
    opener, path = _OPENERS[kind], tf.io.gfile.join(source, name)
    return unwrapped(_open_shards(source, path, opener) if path.endswith(".index.json") else opener(path))


def _weights(exists: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The kinds of files with the weights, and the names of those that exist, or of the indices of their shards."""
    for kind in _OPENERS:
        yield from ((kind, name) for name in (kind, f"{kind}.index.json") if exists(name))


def _in(source: str) -> Callable[[str], bool]:
    return lambda name: tf.io.gfile.exists(tf.io.gfile.join(source, name))


def _open_torch(path: str) -> TensorFile:
    file = TorchFile(path)
    return file.tensors(state_dict(file.root))


_TRANSPOSED = re.compile(r"/kernel:0$|/(emb|out)_projs_._\d+:0$")
_PATH = re.compile(
    r"\w+/(?:\w+/)?((?:transformer|lm_loss|sequence_summary|logits_proj|classifier|qa_outputs|crit|score)/.+):0"
)
"""The group of a part of the model, the model's name, and the path of a weight in the model."""
_ENDINGS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def _open_h5(path: str) -> TensorFile:
    """The TensorFile of a .h5 file; kernels and projections are transposed, as in torch.

    InputError if the file is damaged or holds something else.
    """
    binary = open_binary(path)
    try:
        file = h5py.File(binary, "r")
        found: dict[str, h5py.Dataset] = {}
        file.visititems(lambda name, node: found.update({name: node}) if isinstance(node, h5py.Dataset) else None)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{path} is damaged, or not an HDF5 file ({one_line(error)}): fetch it again") from error
    tensors = {_name(name): (name, node) for name, node in found.items() if _PATH.fullmatch(name)}
    if not tensors:
        raise InputError(f"{path} holds no weights of a model of Hugging Face: give tf_model.h5 as it was saved")
    shapes = {
        ours: node.shape[::-1] if _TRANSPOSED.search(theirs) else node.shape for ours, (theirs, node) in tensors.items()
    }

    def read(name: str) -> np.ndarray:
        theirs, node = tensors[name]
        try:
            array = node[()]
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{path}: {theirs} cannot be read ({one_line(error)}): fetch the file again") from error
        return array.T if _TRANSPOSED.search(theirs) else array

    return TensorFile(path, shapes, read)


def _name(name: str) -> str:
    """transformer.layer.0.ff.layer_1.weight of transformer/tfxl_net_model/transformer/layer_._0/ff/layer_1/kernel:0.

    A tensor that two layers share has one name, but two paths.
    """
    *parts, last = _PATH.fullmatch(name)[1].replace("_._", "/").split("/")  # type: ignore[index]
    return ".".join([*parts, _ENDINGS.get(last, last)])


_OPENERS: dict[str, Callable[[str], TensorFile]] = {
    "model.safetensors": open_safetensors,
    "pytorch_model.bin": _open_torch,
    "tf_model.h5": _open_h5,
}
"""Functions by the name of the file with the weights; the first that exists is read."""


def _open_shards(source: str, index: str, opener: Callable[[str], TensorFile]) -> TensorFile:
    """The tensors of the files that an index names as one TensorFile."""
    places = read_record(index, {"weight_map": dict}, _REMEDY)["weight_map"]
    names = sorted({str(name) for name in places.values()})
    if not names or any(not name or "/" in name or "\\" in name for name in names):
        raise InputError(f"{index}: weight_map must name files of its own directory: {_REMEDY}")
    if missing := [name for name in names if not tf.io.gfile.exists(tf.io.gfile.join(source, name))]:
        raise InputError(f"{index} names missing files, {', '.join(missing)}: copy them there")
    files = {name: opener(tf.io.gfile.join(source, name)) for name in names}
    shapes = {}
    for tensor, name in places.items():
        if tensor not in files[name].shapes:
            raise InputError(f"{index} looks for {tensor} in {name}, which does not have it: {_REMEDY}")
        shapes[tensor] = files[name].shapes[tensor]
    if unlisted := sorted({tensor for file in files.values() for tensor in file.shapes} - set(shapes)):
        raise InputError(f"{index} does not list {unlisted[0]}, which one of its files has: {_REMEDY}")
    return TensorFile(index, shapes, lambda tensor: files[places[tensor]].read(tensor))


def _hint(source: str) -> str:
    """How to use other files that a directory has in place of the weights; "" if there are none."""
    names = listed(source) if tf.io.gfile.isdir(source) else []
    names = sorted(name for name in names if not name.startswith("."))
    for ending, wanted in ((".safetensors", "model.safetensors"), (".bin", "pytorch_model.bin")):
        found = [name for name in names if name.endswith(ending) and name not in _OTHER]
        if len(found) == 1:
            return f": if {found[0]} holds its weights, rename it to {wanted}"
    return ""


_OTHER = ("training_args.bin", "optimizer.bin", "scheduler.bin", "vocab.bin")
"""Files with such endings that hold no weights."""

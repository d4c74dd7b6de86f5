"""Reads tf_model.h5, as Hugging Face's TensorFlow classes saved their weights, with the names that torch's have."""

from __future__ import annotations

import re

import h5py
import numpy as np

from txl_tf.errors import InputError, one_line
from txl_tf.published.tensor_files import TensorFile, open_binary

_TRANSPOSED = re.compile(r"/kernel:0$|/(emb|out)_projs_._\d+:0$")
_PATH = re.compile(
    r"\w+/(?:\w+/)?((?:transformer|lm_loss|sequence_summary|logits_proj|classifier|qa_outputs|crit|score)/.+):0"
)
"""The group of a part of the model, the model's name, and the path of a weight in the model."""

_ENDINGS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def open_h5(path: str) -> TensorFile:
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

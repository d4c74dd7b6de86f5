"""Imports checkpoints of the official XLNet code (zihangdai/xlnet), pretrained and fine-tuned.

Conventions of that code: memory starts with zero vectors that are attended to, layer norm adds 1e-12, and "gelu" is its
approximation by tanh.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import zipfile
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.text.archives import is_of_a_mac, named_damage
from txl_tf.errors import InputError
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.published import official_tf
from txl_tf.published.kinds import XLNETS
from txl_tf.published.layout import Checkpoint, TensorEntry, naming_source, require_agreement
from txl_tf.published.tensor_files import TensorFile, open_binary
from txl_tf.storage.files import read_json
from txl_tf.storage.literal_paths import files_named

CONVENTIONS = {"mem_init": "zeros", "layer_norm_epsilon": 1e-12}
CONFIG = "xlnet_config.json"
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
_FIELDS = {"n_token": "vocab_size"} | {
    name: name for name in ("d_head", "d_inner", "d_model", "n_head", "n_layer", "untie_r")
}
_NO_WEIGHT = re.compile(r".*/(Adam(_1)?|adam_[mv])|(.*/)?(beta[12]_power|global_step)")
_PUBLISHED = re.compile(r"xlnet_config\.json|spiece\.model|[^/]*\.ckpt[^/]*\.(index|data-\d+-of-\d+)")
_TASK = re.compile(r"model/(classification|regression)_(?P<scope>[^/]+)/logit/kernel")
_SUMMARY = "model/sequnece_summary"  # the official code's spelling


def _unpacked(path: str) -> tempfile.TemporaryDirectory:
    """The required files of a zip, in a temporary folder that is deleted together with this object."""
    with open_binary(path) as file, named_damage(path):
        archive = zipfile.ZipFile(file)
        members = [
            name
            for name in archive.namelist()
            if _PUBLISHED.fullmatch(name.rpartition("/")[2]) and not is_of_a_mac(name)
        ]
        names = [name.rpartition("/")[2] for name in members]
        if len(set(names)) != len(names):
            raise InputError(f"{path} holds several models: unpack it, and give the directory of one")
        if CONFIG not in names or not any(name.endswith(".index") for name in names):
            raise InputError(f"{path} is not an XLNet as published: it has no checkpoint, or no {CONFIG}")
        folder = tempfile.TemporaryDirectory(prefix="xlnet")
        for member, name in zip(members, names, strict=True):
            with archive.open(member) as packed, open(f"{folder.name}/{name}", "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        return folder


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a published zip, in an unpacked directory, or at a prefix (xlnet_model.ckpt).

    xlnet_config.json must be in the same directory as the checkpoint's files.

    Raises:
        InputError: there is no checkpoint or no settings; they are damaged or contradict each other; or `XLNet` does
            not support the model.
    """
    unpacked = _unpacked(source) if source.endswith(".zip") else None
    with naming_source(source, unpacked.name if unpacked else ""):
        return _opened(source, unpacked)


def _opened(source: str, unpacked: tempfile.TemporaryDirectory | None) -> Checkpoint:
    """The Checkpoint; messages may name the folder with the unpacked files."""
    file = official_tf.open_tensors(_folder(unpacked.name if unpacked else source), _NO_WEIGHT)
    folder = file.path.rpartition("/")[0]
    if unpacked:
        read_unpacked = file.read

        def read(name: str) -> np.ndarray:
            with naming_source(source, unpacked.name):  # also keeps the folder from being deleted
                return read_unpacked(name)

        file = TensorFile(source, file.shapes, read)
    if "model/transformer/word_embedding/lookup_table" not in file.shapes:
        other = "transformer/r_w_bias" in file.shapes
        raise InputError(
            f"{source} is {'a Transformer-XL: give --format=official_tf' if other else 'no XLNet of the official code'}"
        )
    config, where = _read_config(folder)
    architecture = {ours: config[theirs] for theirs, ours in _FIELDS.items()}
    inferred = _inferred(file)
    stated = {theirs: config[theirs] for theirs in _FIELDS}
    require_agreement(stated, {theirs: inferred[ours] for theirs, ours in _FIELDS.items() if ours in inferred}, where)
    task, head, scope = _head(file)
    architecture |= head | {"activation": ACTIVATIONS[config["ff_activation"]]}
    own_layout = functools.partial(layout, scope=scope)
    kept, folder = (unpacked.name + "/", unpacked.name) if unpacked else (source, "")
    return Checkpoint(file, architecture, CONVENTIONS, {}, own_layout, XLNETS[task], kept, unpacked=folder)


def _folder(source: str) -> str:
    """The source, or the only directory in it that has the checkpoint, as in an unpacked zip."""
    if not tf.io.gfile.isdir(source) or official_tf.own_files(source, "*.index"):
        return source
    inner = [folder for folder in files_named(source, "*") if official_tf.own_files(folder, "*.index")]
    return inner[0] if len(inner) == 1 else source


def _read_config(folder: str) -> tuple[dict[str, Any], str]:
    """The object in xlnet_config.json, checked to have all fields and no unknown ones; and its path."""
    where = tf.io.gfile.join(folder, CONFIG)
    config = read_json(where, "it was published with the checkpoint; for a fine-tuned model copy it there")
    names = {*_FIELDS, "ff_activation"}
    if not isinstance(config, dict) or set(config) != names:
        found = set(config) if isinstance(config, dict) else set()
        raise InputError(
            f"{where} is not as XLNet's code writes it: it lacks {sorted(names - found)}, and has "
            f"{sorted(found - names)}, which is not known"
        )
    wrong = [name for name in _FIELDS if type(config[name]) is not (bool if name == "untie_r" else int)]
    if wrong or config["ff_activation"] not in ACTIVATIONS:
        raise InputError(
            f"{where}: {(wrong or ['ff_activation'])[0]} is {config[(wrong or ['ff_activation'])[0]]!r}; numbers must "
            f"be integers, untie_r true or false, and ff_activation one of {', '.join(ACTIVATIONS)}"
        )
    return config, where


def _inferred(file: TensorFile) -> dict[str, Any]:
    """The fields of XLNetConfig that follow from the shapes, except those whose tensor is missing."""
    shapes, found = file.shapes, {}
    found["vocab_size"], found["d_model"] = shapes["model/transformer/word_embedding/lookup_table"]
    if bias := shapes.get("model/transformer/r_w_bias"):
        found |= {"untie_r": len(bias) == 3, "n_head": bias[-2], "d_head": bias[-1]}
    if table := shapes.get("model/transformer/seg_embed"):
        found["n_layer"] = table[0]
    if inner := shapes.get("model/transformer/layer_0/ff/layer_1/bias"):
        found["d_inner"] = inner[0]
    return found


def _head(file: TensorFile) -> tuple[str, dict[str, Any], str]:
    """The task, the fields of the head's settings that follow from the tensors, and the scope of its logits."""
    shapes = file.shapes
    if "start_logits/dense/kernel" in shapes:
        return "answering", {}, ""
    scopes = [name.removesuffix("/kernel") for name in shapes if _TASK.fullmatch(name)]
    if "logits/dense/kernel" in shapes:  # from the official run_race.py
        scopes.append("logits/dense")
    if not scopes:
        return "permutation_lm", {}, ""
    if len(scopes) > 1:
        raise InputError(f"{file.path} has several heads, {', '.join(scopes)}: only one is imported")
    scope = scopes[0]
    task = "multiple_choice" if scope == "logits/dense" else scope.split("/")[1].partition("_")[0]
    found: dict[str, Any] = {"n_class": shapes[f"{scope}/kernel"][-1]}
    found["summary_use_proj"] = f"{_SUMMARY}/summary/kernel" in shapes
    if f"{_SUMMARY}/summary_bias" in shapes:
        found["summary_type"] = "attn"
    return task, found, scope


def layout(config: XLNetConfig, weights: Collection[str], scope: str = "") -> list[TensorEntry]:
    """The checkpoint's tensors for an XLNetConfig; some of the paths in `weights` exist only in some models.

    `scope` is that of the logits of a classifier, a regressor or a multiple-choice model.
    """
    d_model, heads, names = config.d_model, (config.n_head, config.d_head), set(weights)
    layers, found = range(config.n_layer), []

    def add(name: str, shape: tuple[int, ...], *ours: str, **how: Any) -> None:
        if ours[0] in names:
            found.append(TensorEntry(name, tuple(shape), ours, **how))

    def dense(name: str, rows: int, columns: int, ours: str, bias: bool = True) -> None:
        add(f"{name}/kernel", (rows, columns), f"{ours}/kernel")
        if bias:
            add(f"{name}/bias", (columns,), f"{ours}/bias")

    def norm(name: str, ours: str) -> None:
        for part in ("gamma", "beta"):
            add(f"{name}/LayerNorm/{part}", (d_model,), f"{ours}/{part}")

    def attention(name: str, ours: str, parts: dict[str, str]) -> None:
        for theirs, part in parts.items():
            add(f"{name}/{theirs}/kernel", (d_model, *heads), f"{ours}/{part}_kernel")
        add(f"{name}/o/kernel", (d_model, *heads), f"{ours}/output_kernel", order=(1, 2, 0))

    body = "model/transformer"
    add(f"{body}/word_embedding/lookup_table", (config.vocab_size, d_model), "embedding/table_0")
    add(f"{body}/mask_emb/mask_emb", (1, 1, d_model), "mask_embedding", optional=True)
    for theirs, ours in (("r_w", "content"), ("r_r", "position"), ("r_s", "segment")):
        if config.untie_r:
            add(
                f"{body}/{theirs}_bias", (config.n_layer, *heads), *(f"layer_{i}/attention/{ours}_bias" for i in layers)
            )
        else:
            add(f"{body}/{theirs}_bias", heads, f"{ours}_bias")
    add(f"{body}/seg_embed", (config.n_layer, 2, *heads), *(f"layer_{i}/attention/segment_table" for i in layers))
    projections = {"q": "query", "k": "key", "v": "value"}
    for i in layers:
        layer = f"{body}/layer_{i}"
        attention(f"{layer}/rel_attn", f"layer_{i}/attention", projections | {"r": "position"})
        norm(f"{layer}/rel_attn", f"layer_{i}/attention_norm")
        dense(f"{layer}/ff/layer_1", d_model, config.d_inner, f"layer_{i}/feed_forward/inner")
        dense(f"{layer}/ff/layer_2", config.d_inner, d_model, f"layer_{i}/feed_forward/outer")
        norm(f"{layer}/ff", f"layer_{i}/feed_forward_norm")
    add("model/lm_loss/bias", (config.vocab_size,), "softmax/bias_0", optional=True)

    add(f"{_SUMMARY}/summary_bias", (d_model,), "head/summary/query")
    attention(f"{_SUMMARY}/abs_attn", "head/summary/attention", projections)
    norm(f"{_SUMMARY}/abs_attn", "head/summary/attention_norm")
    dense(f"{_SUMMARY}/summary", d_model, d_model, "head/summary/projection")
    dense(scope, d_model, getattr(config, "n_class", 1), "head/logits")
    dense("start_logits/dense", d_model, 1, "head/start")
    dense("end_logits/dense_0", 2 * d_model, d_model, "head/end_inner")
    norm("end_logits", "head/end_norm")
    dense("end_logits/dense_1", d_model, 1, "head/end_outer")
    dense("answer_class/dense_0", 2 * d_model, d_model, "head/impossible_inner")
    dense("answer_class/dense_1", d_model, 1, "head/impossible_outer", bias=False)
    return found

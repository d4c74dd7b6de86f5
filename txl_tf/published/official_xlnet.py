"""Imports checkpoints of the official XLNet code (zihangdai/xlnet), pretrained and fine-tuned.

Conventions of that code: memory starts with zero vectors that are attended to, layer norm adds 1e-12, and "gelu" is its
approximation by tanh.
"""

from __future__ import annotations

import dataclasses
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
from txl_tf.published import hub_models, official_tf
from txl_tf.published.layout import Checkpoint, Entries, TensorEntry, naming_source, require_agreement, xlnet_run
from txl_tf.published.tensor_files import TensorFile, open_binary
from txl_tf.storage.files import read_record
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
BIASES = {"r_w_bias": "content_bias", "r_r_bias": "position_bias", "r_s_bias": "segment_bias"}
_PARTS = {"q": "query", "k": "key", "v": "value", "r": "position"}
_SUMMARY = "model/sequnece_summary"  # the official code's spelling


def _unpacked(path: str) -> tempfile.TemporaryDirectory:
    """The required files of a zip, in a temporary folder that is deleted together with this object."""
    with open_binary(path) as file, named_damage(path):
        archive = zipfile.ZipFile(file)
        members = [(name, name.rpartition("/")[2]) for name in archive.namelist() if not is_of_a_mac(name)]
        members = [(name, last) for name, last in members if _PUBLISHED.fullmatch(last)]
        names = [last for _, last in members]
        if len(set(names)) != len(names):
            raise InputError(f"{path} holds several models: unpack it, and give the directory of one")
        if CONFIG not in names or not any(name.endswith(".index") for name in names):
            raise InputError(f"{path} is not an XLNet as published: it has no checkpoint, or no {CONFIG}")
        folder = tempfile.TemporaryDirectory(prefix="xlnet")
        for member, name in members:
            with archive.open(member) as packed, open(f"{folder.name}/{name}", "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        return folder


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a published zip, also by its name, in an unpacked directory, or at a prefix (xlnet_model.ckpt).

    xlnet_config.json must be in the same directory as the checkpoint's files. InputError if there is no checkpoint or
    no settings, they are damaged or contradict each other, or `XLNet` does not support the model.
    """
    source = hub_models.local(source)
    if not source.endswith(".zip"):
        return _opened(source)
    unpacked = _unpacked(source)
    with naming_source(source, unpacked.name):
        found = _opened(unpacked.name)

    def read(name: str) -> np.ndarray:
        with naming_source(source, unpacked.name):  # also keeps the folder from being deleted
            return found.file.read(name)

    file = TensorFile(source, found.file.shapes, read)
    return dataclasses.replace(found, file=file, source=unpacked.name + "/", unpacked=unpacked.name)


def _opened(source: str) -> Checkpoint:
    is_folder = tf.io.gfile.isdir(source) and not official_tf.own_files(source, "*.index")
    inner = files_named(source, "*") if is_folder else []  # an unpacked zip has one folder, with the checkpoint
    inner = [folder for folder in inner if official_tf.own_files(folder, "*.index")]
    file = official_tf.open_tensors(inner[0] if len(inner) == 1 else source, _NO_WEIGHT)
    folder = file.path.rpartition("/")[0]
    if "model/transformer/word_embedding/lookup_table" not in file.shapes:
        other = "transformer/r_w_bias" in file.shapes
        raise InputError(
            f"{source} is {'a Transformer-XL: give --format=official_tf' if other else 'no XLNet of the official code'}"
        )
    config, where = _read_config(folder)
    architecture = {ours: config[theirs] for theirs, ours in _FIELDS.items()}
    require_agreement(config, _inferred(file), where)
    task, head, scope = _head(file)
    architecture |= head | {"activation": ACTIVATIONS[config["ff_activation"]]}
    own_layout = functools.partial(layout, scope=scope)
    return Checkpoint(file, architecture, CONVENTIONS, {}, own_layout, xlnet_run(task), source, "text")


def _read_config(folder: str) -> tuple[dict[str, Any], str]:
    """The object in xlnet_config.json, checked to have all fields and no unknown ones; and its path."""
    where = tf.io.gfile.join(folder, CONFIG)
    remedy = "it was published with the checkpoint; for a fine-tuned model copy it there"
    config, names = read_record(where, {}, remedy), {*_FIELDS, "ff_activation"}
    if found := names ^ config.keys():
        lacking, unknown = sorted(found & names), sorted(found - names)
        raise InputError(
            f"{where} is not as XLNet's code writes it: it lacks {lacking}, and has {unknown}, which is not known"
        )
    wrong = [name for name in _FIELDS if type(config[name]) is not (bool if name == "untie_r" else int)]
    wrong += ["ff_activation"] if config["ff_activation"] not in ACTIVATIONS else []
    if wrong:
        raise InputError(
            f"{where}: {wrong[0]} is {config[wrong[0]]!r}; numbers must be integers, untie_r true or false, and "
            f"ff_activation one of {', '.join(ACTIVATIONS)}"
        )
    return config, where


def _inferred(file: TensorFile) -> dict[str, Any]:
    """The fields of xlnet_config.json that follow from the shapes, except those whose tensor is missing."""
    shapes, found = file.shapes, {}
    found["n_token"], found["d_model"] = shapes["model/transformer/word_embedding/lookup_table"]
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
    d_model, n_layer, heads = config.d_model, config.n_layer, (config.n_head, config.d_head)
    entries, body = Entries(weights), "model/transformer"
    entries.add(f"{body}/word_embedding/lookup_table", (config.vocab_size, d_model), "embedding/table_0")
    entries.add(f"{body}/mask_emb/mask_emb", (1, 1, d_model), "mask_embedding", optional=True)
    for theirs, ours in BIASES.items():
        entries.add(f"{body}/{theirs}", (n_layer, *heads), *(f"layer_{i}/attention/{ours}" for i in range(n_layer)))
        entries.add(f"{body}/{theirs}", heads, ours)
    tables = [f"layer_{i}/attention/segment_table" for i in range(n_layer)]
    entries.add(f"{body}/seg_embed", (n_layer, 2, *heads), *tables)
    for i in range(n_layer):
        add_layer(entries, config, i, f"{body}/layer_{i}", "{}/kernel", "LayerNorm")
    entries.add("model/lm_loss/bias", (config.vocab_size,), "softmax/bias_0", optional=True)

    entries.add(f"{_SUMMARY}/summary_bias", (d_model,), "head/summary/query")
    _add_attention(entries, config, f"{_SUMMARY}/abs_attn/{{}}/kernel", "head/summary/attention", "qkv")
    entries.norm(f"{_SUMMARY}/abs_attn/LayerNorm", d_model, "head/summary/attention_norm")
    entries.dense(f"{_SUMMARY}/summary", d_model, d_model, "head/summary/projection")
    entries.dense(scope, d_model, getattr(config, "n_class", 1), "head/logits")
    add_answers(entries, d_model)
    return entries.found


def add_layer(entries: Entries, config: XLNetConfig, i: int, theirs: str, kernel: str, norm: str) -> None:
    """Adds layer i without its biases: in `theirs` with names such as kernel="{}/kernel", norm="LayerNorm"."""
    d_model, d_inner, ours = config.d_model, config.d_inner, f"layer_{i}"
    _add_attention(entries, config, f"{theirs}/rel_attn/{kernel}", f"{ours}/attention", "qkvr")
    entries.norm(f"{theirs}/rel_attn/{norm}", d_model, f"{ours}/attention_norm")
    entries.dense(f"{theirs}/ff/layer_1", d_model, d_inner, f"{ours}/feed_forward/inner")
    entries.dense(f"{theirs}/ff/layer_2", d_inner, d_model, f"{ours}/feed_forward/outer")
    entries.norm(f"{theirs}/ff/{norm}", d_model, f"{ours}/feed_forward_norm")


def _add_attention(entries: Entries, config: XLNetConfig, kernel: str, ours: str, parts: str) -> None:
    """Adds kernels [D, H, d]; that of the output has D first, too."""
    shape = (config.d_model, config.n_head, config.d_head)
    for part in parts:
        entries.add(kernel.format(part), shape, f"{ours}/{_PARTS[part]}_kernel")
    entries.add(kernel.format("o"), shape, f"{ours}/output_kernel", order=(1, 2, 0))


def add_answers(entries: Entries, d_model: int) -> None:
    """Adds the head for answers."""
    entries.dense("start_logits/dense", d_model, 1, "head/start")
    entries.dense("end_logits/dense_0", 2 * d_model, d_model, "head/end_inner")
    entries.norm("end_logits/LayerNorm", d_model, "head/end_norm")
    entries.dense("end_logits/dense_1", d_model, 1, "head/end_outer")
    entries.dense("answer_class/dense_0", 2 * d_model, d_model, "head/impossible_inner")
    entries.dense("answer_class/dense_1", d_model, 1, "head/impossible_outer", bias=False)

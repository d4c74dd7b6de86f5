"""Imports checkpoints of the official TensorFlow 1 code (kimiyoung/transformer-xl, tf/model.py).

Conventions of that code: empty memory is zero vectors that are attended to, with `same_length` a query sees mem_len + 1
keys, layer norm adds 1e-12, and the head has its cluster entries in the order of the clusters.
"""

from __future__ import annotations

import functools
import glob
import itertools
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.text.archives import is_of_a_mac
from txl_tf.errors import InputError, one_line
from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.published.layout import Checkpoint, Entries, TensorEntry
from txl_tf.published.tensor_files import TensorFile
from txl_tf.storage.files import check_checkpoint
from txl_tf.storage.literal_paths import checkpoint_reader, files_named

CONVENTIONS = {"mem_init": "zeros", "same_length_window": "tf", "layer_norm_epsilon": 1e-12}
_NO_WEIGHT = re.compile(r".*/Adam(_1)?|beta[12]_power|global_step")
_EMBEDDING, _SOFTMAX = "transformer/adaptive_embed", "transformer/adaptive_softmax"


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint at a prefix (model.ckpt-0) or in a directory, without Adam's slots; or InputError."""
    file = open_tensors(source, _NO_WEIGHT)
    if "model/transformer/word_embedding/lookup_table" in file.shapes:
        raise InputError(f"{source} is an XLNet: give --format=official_xlnet")
    return Checkpoint(file, _architecture(file), CONVENTIONS, {}, layout, TransformerXLRunConfig, source)


def open_tensors(source: str, no_weight: re.Pattern[str]) -> TensorFile:
    """The TensorFile of a TensorFlow 1 checkpoint, without the variables whose names match `no_weight`.

    `source` is its prefix, one of its files, or a directory that has only this one. InputError if it is missing or
    damaged.
    """
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", source)
    if tf.io.gfile.isdir(source):  # not by its `checkpoint` file, which may hold another machine's path
        found = own_files(source, "*.index")
        if len(found) != 1:
            raise InputError(f"{source} holds {len(found)} TensorFlow checkpoints: give one as .../model.ckpt-STEP")
        prefix = found[0].removesuffix(".index")
    if not tf.io.gfile.exists(prefix + ".index"):
        raise InputError(f"{source} is not a TensorFlow checkpoint: give its directory, or the part before .index")
    _refuse_other_data(prefix)
    check_checkpoint(prefix)
    try:
        reader = checkpoint_reader(prefix)
        stored = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(f"{prefix} cannot be read: {one_line(error)}") from error

    def read(name: str) -> np.ndarray:
        try:
            return reader.get_tensor(name)
        except (tf.errors.OpError, IndexError) as error:  # IndexError: the file is too short
            raise InputError(f"{prefix} is damaged: {one_line(error)}; copy the checkpoint again") from error

    shapes = {name: tuple(shape) for name, shape in stored.items() if not no_weight.fullmatch(name)}
    return TensorFile(prefix, shapes, read)


def own_files(folder: str, pattern: str) -> list[str]:
    """`files_named` without files that macOS adds."""
    return [path for path in files_named(folder, pattern) if not is_of_a_mac(path.rpartition("/")[2])]


def _refuse_other_data(prefix: str) -> None:
    """Raises InputError for a missing data file, which may be there under another name."""
    folder, _, name = prefix.rpartition("/")
    folder = folder or "."
    if files_named(folder, glob.escape(name) + ".data-*-of-*"):
        return
    wanted, others = f"{name}.data-00000-of-00001", own_files(folder, "*data-*-of-*")
    if len(others) == 1:
        raise InputError(f"{prefix}.index has no {wanted} next to it: if {others[0]} is this file, rename it")
    raise InputError(f"{prefix}.index has no {wanted} next to it, which holds the weights: copy it there, too")


def _architecture(file: TensorFile) -> dict[str, Any]:
    """The fields of TransformerXLConfig that follow from the shapes; InputError if a needed tensor is missing."""
    shapes, shape = file.shapes, functools.partial(file.shape, of="the official TensorFlow code")
    bias = shape("transformer/r_w_bias")
    d_inner, d_model = shape("transformer/layer_0/ff/layer_2/kernel")
    clusters = next(n for n in itertools.count() if f"{_SOFTMAX}/cutoff_{n}/b" not in shapes)
    ends = [sum(shape(f"{_SOFTMAX}/cutoff_{i}/b")[0] for i in range(n + 1)) for n in range(clusters)]
    found = {
        "n_layer": next(n for n in itertools.count() if f"transformer/layer_{n}/ff/layer_2/kernel" not in shapes),
        "d_model": d_model,
        "d_inner": d_inner,
        "n_head": bias[-2],
        "d_head": bias[-1],
        "untie_r": len(bias) == 3,
        "cutoffs": tuple(ends[:-1]),
    }
    if f"{_EMBEDDING}/lookup_table" in shapes:
        vocab_size, d_embed = shape(f"{_EMBEDDING}/lookup_table")
        found |= {"vocab_size": vocab_size, "d_embed": d_embed, "div_val": 1}
        projected = d_embed != d_model
    else:
        tables = [shape(f"{_EMBEDDING}/cutoff_{i}/lookup_table") for i in range(max(clusters, 2))]
        found |= {"vocab_size": sum(rows for rows, _ in tables), "d_embed": tables[0][1]}
        found["div_val"] = tables[0][1] // tables[1][1]
        if tables[0][1] == d_model:
            found["proj_same_dim"] = f"{_EMBEDDING}/cutoff_0/proj_W" in shapes
        projected = True
    if clusters and projected:
        found["proj_share_all_but_first"] = f"{_SOFTMAX}/cutoff_1/proj" not in shapes
    return found


def layout(config: TransformerXLConfig, weights: Collection[str]) -> list[TensorEntry]:
    """The checkpoint's tensors for a TransformerXLConfig; some of the paths in `weights` are only in some models."""
    d_model, heads = config.d_model, (config.n_head, config.d_head)
    entries, bounds = Entries(weights), (0, *config.cutoffs, config.vocab_size)
    rows = [end - start for start, end in itertools.pairwise(bounds)]
    sizes = [(count, config.d_embed // config.div_val**i) for i, count in enumerate(rows)]
    one_table = config.div_val == 1 or not config.cutoffs
    for i, (count, columns) in enumerate([(config.vocab_size, config.d_embed)] if one_table else sizes):
        folder = _EMBEDDING if one_table else f"{_EMBEDDING}/cutoff_{i}"
        entries.add(f"{folder}/lookup_table", (count, columns), f"embedding/table_{i}")
        entries.add(f"{folder}/proj_W", (columns, d_model), f"embedding/projection_{i}")
    for i, (count, columns) in enumerate(sizes):
        folder = f"{_SOFTMAX}/cutoff_{i}" if config.cutoffs else _SOFTMAX
        entries.add(f"{folder}/b" if config.cutoffs else f"{folder}/bias", (count,), f"softmax/bias_{i}")
        entries.add(f"{folder}/proj", (columns, d_model), f"softmax/projection_{i}")
    entries.add(f"{_SOFTMAX}/cutoff_0/cluster_W", (len(sizes) - 1, config.d_embed), "softmax/cluster_table")
    entries.add(f"{_SOFTMAX}/cutoff_0/cluster_b", (len(sizes) - 1,), "softmax/cluster_bias")
    for theirs, ours in (("r_w_bias", "content_bias"), ("r_r_bias", "position_bias")):
        in_layers = [f"layer_{n}/attention/{ours}" for n in range(config.n_layer)]
        entries.add(f"transformer/{theirs}", (config.n_layer, *heads), *in_layers)
        entries.add(f"transformer/{theirs}", heads, ours)
    for n in range(config.n_layer):
        add_layer(entries, config, n, f"transformer/layer_{n}", _LAYER)
    return entries.found


_LAYER = ("rel_attn/qkv", "rel_attn/r", "rel_attn/o", "ff/layer_1", "ff/layer_2", "rel_attn/LayerNorm", "ff/LayerNorm")
"""The parts of a layer, in the order of `add_layer`."""


def add_layer(entries: Entries, config: TransformerXLConfig, n: int, theirs: str, parts: Sequence[str]) -> None:
    """Adds layer n without biases of attention; in `theirs` are these parts.

    They are queries with keys and values, positions, output, both linear layers of the feed-forward block, both norms.
    """
    d_model, d_inner, width, ours = config.d_model, config.d_inner, config.n_head * config.d_head, f"layer_{n}"
    inputs, positions, output, inner, outer, attention_norm, norm = (f"{theirs}/{part}" for part in parts)
    entries.kernel(inputs, d_model, width, *(f"{ours}/attention/{part}_kernel" for part in ("query", "key", "value")))
    entries.kernel(positions, d_model, width, f"{ours}/attention/position_kernel")
    entries.kernel(output, width, d_model, f"{ours}/attention/output_kernel")
    entries.dense(inner, d_model, d_inner, f"{ours}/feed_forward/inner")
    entries.dense(outer, d_inner, d_model, f"{ours}/feed_forward/outer")
    entries.norm(attention_norm, d_model, f"{ours}/attention_norm")
    entries.norm(norm, d_model, f"{ours}/feed_forward_norm")

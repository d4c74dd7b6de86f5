"""Imports models of the official PyTorch code: kimiyoung/transformer-xl, in pytorch/mem_transformer.py.

Hugging Face's code is derived from it, and shares its names of tensors: `infer`, `ties` and `layout` are for both.
Conventions of that code: memory starts empty, with `same_length` a query sees mem_len keys, layer norm adds 1e-5, and
the head has its cluster entries in reverse order (its `head_logprob[:, -i]`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection
from typing import Any

import numpy as np

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.published.layout import Checkpoint, Entries, TensorEntry
from txl_tf.published.official_tf import add_layer
from txl_tf.published.tensor_files import TensorFile, unwrapped
from txl_tf.published.torch_files import MODULES, TENSORS, TorchFile, modules, state_dict

CONVENTIONS = {"mem_init": "empty", "same_length_window": "pytorch", "layer_norm_epsilon": 1e-5}


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a file of torch.save: a state_dict, or the whole model as the official train.py saves it.

    InputError if the file holds neither, or is damaged.
    """
    torch_file = TorchFile(source, f"{TENSORS}|{MODULES}")
    tensors = state_dict(torch_file.root)
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise InputError(f"{source} holds neither a state_dict nor a model: save model.state_dict() by itself")
    file = unwrapped(torch_file.tensors(tensors))
    told, settings, evaluation = _told_by_attributes(torch_file.root, source)
    architecture = infer(file) | told | ties(file)
    own_layout = functools.partial(layout, reverse_clusters=True)
    return Checkpoint(
        file, architecture, CONVENTIONS | settings, evaluation, own_layout, TransformerXLRunConfig, source
    )


def _told_by_attributes(root: object, source: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings from the attributes of a whole model: of TransformerXLConfig, fixed and not, and of EvalConfig."""
    found = modules(root)
    if not found:
        return {}, {}, {}
    model = found[""]
    if model.get("attn_type", 0) != 0:
        raise InputError(f"{source} has attn_type={model['attn_type']}: only 0, Transformer-XL's own, is imported")
    cutoffs = found.get("word_emb.", {}).get("cutoffs")
    told = {"cutoffs": tuple(cutoffs[:-1])} if isinstance(cutoffs, list) else {}
    settings = {"pre_lnorm": bool(found.get("layers.0.dec_attn.", {}).get("pre_lnorm", False))}
    names = ("tgt_len", "mem_len", "clamp_len", "same_length")
    return told, settings, {name: model[name] for name in names if type(model.get(name)) in (int, bool)}


def infer(file: TensorFile, prefix: str = "") -> dict[str, Any]:
    """The fields of TransformerXLConfig that follow from the shapes of a state_dict, whose names have a prefix.

    "cutoffs" is missing if all clusters have one table (div_val 1), since shapes do not show them. InputError if a
    required tensor is missing.
    """
    shapes, shape = file.shapes, functools.partial(file.shape, of="this format")
    shared = f"{prefix}r_w_bias" in shapes
    bias = shape(f"{prefix}r_w_bias" if shared else f"{prefix}layers.0.dec_attn.r_w_bias")
    d_model, d_inner = shape(f"{prefix}layers.0.pos_ff.CoreNet.3.weight")
    tables: list[tuple[int, ...]] = []
    while f"{prefix}word_emb.emb_layers.{len(tables)}.weight" in shapes:
        tables.append(shapes[f"{prefix}word_emb.emb_layers.{len(tables)}.weight"])
    if not tables:
        shape(f"{prefix}word_emb.emb_layers.0.weight")
    ends = list(itertools.accumulate(rows for rows, _ in tables))
    found: dict[str, Any] = {
        "n_layer": next(n for n in itertools.count() if f"{prefix}layers.{n}.dec_attn.qkv_net.weight" not in shapes),
        "d_model": d_model,
        "d_inner": d_inner,
        "d_embed": tables[0][1],
        "n_head": bias[0],
        "d_head": bias[1],
        "untie_r": not shared,
        "vocab_size": ends[-1],
        "div_val": tables[0][1] // tables[1][1] if len(tables) > 1 else 1,
    }
    if len(tables) > 1 or "crit.cluster_bias" not in shapes:
        found["cutoffs"] = tuple(ends[:-1])
    return found | ({"proj_same_dim": True} if found["div_val"] > 1 else {})


def is_tied(file: TensorFile, name: str, copy: str) -> bool:
    """Whether two tensors of a state_dict are equal, or only one of them is stored."""
    if name not in file.shapes or copy not in file.shapes:
        return True
    return file.shapes[name] == file.shapes[copy] and np.array_equal(file.read(name), file.read(copy))


def ties(file: TensorFile, prefix: str = "") -> dict[str, bool]:
    """The settings tie_weight and proj_share_all_but_first, as the values of a state_dict show them."""
    found = {"tie_weight": is_tied(file, f"{prefix}word_emb.emb_layers.0.weight", "crit.out_layers.0.weight")}
    tail = 1 if f"{prefix}word_emb.emb_layers.1.weight" in file.shapes else 0
    if f"{prefix}word_emb.emb_projs.{tail}" in file.shapes and "crit.cluster_bias" in file.shapes:
        found["proj_share_all_but_first"] = is_tied(file, f"{prefix}word_emb.emb_projs.{tail}", "crit.out_projs.1")
    return found


def layout(
    config: TransformerXLConfig,
    weights: Collection[str],
    prefix: str = "",
    bias_in_layers: bool = False,
    reverse_clusters: bool = False,
) -> list[TensorEntry]:
    """The tensors of a state_dict for a TransformerXLConfig; some of the paths in `weights` are only in some models.

    Kernels of linear layers are [out, in], projections [d_model, width]. The decoder's names have a `prefix`. With
    `bias_in_layers` a shared r_w_bias and r_r_bias are also stored in every layer, and with `reverse_clusters` the
    head has its cluster entries in reverse order.
    """
    d_model, heads = config.d_model, (config.n_head, config.d_head)
    bounds = (0, *config.cutoffs, config.vocab_size)
    one_table = config.div_val == 1
    rows = [config.vocab_size] if one_table else [end - start for start, end in itertools.pairwise(bounds)]
    entries, clusters = Entries(weights, torch=True), range(len(bounds) - 1)
    emb, out, columns = f"{prefix}word_emb", "crit.out_layers", [config.d_embed // config.div_val**i for i in clusters]
    own_projections = [i for i in clusters if f"softmax/projection_{i}" in weights]
    for i, count in enumerate(rows):
        copies: tuple[str, ...] = (f"{out}.{i}.weight",) if config.tie_weight else ()
        entries.add(f"{emb}.emb_layers.{i}.weight", (count, columns[i]), f"embedding/table_{i}", copies=copies)
        entries.add(f"{out}.{i}.weight", (count, columns[i]), f"softmax/table_{i}")
        sharing = clusters if one_table else [i]
        copies = tuple(f"crit.out_projs.{j}" for j in sharing if j not in own_projections)
        projection, ours = f"{emb}.emb_projs.{i}", f"embedding/projection_{i}"
        entries.add(projection, (d_model, columns[i]), ours, order=(1, 0), copies=copies)
        entries.add(f"{out}.{i}.bias", (count,), *(f"softmax/bias_{j}" for j in sharing))
    for i in own_projections:
        entries.add(f"crit.out_projs.{i}", (d_model, columns[i]), f"softmax/projection_{i}", order=(1, 0))
    tails = len(config.cutoffs)
    entries.add("crit.cluster_weight", (tails, config.d_embed), "softmax/cluster_table", reverse=reverse_clusters)
    entries.add("crit.cluster_bias", (tails,), "softmax/cluster_bias", reverse=reverse_clusters)

    for theirs, ours in (("r_w_bias", "content_bias"), ("r_r_bias", "position_bias")):
        in_layers = [f"{prefix}layers.{n}.dec_attn.{theirs}" for n in range(config.n_layer)]
        entries.add(f"{prefix}{theirs}", heads, ours, copies=tuple(in_layers) if bias_in_layers else ())
        for n, name in enumerate(in_layers):
            entries.add(name, heads, f"layer_{n}/attention/{ours}")
    for n in range(config.n_layer):
        parts = [f"dec_attn/{part}" for part in ("qkv_net", "r_net", "o_net")]
        parts += ["pos_ff/CoreNet/0", "pos_ff/CoreNet/3", "dec_attn/layer_norm", "pos_ff/layer_norm"]
        add_layer(entries, config, n, f"{prefix}layers/{n}", parts)
    return entries.found

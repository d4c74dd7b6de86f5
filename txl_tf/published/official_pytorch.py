"""Imports models of the official PyTorch code: kimiyoung/transformer-xl, in pytorch/mem_transformer.py.

Conventions of that code: memory starts empty, with `same_length` a query sees mem_len keys, layer norm adds 1e-5, and
the head has its cluster entries in reverse order (its `head_logprob[:, -i]`).
"""

from __future__ import annotations

import functools
from typing import Any

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.published import torch_models
from txl_tf.published.layout import Checkpoint
from txl_tf.published.pickles import PickledCall, as_dict
from txl_tf.published.tensor_files import unwrapped
from txl_tf.published.torch_files import MODULES, TENSORS, TorchFile, attributes, state_dict

CONVENTIONS = {"mem_init": "empty", "same_length_window": "pytorch", "layer_norm_epsilon": 1e-5}
layout = functools.partial(torch_models.layout, reverse_clusters=True)


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a file of torch.save: a state_dict, or the whole model as the official train.py saves it.

    InputError if the file holds neither, or is damaged.
    """
    torch_file = TorchFile(source, f"{TENSORS}|{MODULES}")
    tensors = state_dict(torch_file.root)
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise InputError(f"{source} holds neither a state_dict nor a model: save model.state_dict() by itself")
    file = unwrapped(torch_file.tensors(tensors))
    torch_models.drop_buffers(file)
    told, settings, evaluation = _told_by_attributes(torch_file.root, source)
    architecture = torch_models.infer(file) | told | torch_models.ties(file)
    return Checkpoint(file, architecture, CONVENTIONS | settings, evaluation, layout, TransformerXLRunConfig, source)


def _told_by_attributes(root: object, source: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings from the attributes of a whole model: of TransformerXLConfig, fixed and not, and of EvalConfig."""
    if not isinstance(root, PickledCall) or as_dict(root) is not None:
        return {}, {}, {}
    model = attributes(root)
    if model.get("attn_type", 0) != 0:
        raise InputError(f"{source} has attn_type={model['attn_type']}: only 0, Transformer-XL's own, is imported")
    modules = as_dict(model.get("_modules")) or {}
    cutoffs = attributes(modules.get("word_emb")).get("cutoffs")
    told = {"cutoffs": tuple(cutoffs[:-1])} if isinstance(cutoffs, list) else {}
    layers = as_dict(attributes(modules.get("layers")).get("_modules")) or {}
    attention = (as_dict(attributes(layers.get("0")).get("_modules")) or {}).get("dec_attn")
    settings = {"pre_lnorm": bool(attributes(attention).get("pre_lnorm", False))}
    names = ("tgt_len", "mem_len", "clamp_len", "same_length")
    return told, settings, {name: model[name] for name in names if type(model.get(name)) in (int, bool)}

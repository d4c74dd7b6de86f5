"""Imports and exports Hugging Face's TransfoXLLMHeadModel (transformers up to 4.35), such as transfo-xl-wt103.

Conventions of that code: Empty memory is zero vectors, which are attended to, as in the official TensorFlow code. With
`same_length` a query sees mem_len keys, as in the official PyTorch code. The head has its cluster entries in the order
of the clusters.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.layers.positions import frequencies
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.published import official_pytorch
from txl_tf.published.huggingface import files as huggingface_files
from txl_tf.published.layout import Checkpoint, require_agreement, save
from txl_tf.published.tensor_files import write_safetensors
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.settings.groups import from_dict
from txl_tf.storage.files import write_atomically

_CONVENTIONS = {"mem_init": "zeros", "same_length_window": "pytorch"}
_SHAPED = (
    *("vocab_size", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "untie_r"),
    *("cutoffs", "div_val"),
)
_FREE = ("pre_lnorm", "layer_norm_epsilon", "init_std", "proj_init_std", "dropout", "dropatt")
_EVALUATION = ("mem_len", "clamp_len", "same_length")
_DEFAULTS = {"layer_norm_epsilon": 1e-5}
"""Defaults of TransfoXLConfig, for fields that older files lack."""

layout = functools.partial(official_pytorch.layout, prefix="transformer.", bias_in_layers=True)


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a directory with config.json and model.safetensors, pytorch_model.bin or tf_model.h5.

    InputError if files are missing, damaged or contradict each other, or TransformerXL does not support the model.
    """
    config, where = huggingface_files.read_config(source)
    for name, wanted in (("attn_type", 0), ("sample_softmax", -1)):
        if config.get(name, wanted) != wanted:
            raise InputError(f"{where} has {name}={config[name]!r}: only {wanted} is imported")
    file = huggingface_files.open_tensors(source)
    if "score.weight" in file.shapes or not any(name.startswith("crit.") for name in file.shapes):
        head = "a classifier's head" if "score.weight" in file.shapes else "no head"
        raise InputError(f"{file.path} has {head}: of Hugging Face's TransfoXL only language models are supported")
    inferred = official_pytorch.infer(file, "transformer.")
    stated = {name: config[name] for name in _SHAPED if name in config}
    stated["cutoffs"] = tuple(stated.get("cutoffs") or ())
    require_agreement(stated, inferred, where)
    # Their TensorFlow classes tie nothing: the values show what was tied before.
    ties = official_pytorch.ties(file, "transformer.") if file.path.endswith(".h5") else _ties(config, where)
    architecture = inferred | stated | ties
    settings = {name: config[name] for name in _FREE if name in config}
    from_dict(TransformerXLConfig, architecture | settings, where)
    evaluation = {name: config[name] for name in _EVALUATION if name in config}
    from_dict(EvalConfig, evaluation, where)
    return Checkpoint(
        file, architecture, _DEFAULTS | settings | _CONVENTIONS, evaluation, layout, TransformerXLRunConfig, source
    )


def _ties(config: dict[str, Any], where: str) -> dict[str, bool]:
    first, *tails = config.get("tie_projs") or [False, *[True] * len(config.get("cutoffs", ()))]
    if first or any(tail != tails[0] for tail in tails):
        raise InputError(
            f"{where} has tie_projs={config['tie_projs']}: the first must not be tied, and either all tails or none"
        )
    tie_weight = bool(config.get("tie_word_embeddings", config.get("tie_weight", True)))
    return {"tie_weight": tie_weight, "proj_share_all_but_first": bool(tails and tails[0])}


def export(trained: TrainedModel, export_dir: str) -> list[str]:
    """Writes config.json, model.safetensors and, for words, vocab.txt; returns how Hugging Face's code differs.

    InputError if Hugging Face's classes have no such model.
    """
    config, evaluation, vocabulary = trained.model.config, trained.config.eval, trained.vocabulary
    _refuse_what_they_lack(config, evaluation)
    tf.io.gfile.makedirs(export_dir)
    tensors = {}
    for entry, array in save(trained.model, layout):
        # Their code ties weights itself, so these are written once; it expects shared biases in every layer.
        for name in (entry.name, *(copy for copy in entry.copies if not copy.startswith("crit."))):
            tensors[name] = array
    tensors["transformer.pos_emb.inv_freq"] = frequencies(config.d_model).astype(np.float32)
    write_safetensors(tf.io.gfile.join(export_dir, "model.safetensors"), tensors)
    about = {name: getattr(config, name) for name in (*_SHAPED, *_FREE)}
    about |= {name: getattr(evaluation, name) for name in _EVALUATION}
    about |= {
        "architectures": ["TransfoXLLMHeadModel"],
        "model_type": "transfo-xl",
        "attn_type": 0,
        "sample_softmax": -1,
        "adaptive": bool(config.cutoffs),
        "proj_share_all_but_first": config.proj_share_all_but_first,
        "tie_projs": [False, *[config.proj_share_all_but_first] * len(config.cutoffs)],
        "tie_word_embeddings": config.tie_weight,
        "eos_token_id": vocabulary.start_token,
        "torch_dtype": "float32",
    }
    write_atomically(tf.io.gfile.join(export_dir, "config.json"), json.dumps(about, indent=2) + "\n")
    if vocabulary.unit == "word":
        vocabulary.save(export_dir)
        about = {"tokenizer_class": "TransfoXLTokenizer", "model_type": "transfo-xl"}
        about |= {"eos_token": vocabulary.spec["line_end"], "unk_token": vocabulary.spec["unknown"]}
        about |= {"lower_case": vocabulary.spec["lower_case"]}
        write_atomically(tf.io.gfile.join(export_dir, "tokenizer_config.json"), json.dumps(about, indent=2) + "\n")
    return _differences(config, evaluation, vocabulary)


def _refuse_what_they_lack(config: TransformerXLConfig, evaluation: EvalConfig) -> None:
    projected_first = (
        not config.cutoffs or config.div_val == 1 or config.proj_same_dim or (config.d_embed != config.d_model)
    )
    lacking = {
        f"attn_type={config.attn_type}": config.attn_type != "transformer_xl",
        f"activation={config.activation}": config.activation != "relu",
        f"dtype={config.dtype}": config.dtype == "float64",
        "proj_same_dim=False": not projected_first,
        "tied_positions": config.tied_positions,
        "ext_len": evaluation.ext_len > 0,
        "one tied table with a tied projection": not config.cutoffs
        and config.tie_weight
        and config.d_embed != config.d_model,
        f"div_val={config.div_val} without cutoffs": not config.cutoffs and config.div_val > 1,
    }
    if found := [what for what, lacks in lacking.items() if lacks]:
        raise InputError(f"Hugging Face's TransfoXL has no {', '.join(found)}: this model cannot be exported to it")


def _differences(config: TransformerXLConfig, evaluation: EvalConfig, vocabulary: Vocabulary) -> list[str]:
    window, keys = evaluation.same_length and config.same_length_window == "tf", evaluation.mem_len
    differing = {
        "empty memory is attended to as zero vectors (mem_init=zeros here)": config.mem_init != "zeros",
        f"a query sees {keys} keys, not {keys + 1} (same_length)": window,
        "its training has neither variational dropout nor dropemb": config.dropout_type != "standard" or config.dropemb,
        "its training has one rate of dropout for all sites": config.dropout_sites,
        f"it has no tokenizer for {vocabulary.unit}s: encode text with txl_tf": vocabulary.unit != "word",
    }
    return [what for what, differs in differing.items() if differs]

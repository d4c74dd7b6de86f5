"""Imports and exports Hugging Face's XLNets (transformers 4), such as xlnet-base-cased, with most of their heads.

Conventions of that code: memory starts empty; attention uses the general dropout rate;
"gelu" is the form with the error function. The published configurations say "gelu", although the weights were trained
with the approximation by tanh ("gelu_new" in that code).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary, XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.published.huggingface import files as huggingface_files
from txl_tf.published.layout import Checkpoint, Entries, TensorEntry, require_agreement, save, xlnet_run
from txl_tf.published.official_xlnet import BIASES, add_answers, add_layer
from txl_tf.published.tensor_files import TensorFile, write_safetensors
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.settings.groups import from_dict
from txl_tf.storage.files import write_atomically

_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "gelu_pytorch_tanh": "gelu_tanh"}
_SHAPED = ("vocab_size", "n_layer", "d_model", "n_head", "d_head", "d_inner", "untie_r")
_FREE = {"layer_norm_eps": "layer_norm_epsilon", "initializer_range": "init_std", "dropout": "dropout"}
_MEMORY = ("mem_len", "reuse_len")
_REACH = (*_MEMORY, "clamp_len")
_DEFAULTS = {"ff_activation": "gelu", "layer_norm_eps": 1e-12, "attn_type": "bi"}
"""The defaults of Hugging Face's XLNetConfig, for fields that are missing in older files."""
_LOGITS = {name: name for name in ("summary_type", "summary_use_proj")} | {"summary_last_dropout": "summary_dropout"}
_N_TOP = {name: name for name in ("start_n_top", "end_n_top")}


class Head(NamedTuple):
    """A head there, and our task that has it.

    Attributes:
        task: its name.
        cls: the class.
        tensor: one that the class has and other heads lack; "": none.
        settings: {their name: ours}.
        ours: the settings that tell it from other heads of the task, and "n_class" where it is fixed.
        names: "ours": each output has the name of a class; "theirs": a name without meaning; "": outputs have none.
        problem: their problem_type; "": it says nothing.
        by_class: whether only the class tells it from others with the same tensors.
        whole: whether all tokens of a text are remembered, whatever reuse_len says.
    """

    task: str
    cls: str
    tensor: str = ""
    settings: Mapping[str, str] = MappingProxyType({})
    ours: Mapping[str, Any] = MappingProxyType({})
    names: str = ""
    problem: str = ""
    by_class: bool = False
    whole: bool = False

    def fits(self, config: Mapping[str, Any], file: TensorFile) -> bool:
        """Whether a checkpoint with this config.json has this head, and none of those before it in HEADS."""
        if self.tensor and self.tensor not in file.shapes:
            return False
        if self.by_class:
            return self.cls in (config.get("architectures") or [])
        if self.problem:
            return bool(config.get("problem_type") == self.problem)
        return self.ours.get("n_class") in (None, file.shapes[self.tensor][0] if self.tensor else None)


_TEXTS, _OUTPUTS = "XLNetForSequenceClassification", "logits_proj.weight"
HEADS = (
    Head("answering", "XLNetForQuestionAnswering", "start_logits.dense.weight", _N_TOP, {"answer_head": "conditioned"}),
    Head("answering", "XLNetForQuestionAnsweringSimple", "qa_outputs.weight", ours={"answer_head": "simple"}),
    Head("tagging", "XLNetForTokenClassification", "classifier.weight", names="ours", whole=True),
    Head("multiple_choice", "XLNetForMultipleChoice", _OUTPUTS, _LOGITS, by_class=True),
    Head("multi_label", _TEXTS, _OUTPUTS, _LOGITS, names="ours", problem="multi_label_classification"),
    Head("regression", _TEXTS, _OUTPUTS, _LOGITS, {"n_class": 1}, names="theirs"),
    Head("classification", _TEXTS, _OUTPUTS, _LOGITS, names="ours"),
    Head("permutation_lm", "XLNetLMHeadModel"),
)
"""A row for each task; a checkpoint has the first one that fits."""


def open_checkpoint(source: str) -> Checkpoint:
    """The Checkpoint in a directory with config.json and model.safetensors, pytorch_model.bin or tf_model.h5.

    InputError if files are missing, damaged or contradict each other, or our XLNets do not support the model.
    """
    config, where = _checked_config(source)
    file = huggingface_files.open_tensors(source)
    prefix = "" if "word_embedding.weight" in file.shapes else "transformer."
    inferred = _inferred(file, prefix)
    # Their classes have untied biases, whatever untie_r says.
    stated = {name: config[name] for name in _SHAPED if name in config and name != "untie_r"}
    require_agreement(stated, inferred, where)
    head = next(head for head in HEADS if head.fits(config, file))
    if head.task == "classification" and config.get("problem_type") == "regression":
        raise InputError(
            f"{where} has problem_type='regression' with {file.shapes[head.tensor][0]} outputs: models with several "
            "scores for a text are not imported, only models with one score"
        )
    run, notes = xlnet_run(head.task), []
    architecture = inferred | stated | {"activation": _ACTIVATIONS[config["ff_activation"]]} | dict(head.ours)
    if hasattr(run.groups()["model"], "n_class"):
        architecture["n_class"] = file.shapes[head.tensor][0]
    labels = _labels(config, architecture["n_class"], where) if head.names == "ours" else ()
    if head.settings is _LOGITS:
        projects, activation = config.get("summary_use_proj", True), config.get("summary_activation", "tanh")
        if activation not in ("tanh", *([] if projects else [None, ""])):
            raise InputError(f"{where} has summary_activation={activation!r}: only tanh is imported")
        if activation and not projects:  # their class applies it all the same
            file = _with_identity_projection(file, architecture["d_model"])
            notes.append("summary_use_proj is false, but tanh is applied there: the projection here is the identity")
        config["summary_use_proj"] = bool(activation)
    if head.whole:
        config["reuse_len"] = None
    names = {**_FREE, **head.settings}
    settings = {ours: config[theirs] for theirs, ours in names.items() if theirs in config}
    settings |= {"dropatt": settings["dropout"]} if "dropout" in settings else {}
    settings |= {name: config[name] for name in _REACH if config.get(name)} | {"mem_init": "empty"}
    from_dict(run.groups()["model"], architecture | settings, where)
    data = {"bi_data": config["bi_data"]} if "bi_data" in config else {}
    if config.get("bi_data") and head.tensor:
        notes.append(
            "bi_data is true: there the second half of an even batch is read with reversed positions; here no text is"
        )
    unstated = tuple(name for name in _MEMORY if not config.get(name))
    own_layout = functools.partial(layout, prefix=prefix)
    return Checkpoint(
        file, architecture, settings, {}, own_layout, run, source, "text", data, labels, tuple(notes), unstated
    )


def _checked_config(source: str) -> tuple[dict[str, Any], str]:
    """The object in config.json, with defaults, and its path; InputError if our XLNets do not support it."""
    config, path = huggingface_files.read_config(source)
    config = _DEFAULTS | config
    if "vocab_size" not in config and "n_token" in config:
        config["vocab_size"] = config["n_token"]
    if config["attn_type"] != "bi":
        raise InputError(f"{path} has attn_type={config['attn_type']!r}: only 'bi' is imported")
    if config["ff_activation"] not in _ACTIVATIONS:
        raise InputError(
            f"{path} has ff_activation={config['ff_activation']!r}: only {', '.join(_ACTIVATIONS)} are imported"
        )
    return config, path


def _inferred(file: TensorFile, prefix: str) -> dict[str, Any]:
    """The fields of XLNetConfig that follow from the shapes; InputError if a required tensor is missing."""
    shapes = file.shapes
    needed = [f"{prefix}{name}" for name in ("word_embedding.weight", "layer.0.rel_attn.q", "layer.0.ff.layer_1.bias")]
    if missing := [name for name in needed if name not in shapes]:
        raise InputError(f"{file.path} has no {', '.join(missing)}: it is not an XLNet of this format")
    (vocab_size, d_model), (_, n_head, d_head), (d_inner,) = (shapes[name] for name in needed)
    n_layer = next(n for n in itertools.count() if f"{prefix}layer.{n}.rel_attn.q" not in shapes)
    found = {"vocab_size": vocab_size, "d_model": d_model, "n_head": n_head, "d_head": d_head, "d_inner": d_inner}
    return found | {"n_layer": n_layer, "untie_r": True}


def _labels(config: Mapping[str, Any], n_class: int, where: str) -> tuple[str, ...]:
    named = config.get("id2label")
    if not named:
        return ()
    found = [named.get(str(i)) for i in range(n_class)] if isinstance(named, dict) else []
    labels = [label for label in found if isinstance(label, str)]
    if not len(labels) == n_class == len(named):
        raise InputError(f"{where}: id2label must name the {n_class} classes, as {{'0': 'name', ..}}: correct it")
    if len(set(labels)) != n_class:
        raise InputError(f"{where}: id2label gives two classes one name: give each its own")
    return tuple(labels)


def _with_identity_projection(file: TensorFile, d_model: int) -> TensorFile:
    """The tensors with a projection of the summary that changes nothing."""
    added = {
        "sequence_summary.summary.weight": np.eye(d_model, dtype=np.float32),
        "sequence_summary.summary.bias": np.zeros([d_model], np.float32),
    }
    shapes = file.shapes | {name: array.shape for name, array in added.items()}
    return TensorFile(file.path, shapes, lambda name: added[name] if name in added else file.read(name))


def layout(config: XLNetConfig, weights: Collection[str], prefix: str = "transformer.") -> list[TensorEntry]:
    """The tensors of a state_dict for an XLNetConfig; all heads have the names of the body's, with their `prefix`."""
    d_model, heads, entries = config.d_model, (config.n_head, config.d_head), Entries(weights, torch=True)
    entries.add(f"{prefix}mask_emb", (1, 1, d_model), "mask_embedding")
    copies = ("lm_loss.weight",) if "softmax/bias_0" in weights else ()
    entries.add(f"{prefix}word_embedding.weight", (config.vocab_size, d_model), "embedding/table_0", copies=copies)
    for i in range(config.n_layer):
        add_layer(entries, config, i, f"{prefix}layer.{i}", "{}", "layer_norm")
        for theirs, ours in BIASES.items():
            entries.add(f"{prefix}layer.{i}.rel_attn.{theirs}", heads, f"layer_{i}/attention/{ours}")
        entries.add(f"{prefix}layer.{i}.rel_attn.seg_embed", (2, *heads), f"layer_{i}/attention/segment_table")
    entries.add("lm_loss.bias", (config.vocab_size,), "softmax/bias_0", optional=not prefix)

    entries.dense("sequence_summary.summary", d_model, d_model, "head/summary/projection")
    entries.dense("logits_proj", d_model, getattr(config, "n_class", 1), "head/logits")
    entries.dense("qa_outputs", d_model, 2, "head/positions")
    entries.dense("classifier", d_model, getattr(config, "n_class", 1), "head")
    add_answers(entries, d_model)
    return entries.found


def export(trained: TrainedModel, export_dir: str) -> list[str]:
    """Writes config.json, model.safetensors and, for an XLNet vocabulary, spiece.model and tokenizer_config.json.

    Returns the differences in Hugging Face's code, as texts. InputError if its classes do not have this kind of model.
    """
    model, vocabulary, task, data = trained.model, trained.vocabulary, trained.config.task, trained.config.data
    config = model.config
    heads = [head for head in HEADS if head.task == task]
    heads = [head for head in heads if all(getattr(config, name) == value for name, value in head.ours.items())]
    if not heads:
        raise InputError(f"Hugging Face's XLNet has no head for {task}: this model cannot be exported to it")
    head = heads[0]
    _refuse_what_they_lack(config)
    tf.io.gfile.makedirs(export_dir)
    # Hugging Face's code ties the weight of lm_loss to the embedding, so it is written once.
    tensors = {entry.name: array for entry, array in save(model, layout)}
    write_safetensors(tf.io.gfile.join(export_dir, "model.safetensors"), tensors)
    activations = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    about = {name: getattr(config, name) for name in _SHAPED}
    about |= {theirs: getattr(config, ours) for theirs, ours in _FREE.items()}
    about |= {
        "architectures": [head.cls],
        "model_type": "xlnet",
        "ff_activation": activations[config.activation],
        "attn_type": "bi",
        "bi_data": getattr(data, "bi_data", False),
        "same_length": False,
        "mem_len": config.mem_len or None,
        "reuse_len": config.reuse_len or None,
        "clamp_len": config.clamp_len,
        # Their class applies it without a projection, too.
        "summary_activation": "tanh" if getattr(config, "summary_use_proj", True) else None,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    if vocabulary.special.pad is not None:
        about["pad_token_id"] = vocabulary.special.pad
    about |= {theirs: getattr(config, ours) for theirs, ours in head.settings.items()}
    about |= {"problem_type": head.problem} if head.problem else {}
    if head.names:
        named = trained.class_names() if head.names == "ours" else ()
        labels = named or [f"LABEL_{i}" for i in range(config.n_class)]
        about |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
    write_atomically(tf.io.gfile.join(export_dir, "config.json"), json.dumps(about, indent=2) + "\n")
    if isinstance(vocabulary, XLNetVocabulary):
        vocabulary.save(export_dir)
        spec = vocabulary.spec
        about = {"tokenizer_class": "XLNetTokenizer", "do_lower_case": spec["lower_case"]}
        about |= {name: spec[name] for name in ("keep_accents", "remove_space")}
        write_atomically(tf.io.gfile.join(export_dir, "tokenizer_config.json"), json.dumps(about, indent=2) + "\n")
    return _differences(config, vocabulary, data)


def _refuse_what_they_lack(config: Any) -> None:
    lacking = {
        "untie_r=False": not config.untie_r,
        f"d_head={config.d_head} with {config.n_head} heads of d_model={config.d_model}": config.n_head * config.d_head
        != config.d_model,
        f"dtype={config.dtype}": config.dtype == "float64",
        "summary_type=attn": getattr(config, "summary_type", "") == "attn",
    }
    if found := [what for what, lacks in lacking.items() if lacks]:
        raise InputError(f"Hugging Face's XLNet has no {', '.join(found)}: this model cannot be exported to it")


def _differences(config: Any, vocabulary: Vocabulary, data: Any) -> list[str]:
    summary, segments = getattr(config, "summary_type", ""), getattr(data, "max_segments", 1)
    is_padded, has_tokenizer = summary in ("mean", "first"), isinstance(vocabulary, XLNetVocabulary)
    rates = f"{config.dropout}, not {config.dropatt}"
    differing = {
        "memory starts empty, not with zero vectors that are attended to (mem_init=zeros)": config.mem_init != "empty",
        f"its training drops attention probabilities at the rate {rates}": config.dropatt != config.dropout,
        f"summary_type={summary} depends on padding: pad on the left, to the length used here": is_padded,
        f"it has no tokenizer for {vocabulary.unit}s: encode text with txl_tf": not has_tokenizer,
        f"it reads a text at once, not in up to {segments} segments with memory": segments > 1,
    }
    return [what for what, differs in differing.items() if differs]

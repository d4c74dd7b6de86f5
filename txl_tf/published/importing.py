"""Writes a published checkpoint and its vocabulary as a model_dir, which all commands can read."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.families.base import Preset
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.published import hub_models, official_pytorch, official_tf, official_xlnet
from txl_tf.published.huggingface import files as huggingface_files
from txl_tf.published.huggingface import transformer_xl as huggingface
from txl_tf.published.huggingface import xlnet as huggingface_xlnet
from txl_tf.published.layout import Checkpoint, load, naming_source
from txl_tf.published.vocabularies import VOCABULARIES, find_vocabulary
from txl_tf.runs import checkpoints
from txl_tf.runs import model_dir as model_dirs
from txl_tf.settings.groups import update
from txl_tf.settings.run import Config
from txl_tf.storage.files import complete_directory, digest, read_record, require_new_directory
from txl_tf.tasks.tagging import schemes


def _open_huggingface(source: str) -> Checkpoint:
    """The Checkpoint in a directory, or of a name in the Hub."""
    if place := hub_models.found(source):
        address = hub_models.address(place)
        if source != address:
            print(f"{source}: {address}", file=sys.stderr)
        return dataclasses.replace(_open_huggingface(hub_models.fetch(place)), origin=address)
    model_type = huggingface_files.model_type(source)
    if not model_type:  # a config.json of 2019
        names = huggingface_files.open_tensors(source).shapes
        model_type = "xlnet" if any(".rel_attn." in name for name in names) else "transfo-xl"
    return (huggingface_xlnet if model_type == "xlnet" else huggingface).open_checkpoint(source)


FORMATS = {
    "official_tf": official_tf.open_checkpoint,
    "official_pytorch": official_pytorch.open_checkpoint,
    "huggingface": _open_huggingface,
    "official_xlnet": official_xlnet.open_checkpoint,
}
"""Functions that open the Checkpoint at a source, by format."""


def open_checkpoint(format: str, source: str) -> Checkpoint:
    """The Checkpoint at `source`, in one of FORMATS.

    InputError if the format's `open_checkpoint` cannot read it, or its shapes do not describe a valid model.
    """
    try:
        return FORMATS[format](source)
    except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source} is not a checkpoint of this format ({error}): check --format") from error


def vocabulary_of(
    checkpoint: Checkpoint, dataset: str, path: str | None = None, options: Mapping[str, bool] | None = None
) -> tuple[Vocabulary, str]:
    """The Vocabulary of a checkpoint that was trained on `dataset`, and the path of its file.

    Without a path the file is beside the checkpoint. `options` are those of the kind of vocabulary. InputError if the
    file cannot be read.
    """
    read, names = VOCABULARIES[checkpoint.config.family]
    path = path or find_vocabulary(checkpoint.source, names)
    if path is None:
        fast = find_vocabulary(checkpoint.source, ["tokenizer.json"]) and ", but tokenizer.json, which is not read"
        remedy = (
            "copy spiece.model there, or give it as --vocabulary; all published XLNets have the same (hf download "
            "xlnet/xlnet-base-cased spiece.model)"
            if checkpoint.config.family == "xlnet"
            else "give --vocabulary"
        )
        raise InputError(f"there is no vocabulary next to {checkpoint.file.path}{fast or ''}: {remedy}")
    with naming_source(checkpoint.file.path, checkpoint.unpacked):
        return read(path, dataset, options or {}), path


def import_checkpoint(
    checkpoint: Checkpoint,
    vocabulary: Vocabulary,
    model_dir: str,
    *,
    dataset: str,
    preset: Preset | None = None,
    model: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
) -> tuple[Config, list[str]]:
    """Writes a model_dir, which must be empty or new; returns the Config, and what the checkpoint lacks, as texts.

    Args:
        dataset: the corpus the model was trained on.
        preset: the Preset that the checkpoint must agree with, or None.
        model, evaluation: dicts of fields of the groups "model" and "eval" that the caller sets.

    InputError if checkpoint, preset, settings and vocabulary do not agree, model_dir is not empty, or a weight of the
    checkpoint is not finite.
    """
    config = configure(checkpoint, preset, model or {}, evaluation or {}).replace(train={"origin": checkpoint.origin})
    if vocabulary.vocab_size != config.model.vocab_size:
        raise InputError(_other_vocabulary(checkpoint, vocabulary.vocab_size, config.model.vocab_size))
    require_new_directory(model_dir, "model_dir")
    model_of_config = families.make_model(config)
    lacking = load(model_of_config, checkpoint)
    checkpoints.refuse_not_finite(checkpoints.variables_by_path(model_of_config), checkpoint.file.path)
    with complete_directory(model_dir) as folder:
        tf.io.gfile.makedirs(folder)
        vocabulary.save(folder)
        names = [vocabulary.spec["file"]] if "file" in vocabulary.spec else []
        files = {name: digest(tf.io.gfile.join(folder, name)) for name in names}
        weights = tf.train.Checkpoint(model=checkpoints.variables_by_path(model_of_config))
        weights.write(checkpoints.checkpoint_path(folder, 0))
        learned = model_dirs.ImportedCorpus(dataset, "imported", vocabulary, vocabulary.spec, files)
        model_dirs.write_description(folder, config, learned)
        if checkpoint.labels:
            model_dirs.write_labels(folder, checkpoint.labels)
        if config.task == "tagging":
            scheme = schemes.scheme_of(checkpoint.labels) or schemes.PLAIN
            model_dirs.write_columns(folder, Columns(scheme=scheme))
    return config, lacking


def _other_vocabulary(checkpoint: Checkpoint, entries: int, rows: int) -> str:
    sizes = f"the vocabulary has {entries:,} entries, the checkpoint {rows:,}"
    path = tf.io.gfile.join(checkpoint.source, "added_tokens.json")
    if rows > entries and checkpoint.config.family == "xlnet":
        added = read_record(path, {}) if tf.io.gfile.exists(path) else {}
        if added or rows - entries < 1000:  # with more, the vocabulary is another one
            added_tokens = counted(rows - entries, "token was", "tokens were")
            named = f" ({', '.join(sorted(added)[:5])})" if added else ""
            return (
                f"{sizes}: it seems that {added_tokens} added to the model{named}, "
                f"which txl_tf does not support. To import it without them, write it with transformers' "
                f"model.resize_token_embeddings({entries}) and model.save_pretrained"
            )
    return f"{sizes}: give the one that was published with it"


def configure(
    checkpoint: Checkpoint, preset: Preset | None, model: dict[str, Any], evaluation: dict[str, Any]
) -> Config:
    """The Config of an imported checkpoint.

    The architecture follows from the weights, and the conventions from the source. Settings of evaluation come from the
    caller, else from the preset, else from the source, whose mem_len may be that of training. InputError if settings
    contradict the weights, the preset is of another family, or a setting is not given anywhere.
    """
    told, run = checkpoint.architecture, checkpoint.config
    if preset and preset.config.family != run.family:
        raise InputError(
            f"{checkpoint.file.path} is of the family {families.family_of(run).title}, the preset of "
            f"{families.family_of(preset.config).title}: give another --preset, or none"
        )
    fixed = {name: value for name, value in model.items() if name in told}
    expected = {name: getattr(preset.config.model, name) for name in told} if preset else {}
    differing = [
        f"{name}={value!r} (the checkpoint: {told[name]!r})"
        for name, value in (expected | fixed).items()
        if value != told[name]
    ]
    if differing:
        raise InputError(f"{checkpoint.file.path} is not the model that was asked for: {', '.join(differing)}")
    settings = checkpoint.settings | told | model
    if preset is None:
        return _run_of(checkpoint, settings, checkpoint.evaluation | evaluation)
    if preset.config.task != run.task:
        raise InputError(f"{checkpoint.file.path} has a head for {run.task}: give no --preset")
    return preset.config.replace(model=settings, eval=evaluation)


def _run_of(checkpoint: Checkpoint, model: dict[str, Any], evaluation: dict[str, Any]) -> Config:
    """A run with these fields of the groups "model" and "eval", and with defaults for the others.

    A Transformer-XL has the same memory in training as in evaluation. An XLNet is pretrained as by the official code,
    except that each part of a segment is permuted as a whole. InputError if a setting without a default is not given.
    """
    run, where = checkpoint.config.from_groups({}, checkpoint.file.path), checkpoint.file.path
    groups: dict[str, Any] = {"model": model, "data": checkpoint.data, "eval": evaluation}
    if isinstance(run, TransformerXLRunConfig):
        if "mem_len" not in evaluation:
            raise InputError(
                f"{where} does not say how much memory to use: give --preset, or --mem_len, --clamp_len and "
                "--same_length"
            )
        if "cutoffs" not in model:
            raise InputError(f"{where} does not say where its clusters end: give --preset or --cutoffs")
        groups["model"] = {"mem_len": evaluation["mem_len"]} | model
        groups["eval"] = {"batch_size": 1, "tgt_len": 128} | evaluation
    elif isinstance(run, XLNetRunConfig):
        reuse_len = update(run.model, model).reuse_len
        tgt_len = max(run.data.tgt_len, 2 * reuse_len)
        part = max(min(reuse_len, tgt_len - reuse_len), 1)
        groups["data"] = {"tgt_len": tgt_len} | checkpoint.data
        most, predicted = run.objective.perm_size, run.objective.num_predict
        groups["objective"] = {"perm_size": min(most, part), "num_predict": min(predicted, 2 * part)}
    return run.replace(**groups)

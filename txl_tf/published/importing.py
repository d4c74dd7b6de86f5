"""Writes a published checkpoint and its vocabulary as a model_dir, which all commands then read."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf import model_dir as model_dirs
from txl_tf.config import Config, update
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.files import digest
from txl_tf.models.preset import Preset
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLRunConfig
from txl_tf.published import huggingface, official_pytorch, official_tf
from txl_tf.published.layout import Checkpoint, load

FORMATS = {"official_tf": official_tf, "official_pytorch": official_pytorch, "huggingface": huggingface}


class _Learned(typing.NamedTuple):
    """What `model_dir.write_description` writes of the data."""

    dataset: str
    unit: str
    fingerprint: str
    vocabulary: Vocabulary
    vocabulary_spec: dict
    files: dict


def open_checkpoint(format: str, source: str) -> Checkpoint:
    """The Checkpoint at `source`, in one of FORMATS.

    Raises:
        InputError: the format's `open_checkpoint` refuses it, or its shapes make no model.
    """
    try:
        return FORMATS[format].open_checkpoint(source)
    except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source} is not a Transformer-XL of this format ({error}): check --format") from error


def import_checkpoint(
    checkpoint: Checkpoint,
    vocabulary: Vocabulary,
    model_dir: str,
    *,
    dataset: str,
    preset: Preset | None = None,
    model: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
) -> Config:
    """Writes a model_dir.

    Args:
        checkpoint: a Checkpoint.
        vocabulary: its Vocabulary.
        model_dir: where to write; local or gs://. It must not hold a model yet.
        dataset: the corpus it was trained on.
        preset: the Preset that it must agree with, or None.
        model, evaluation: dicts of fields of TransformerXLConfig and EvalConfig that the caller sets.

    Returns:
        the Config.

    Raises:
        InputError: checkpoint, preset, settings and vocabulary do not agree (the message lists how), or model_dir holds
            a model already.
    """
    config = configure(checkpoint, preset, model or {}, evaluation or {})
    if vocabulary.vocab_size != config.model.vocab_size:
        raise InputError(
            f"the vocabulary has {vocabulary.vocab_size:,} entries, the checkpoint {config.model.vocab_size:,}: "
            "give the one that was published with it"
        )
    if model_dirs.read_config(model_dir) is not None:
        raise InputError(f"{model_dir} holds a model already: give another --model_dir")
    model_of_config = families.family_of(config).model(config.model)
    load(model_of_config, checkpoint)
    tf.io.gfile.makedirs(model_dir)
    vocabulary.save(model_dir)
    names = [vocabulary.spec["file"]] if "file" in vocabulary.spec else []
    files = {name: digest(tf.io.gfile.join(model_dir, name)) for name in names}
    weights = tf.train.Checkpoint(model=model_dirs.variables_by_path(model_of_config))
    weights.write(model_dirs.checkpoint_path(model_dir, 0))
    learned = _Learned(dataset, vocabulary.unit, "imported", vocabulary, vocabulary.spec, files)
    model_dirs.write_description(model_dir, config, learned)
    return config


def configure(
    checkpoint: Checkpoint, preset: Preset | None, model: dict[str, Any], evaluation: dict[str, Any]
) -> Config:
    """The Config of an imported checkpoint.

    The architecture follows from the weights, and the conventions from the source. Settings of evaluation come from the
    caller, else from the preset, else from the source, whose mem_len may be that of training.

    Raises:
        InputError: settings that contradict the weights, or a setting that is not given anywhere.
    """
    told = checkpoint.architecture
    fixed = {name: value for name, value in model.items() if name in told}
    expected = {name: getattr(preset.config.model, name) for name in told} if preset else {}
    differing = [
        f"{name}={value!r} (the checkpoint: {told[name]!r})"
        for name, value in (expected | fixed).items()
        if value != told[name]
    ]
    if differing:
        raise InputError(f"{checkpoint.file.path} is another model than asked for: {', '.join(differing)}")
    base = preset.config if preset else TransformerXLRunConfig(eval=EvalConfig(batch_size=1, tgt_len=128))
    asked = evaluation if preset else checkpoint.evaluation | evaluation
    if preset is None and "mem_len" not in asked:
        raise InputError(
            f"{checkpoint.file.path} does not say how much memory it is meant for: give --preset, or --mem_len, "
            "--clamp_len and --same_length"
        )
    if "cutoffs" not in told and preset is None and "cutoffs" not in model:
        raise InputError(f"{checkpoint.file.path} does not say where its clusters end: give --preset or --cutoffs")
    base_model = {} if preset else {"mem_len": asked["mem_len"]}
    return dataclasses.replace(
        base,
        model=update(base.model, base_model | checkpoint.settings | told | model),
        eval=update(base.eval, asked),
    )

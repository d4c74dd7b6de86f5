"""A model_dir: config.json, the vocabulary, checkpoints. Training writes one; inference needs nothing else.

config.json         family, task and every setting (Config)
corpus.json         the data the model was trained on: name, unit, fingerprint, vocabulary
labels.json         the names of the classes, in the order of their numbers, if there are any
columns.json        how its files are read: the columns that were named, and the scheme of tags
vocabulary files    as `Vocabulary.save` writes them
ckpt-STEP.*         TensorFlow checkpoints: the newest and the best
damaged-ckpt-STEP.* checkpoints that could not be read when the run was continued
metrics.jsonl       one line per log_steps
evaluations.jsonl   one line per evaluation during training: step, and all results of `evaluate`
bad_steps.jsonl     one line per host loop with skipped steps: the first of them
lock.json           the process that trains, while it does
tensorboard/        event files
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.data.examples.example_set import TaskCorpus
from txl_tf.data.manifest import Corpus
from txl_tf.data.tables.columns import COLUMNS_FILE, Columns, table_columns
from txl_tf.data.vocabularies import Vocabulary, load_vocabulary
from txl_tf.devices import host_memory
from txl_tf.errors import InputError, naming
from txl_tf.runs.checkpoints import (
    WEIGHT_PARTS,
    checkpoint_path,
    checkpoint_steps,
    read_checkpoint,
    refuse_not_finite,
    stored_weights,
    variables_by_path,
)
from txl_tf.runs.parameters import LAYER, count_layers, frozen_paths
from txl_tf.settings.run import FORMAT, Config, parse_config
from txl_tf.storage.files import one_level_down, read_json, read_record, read_records, read_text, write_atomically
from txl_tf.storage.strict_json import NUMBER, Fields, check_record

CONFIG_FILE = "config.json"
CORPUS_FILE = "corpus.json"
LABELS_FILE = "labels.json"
METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
BAD_STEPS_FILE = "bad_steps.jsonl"
EVALUATION: dict[str, type | tuple[type, ...]] = {"loss": NUMBER}
"""The fields that a line of evaluations.jsonl must have, besides its step."""
_INCOMPLETE = "the model_dir is incomplete: copy it again"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model with weights from a checkpoint, its config and its vocabulary.

    `model_dir` is the directory it was read from; `weights` is "last" or "average"; `labels` are the names of the
    classes, if it has any; `quantize` is the type that its weights are rounded to.
    """

    model_dir: str
    model: keras.Model
    weights: str
    config: Config
    vocabulary: Vocabulary
    vocabulary_identity: dict[str, Any]
    step: int
    labels: tuple[str, ...] = ()
    quantize: str | None = None

    def class_names(self) -> tuple[str, ...]:
        """The labels; an imported classifier without labels has the numbers of its classes."""
        return self.labels or tuple(map(str, range(getattr(self.config.model, "n_class", 0))))

    def dev_metrics(self) -> dict[str, float]:
        """The metrics of this step on dev; {} if it was not evaluated there."""
        lines = read_evaluations(self.model_dir, {"metrics": dict})
        return next((line["metrics"] for line in lines if line["step"] == self.step), {})

    def require_vocabulary_of(self, corpus: Corpus) -> None:
        """Raises InputError unless the model has the vocabulary of a corpus."""
        if vocabulary_identity(corpus) != self.vocabulary_identity:
            raise InputError(
                f"{self.model_dir} was trained with another vocabulary than that of {corpus.data_dir}: give its corpus"
            )


def read_config(model_dir: str) -> Config | None:
    """The Config of a model_dir, or None if there is none yet."""
    path = tf.io.gfile.join(model_dir, CONFIG_FILE)
    return families.config_from_json(read_text(path), path) if tf.io.gfile.exists(path) else None


def config_format(model_dir: str) -> int:
    """The format version of a model_dir's config.json; the newest format if there is no file yet."""
    path = tf.io.gfile.join(model_dir, CONFIG_FILE)
    return parse_config(read_text(path), path)["format"] if tf.io.gfile.exists(path) else FORMAT


class ImportedCorpus(NamedTuple):
    """The facts about an imported model's corpus that a model_dir records; see Corpus."""

    dataset: str
    fingerprint: str
    vocabulary: Vocabulary
    vocabulary_spec: dict[str, Any]
    files: dict[str, str]


LearnedCorpus = Corpus | TaskCorpus | ImportedCorpus


def write_description(model_dir: str, config: Config, corpus: LearnedCorpus) -> None:
    """Writes config.json, corpus.json, the vocabulary and, for a TaskCorpus, labels.json and columns.json."""
    tf.io.gfile.makedirs(model_dir)
    corpus.vocabulary.save(model_dir)
    about: dict[str, Any] = {
        "dataset": corpus.dataset,
        "unit": corpus.vocabulary.unit,
        "fingerprint": corpus.fingerprint,
        "vocabulary": vocabulary_identity(corpus),
    }
    if isinstance(corpus, TaskCorpus):
        about["examples"] = {"train": len(corpus.train), "dev": len(corpus.dev)}
        about["pairs"] = corpus.pairs
    if isinstance(corpus, Corpus):
        about["data_dir"] = corpus.data_dir if "://" in corpus.data_dir else os.path.abspath(corpus.data_dir)
    write_atomically(tf.io.gfile.join(model_dir, CORPUS_FILE), json.dumps(about, indent=2) + "\n")
    if isinstance(corpus, TaskCorpus) and corpus.labels:
        write_labels(model_dir, corpus.labels)
    if isinstance(corpus, TaskCorpus) and corpus.columns:
        columns = corpus.columns
        if tf.io.gfile.exists(tf.io.gfile.join(model_dir, CONFIG_FILE)):  # a run keeps the rules that it began with
            columns = dataclasses.replace(columns, scheme=table_columns(model_dir, None, labelled=True).scheme)
        write_columns(model_dir, columns)
    write_atomically(tf.io.gfile.join(model_dir, CONFIG_FILE), config.to_json())


def write_labels(model_dir: str, labels: Sequence[str]) -> None:
    """Writes labels.json, the names of the classes in the order of their numbers."""
    content = json.dumps(labels, ensure_ascii=False, indent=0) + "\n"
    write_atomically(tf.io.gfile.join(model_dir, LABELS_FILE), content)


def write_columns(model_dir: str, columns: Columns) -> None:
    """Writes columns.json: how later files are read."""
    content = json.dumps(columns.names, ensure_ascii=False, indent=2) + "\n"
    write_atomically(tf.io.gfile.join(model_dir, COLUMNS_FILE), content)


def read_labels(model_dir: str) -> tuple[str, ...]:
    """The names of a model_dir's classes, in the order of their numbers; () if it has none."""
    path = tf.io.gfile.join(model_dir, LABELS_FILE)
    labels = read_json(path, _INCOMPLETE) if tf.io.gfile.exists(path) else []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{path} must be a JSON list of texts: {_INCOMPLETE}")
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise InputError(f"{path} names the class {twice[0]!r} more than once: every class needs a name of its own")
    config = read_config(model_dir)
    classes = getattr(config.model, "n_class", len(labels)) if config else len(labels)
    if labels and len(labels) != classes:
        raise InputError(
            f"{path} names {counted(len(labels), 'class', 'classes')}, the model has {classes:,}: correct it"
        )
    return tuple(labels)


def read_vocabulary(model_dir: str) -> tuple[Vocabulary, dict[str, Any]]:
    """The vocabulary of a model_dir, and the `vocabulary_identity` that corpus.json holds.

    InputError if a file is missing or cannot be read, or the vocabulary's file is not the one that training wrote.
    """
    identity = read_corpus_facts(model_dir)["vocabulary"]
    return load_vocabulary(model_dir, identity["spec"], identity["sha256"], _INCOMPLETE), identity


def read_corpus_facts(model_dir: str) -> dict[str, Any]:
    """What corpus.json holds: at least unit, fingerprint and vocabulary, the `vocabulary_identity`; or InputError."""
    path = tf.io.gfile.join(model_dir, CORPUS_FILE)
    facts = read_record(path, {"unit": str, "fingerprint": str, "vocabulary": dict}, _INCOMPLETE)
    check_record(facts["vocabulary"], f"{path}, vocabulary", {"spec": dict, "sha256": dict}, _INCOMPLETE)
    return facts


def trained_on(model_dir: str) -> str | None:
    """The directory of the corpus that training last read; None if a model_dir does not say it."""
    path = tf.io.gfile.join(model_dir, CORPUS_FILE)
    return read_record(path, {}, _INCOMPLETE).get("data_dir") if tf.io.gfile.exists(path) else None


def vocabulary_identity(corpus: LearnedCorpus) -> dict[str, Any]:
    """The facts that must be equal in a model and a corpus so that their ids mean the same."""
    return {"spec": corpus.vocabulary_spec, "sha256": corpus.files}


def load_trained(
    model_dir: str,
    weights: str | None = None,
    checkpoint: str | None = None,
    change: Callable[[Config], Config] | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
) -> TrainedModel:
    """The model of a model_dir, local or gs://, with the weights of one of its checkpoints.

    Args:
        weights: "last", or "average" by the run's ema_decay or average_from_step; None: the average if there is one.
        checkpoint: "latest", or "best" by the evaluations during training; None: see `chosen_step`.
        change: called with the settings; returns the settings to use, which may differ in those that change no weight,
            such as the memory's length.
        dtype: one of `choices.DTYPES`; None: as in training.
        quantize: one of `choices.QUANTIZE`: the weights of a Transformer-XL's layers and softmax are rounded as if
            stored in int8 with a scale for each output channel; None: they are not.

    Raises:
        InputError: something is missing: the model_dir, a checkpoint in it, the average, or an evaluation to choose
            the best checkpoint by. Or the checkpoint does not fit config.json, or has a weight that is not finite. Or
            the vocabulary is not the one of training.
    """
    config = read_config(model_dir)
    if config is None:
        below = one_level_down(model_dir, CONFIG_FILE)
        remedy = f"{below} has one" if below else "give a directory that scripts/train.py wrote, or hf://OWNER/NAME"
        raise InputError(f"{model_dir} has no {CONFIG_FILE}: {remedy}")
    config = change(config) if change else config
    config = config.replace(model={"dtype": dtype}) if dtype else config
    if quantize and not families.family_of(config).generates:
        title = families.TRANSFORMER_XL.title
        raise InputError(f"{model_dir} holds {families.with_article(config)}: quantize is for {title} alone, omit it")
    if weights == "average" and not config.train.averages_weights:
        raise InputError(f"{model_dir} has no averaged weights: its run had neither ema_decay nor average_from_step")
    weights = weights or ("average" if config.train.averages_weights else "last")
    steps = checkpoint_steps(model_dir)
    if not steps:
        raise InputError(f"{model_dir} has no checkpoint yet: train until the first save (save_steps)")
    step = chosen_step(model_dir, config, checkpoint)
    vocabulary, identity = read_vocabulary(model_dir)
    with naming(model_dir), host_memory.without_initial_values():  # the checkpoint has all of them
        model = families.make_model(config)
    variables = variables_by_path(model)
    averaged = {variable.path for variable in model.trainable_variables}
    averaged -= frozen_paths(config.train.freeze, variables)
    parts: dict[str, dict[str, tf.Variable]] = {}
    for name, variable in variables.items():  # weights that are not trained have no average
        parts.setdefault(WEIGHT_PARTS[weights if name in averaged else "last"], {})[name] = variable
    read_checkpoint(checkpoint_path(model_dir, step), **parts)
    refuse_not_finite(variables, checkpoint_path(model_dir, step))
    if quantize:
        model.round_to_int8()
    return TrainedModel(
        model_dir=model_dir,
        model=model,
        weights=weights,
        config=config,
        vocabulary=vocabulary,
        vocabulary_identity=identity,
        step=step,
        labels=read_labels(model_dir),
        quantize=quantize,
    )


def chosen_step(model_dir: str, config: Config, checkpoint: str | None = None) -> int:
    """The step of the checkpoint in `model_dir` whose weights are used: the one rule for all commands.

    `checkpoint` is "latest" or "best". None: the newest, but for a fine-tuned model the best on dev; if none was
    evaluated and there are several, a line says that the newest is used. InputError if the best is asked for, and none
    was evaluated.
    """
    steps = checkpoint_steps(model_dir)
    tuned = checkpoint is None and config.task in families.tuned_configs()
    best = best_step(model_dir) if tuned or checkpoint == "best" else None
    if checkpoint == "best" and best is None:
        raise InputError(
            f"{model_dir} has no evaluated checkpoint, so there is no best one: "
            "use --checkpoint=latest, or train with --eval_steps above 0"
        )
    if tuned and best is None and len(steps) > 1:
        print(
            f"{model_dir}: no checkpoint was evaluated on dev, so the newest is used, step {steps[-1]:,}",
            file=sys.stderr,
        )
    return steps[-1] if best is None else best


def last_bad_step(model_dir: str) -> int | None:
    """The last recorded step whose loss or gradient was not finite, or None."""
    lines = read_log(tf.io.gfile.join(model_dir, BAD_STEPS_FILE))
    return max((line["step"] for line in lines), default=None)


def best_step(model_dir: str) -> int | None:
    """The step with the lowest `score` on valid among those with a checkpoint, the first of equals; None if none."""
    steps = checkpoint_steps(model_dir)
    lines = read_evaluations(model_dir)
    return min((line for line in lines if line["step"] in steps), key=score, default={}).get("step")


def read_evaluations(model_dir: str, fields: Fields | None = None) -> list[dict[str, Any]]:
    """The lines of a model_dir's evaluations.jsonl. All have a loss and these fields; "error" is a number."""
    path = tf.io.gfile.join(model_dir, EVALUATIONS_FILE)
    lines = read_log(path, EVALUATION | dict(fields or {}))
    for line in lines:
        check_record({"error": None} | line, path, {"error": (*NUMBER, type(None))}, "correct it or remove the file")
    return lines


def score(evaluation: dict[str, Any]) -> float:
    """The number that is least in the best evaluation: "error" if it has one, otherwise "loss"; NaN counts as infinite.

    The error of a fine-tuned model is 1 - its task's main metric.
    """
    found = evaluation.get("error", evaluation["loss"])
    return math.inf if found is None or math.isnan(found) else found


def read_weights(source: str, variables: Mapping[str, tf.Variable], head: str = "", layers: int = 0) -> list[str]:
    """Assigns the last weights of a run to a model's variables; the paths of those that stayed as they were.

    Args:
        source: the path of a checkpoint, or a model_dir: then see `chosen_step`.
        variables: by their Keras paths (`variables_by_path`).
        head: the beginning of the paths of weights that the run need not have: those that it lacks, or has in another
            shape, stay as they are. "": it must have all weights.
        layers: how many of the run's first layers are taken; a line says so, and further layers stay as they are.
            0: all are taken, and the run must have the same number of layers as the model.

    Raises:
        InputError: there is no checkpoint, it cannot be read, it is of a model with other sizes or another number of
            layers, or a weight in it is not finite.
    """
    path: str | None = source
    if tf.io.gfile.isdir(source):
        steps, config = checkpoint_steps(source), read_config(source)
        step = chosen_step(source, config) if steps and config else max(steps, default=None)
        path = None if step is None else checkpoint_path(source, step)
        if steps and step != steps[-1]:
            print(f"{source}: taking its weights of step {step:,}, the best on dev", flush=True)
    if path is None or not tf.io.gfile.exists(f"{path}.index"):
        raise InputError(
            f"--warm_start={source} is not a checkpoint: give a model_dir, or a checkpoint such as runs/a/ckpt-400"
        )
    theirs, ours = count_layers(stored_weights(path)), count_layers(variables)
    if theirs and (layers > min(theirs, ours) or (not layers and theirs != ours)):
        raise InputError(
            f"{path} has {counted(theirs, 'layer')}, the model {ours}: give --n_layer={theirs}, or "
            f"--warm_start_layers=N to take its first N layers, at most {min(theirs, ours)}"
        )
    taken = {
        name: variable
        for name, variable in variables.items()
        if not layers or not (match := LAYER.search(name)) or int(match[1]) < layers
    }
    fresh = read_checkpoint(path, head, **{WEIGHT_PARTS["last"]: taken})
    refuse_not_finite(taken, path)
    if layers:
        print(
            f"from {path}: its first layers ({layers} of {theirs}) and the weights outside the layers; the model's "
            f"other layers are new ({ours - layers} of {ours})",
            flush=True,
        )
    return fresh + [name for name in variables if name not in taken]


def read_log(path: str, fields: Fields | None = None) -> list[dict[str, Any]]:
    """The lines of one of a run's logs, each with a step and further fields; empty if there is no file."""
    remedy = "correct it or remove the file"
    return read_records(path, {"step": int} | dict(fields or {}), remedy) if tf.io.gfile.exists(path) else []

"""Checks which settings may change when training is continued, and which files it may overwrite."""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf

from txl_tf.data.tables.columns import COLUMNS_FILE
from txl_tf.errors import InputError
from txl_tf.metrics import error_files
from txl_tf.runs import checkpoints
from txl_tf.runs import model_dir as model_dirs
from txl_tf.settings.run import Config, TrainConfig
from txl_tf.storage.files import digest
from txl_tf.storage.literal_paths import listed

FREE_TO_CHANGE = {
    "accumulate_steps",
    "steps_per_loop",
    "log_steps",
    "save_steps",
    "eval_steps",
    "early_stop_evals",
    "keep_checkpoints",
    "max_bad_steps",
    "eval_tokens",
    "profile_steps",
    "peak_tflops",
    "remat",
    "shard_optimizer",
    "bfloat16_gradients",
}
"""Settings that may differ when a run is continued: they change updates by rounding at most."""


def refuse_other_run(model_dir: str, new: Config, corpus: model_dirs.LearnedCorpus) -> None:
    """Raises InputError if model_dir holds another run than of these settings and training data, or foreign files.

    It may be empty, or missing.
    """
    old = model_dirs.read_config(model_dir)
    if old is None:
        _refuse_foreign_files(model_dir, corpus)
        return
    refuse_other_settings(old, new, model_dir)
    facts = model_dirs.read_corpus_facts(model_dir)
    if facts["vocabulary"] != model_dirs.vocabulary_identity(corpus):
        raise InputError(
            f"{model_dir} holds a run with another vocabulary: give the data it began with, or another --model_dir"
        )
    if facts["fingerprint"] != corpus.fingerprint:
        began = f", {facts['data_dir']}" if "data_dir" in facts else ""
        raise InputError(
            f"{model_dir} holds a run on other data: give the data it began with{began}, or another --model_dir"
        )
    _refuse_other_vocabulary(model_dir, corpus)


def _refuse_other_vocabulary(model_dir: str, corpus: model_dirs.LearnedCorpus) -> None:
    """Raises InputError if model_dir has a file with the name of a vocabulary's file but other content."""
    for name, sha256 in corpus.files.items():
        path = tf.io.gfile.join(model_dir, name)
        if tf.io.gfile.exists(path) and digest(path) != sha256:
            raise InputError(f"{path} differs from the vocabulary of the data: remove it")


def _refuse_foreign_files(model_dir: str, corpus: model_dirs.LearnedCorpus) -> None:
    """Raises InputError if there are files with the names of a run's files, unless a killed start left them."""
    if not tf.io.gfile.isdir(model_dir):
        return
    _refuse_other_vocabulary(model_dir, corpus)
    own = {model_dirs.METRICS_FILE, model_dirs.EVALUATIONS_FILE, model_dirs.BAD_STEPS_FILE, model_dirs.LABELS_FILE}
    own |= {COLUMNS_FILE, model_dirs.CORPUS_FILE, *error_files.NAMES}
    found = set(listed(model_dir))
    if model_dirs.CORPUS_FILE in found:
        facts = model_dirs.read_corpus_facts(model_dir)
        if (facts["fingerprint"], facts["vocabulary"]) == (corpus.fingerprint, model_dirs.vocabulary_identity(corpus)):
            return
    saved = itertools.chain.from_iterable(checkpoints.checkpoint_files(model_dir).values())
    foreign = sorted({*found & own, *saved})
    if foreign:
        raise InputError(
            f"{tf.io.gfile.join(model_dir, foreign[0])} would be overwritten, and without {model_dirs.CONFIG_FILE} it "
            "does not belong to a run: remove it, or give another --model_dir"
        )


def extended(config: Config, model_dir: str) -> Config:
    """The Config of the run in model_dir with more steps, config.train.train_steps; earlier steps keep their rates.

    InputError if there is no run, it has no fewer steps, or other settings differ.
    """
    old, steps = model_dirs.read_config(model_dir), config.train.train_steps
    if old is None:
        raise InputError(f"--extend: {model_dir} has no {model_dirs.CONFIG_FILE}, so there is no run to extend")
    if steps < old.train.train_steps or (steps == old.train.train_steps and not old.train.extended_at):
        raise InputError(
            f"--extend: {model_dir} is a run of {old.train.train_steps:,} steps, and steps that were made stay: give "
            f"--train_steps above {old.train.train_steps:,}, or begin a new run in another --model_dir"
        )
    history = old.train.extended_at if steps == old.train.train_steps else old.train.ends
    new = config.replace(train={"extended_at": history})
    refuse_other_settings(old, new, model_dir)
    return new


def _about_steps(old: int, new: int) -> str:
    if new == old:
        return ""
    return "; more steps need --extend" if new > old else "; train_steps cannot be lowered: steps that were made stay"


def as_begun(config: Config, model_dir: str) -> Config:
    """The Config with what the run in model_dir keeps: steps without XLA, which rounds otherwise, and its extensions.

    The extensions say which rates the steps had.
    """
    old = model_dirs.read_config(model_dir)
    if old is None:
        return config
    kept: dict[str, Any] = {"jit_compile": config.train.jit_compile and old.train.jit_compile}
    if config.train.ops == TrainConfig.ops:  # not asked for
        kept["ops"] = old.train.ops
    if old.train.train_steps == config.train.train_steps:
        kept["extended_at"] = old.train.extended_at
    return config.replace(train=kept)


def refuse_other_settings(old: Config, new: Config, model_dir: str) -> None:
    """Raises InputError if training with `new` would differ from training with `old`, the model_dir's Config."""
    kinds = [f"a {config.family} trained for {config.task}" for config in (old, new)]
    if kinds[0] != kinds[1]:
        raise InputError(f"{model_dir} holds {kinds[0]}, not {kinds[1]}: give another --model_dir")
    extends = new.train.extended_at == old.train.ends and new.train.train_steps > old.train.train_steps
    free = FREE_TO_CHANGE | {"extended_at"} | ({"train_steps"} if extends else set())
    differences = []
    for group in ("model", "data", "objective", "train"):
        before, now = vars(getattr(old, group)), vars(getattr(new, group))
        changed = [name for name in now if now[name] != before[name] and name not in free]
        differences += [f"{name}={now[name]!r} (was {before[name]!r})" for name in changed]
    if differences:
        raise InputError(
            f"{model_dir} holds a run with other settings: {', '.join(differences)}; "
            "give the same settings or another --model_dir"
            + ("" if extends else _about_steps(old.train.train_steps, new.train.train_steps))
        )

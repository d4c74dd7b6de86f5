"""Training from Python: a prepared corpus becomes a trained model_dir, as scripts/train.py makes it.

Examples:
    >>> txl_tf.prepare("text", "data/books", source="books/*.txt")
    >>> model = txl_tf.train("data/books", "runs/books", preset="demo", train_steps=500)
"""

from __future__ import annotations

import difflib
from typing import Any

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.api import Model, load
from txl_tf.data.manifest import Corpus, load_corpus
from txl_tf.devices.distribute import make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.causal.text_sampler import TextSampler
from txl_tf.inference.evaluate import Evaluator
from txl_tf.runs.model_dir import read_config
from txl_tf.settings.groups import options
from txl_tf.settings.run import GROUP_PREFIXES, Config
from txl_tf.training import loop


def train(
    data: str,
    model_dir: str,
    preset: str | None = None,
    *,
    strategy: tf.distribute.Strategy | None = None,
    **settings: Any,
) -> Model:
    """Trains a model on a prepared corpus; called again with the same model_dir, it continues.

    The result is that of scripts/train.py with the same settings, bit for bit.

    Args:
        data: the folder that `prepare` wrote; local or gs://.
        model_dir: where the run is written; local or gs://.
        preset: the configuration to start from; None: a run in model_dir continues.
        strategy: from `txl_tf.make_strategy`; None: all GPUs of this machine, or its CPU.
        settings: of the run, named as the command's flags: train_steps=500, d_model=256, eval_mem_len=1024.

    Returns:
        the model of the run's newest checkpoint.

    Raises:
        InputError: a setting is unknown or out of range, or the corpus or model_dir cannot be used.
        TrainingStoppedError: after Ctrl-C or SIGTERM; the run is saved.
    """
    presets = families.presets()
    if preset is not None and preset not in presets:
        raise InputError(f"preset={preset!r} is unknown: choose from {', '.join(sorted(presets))}")
    config = presets[preset].config if preset else read_config(model_dir)
    if config is None:
        raise InputError(f"{model_dir} has no config.json, so there is no run to continue: give preset=")
    given = by_group(config, settings)
    strategy, corpus = strategy or make_strategy(), load_corpus(data)
    task = families.task_of(config, families.Pretraining)
    run(task.fit_to_corpus(config, corpus, given) if preset else config.replace(**given), corpus, model_dir, strategy)
    return load(model_dir)


def by_group(config: Config, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings that are named as flags, as {group: {field: value}}; InputError for one that the config lacks."""
    places = {
        GROUP_PREFIXES.get(group, "") + name: (group, name)
        for group, kind in config.groups().items()
        for name in options(kind)
    }
    given: dict[str, dict[str, Any]] = {group: {} for group in config.groups()}
    for name, value in settings.items():
        if name not in places:
            near = difflib.get_close_matches(name, places, 1)
            raise InputError(f"{name} is not a setting" + (f": did you mean {near[0]}?" if near else ""))
        group, field = places[name]
        given[group][field] = value
    return given


def run(config: Config, corpus: Corpus, model_dir: str, strategy: tf.distribute.Strategy) -> keras.Model:
    """Trains as `loop.train`, with evaluations on valid, if the corpus has it, and samples of text."""

    def evaluator(model: keras.Model) -> Evaluator:
        made = Evaluator(config, model, corpus, "valid", strategy, tokens=config.train.eval_tokens)
        if made.part:
            print(made.part, flush=True)
        return made

    def sampler(model: Any) -> TextSampler | None:
        if not (families.family_of(config).generates and model.attention.cacheable):
            return None
        _, reach = config.for_evaluation()  # type: ignore[attr-defined]
        return TextSampler(model, corpus, reach, jit_compile=config.train.jit_compile)

    return loop.train(config, corpus, model_dir, strategy, evaluator if "valid" in corpus.splits else None, sampler)

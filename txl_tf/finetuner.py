"""Fine-tuning from Python: a pretrained model and two files become a trained model_dir.

Examples:
    >>> tuner = Finetuner("runs/xlnet", "classification", "train.tsv", "dev.tsv", settings={"data": {"batch_size": 16}})
    >>> results = tuner.run("runs/sentiment", seeds=(1, 2, 3))
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.data.tasks.corpus import TaskCorpus
from txl_tf.data.tasks.table_files import Columns
from txl_tf.data.tasks.tables import imbalance
from txl_tf.devices.distribute import is_chief, make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.tasks.task_evaluator import FEW_UPDATES, TaskEvaluator, no_better, what_to_try
from txl_tf.runs import model_dir as model_dirs
from txl_tf.settings.run import Config
from txl_tf.storage.strict_json import Fields
from txl_tf.training.loop import train

EPOCHS = 3
"""How often the examples are read, where the number of steps is not given."""


class Finetuner:
    """A pretrained model and a task's examples.

    Args:
        init: a model_dir with a pretrained model, ours or imported; its vocabulary and sizes are taken over.
        task: a name in `families.tuned_configs`.
        train_file, dev_file: the examples; local or gs://.
        settings: of the run, {group: {field: value}}. If the number of steps is not given, it is EPOCHS epochs, with a
            tenth of them for warmup, and an evaluation after each epoch.
        columns: names of a table's columns.
        untrained: whether only the vocabulary and the sizes are taken over, and all weights are new: to see what
            pretraining is worth.
        examples_dir: where encoded examples are kept if there are many; None: nowhere.
        strategy: from `distribute.make_strategy`; None: the default.

    Attributes:
        config: the run's Config; each run has a seed of its own.
        corpus: a TaskCorpus.

    Raises:
        InputError: the model, a file or a setting cannot be used.
    """

    def __init__(
        self,
        init: str,
        task: str,
        train_file: str,
        dev_file: str,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        columns: Columns | None = None,
        untrained: bool = False,
        examples_dir: str | None = None,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.strategy = strategy or make_strategy()
        pretrained = model_dirs.read_config(init)
        if pretrained is None:
            raise InputError(f"--init={init} has no {model_dirs.CONFIG_FILE}: give the directory of a pretrained model")
        config_class = families.tuned_configs().get(task)
        if config_class is None:
            raise InputError(f"--task={task} is unknown: choose from {', '.join(families.tuned_configs())}")
        if config_class.family != pretrained.family:
            raise InputError(
                f"--init={init} holds {families.with_article(families.family_of(pretrained).title)}, which is not "
                f"fine-tuned for {task}: give {families.with_article(families.family_title(config_class))}"
            )
        vocabulary, identity = model_dirs.read_vocabulary(init)
        for name in ("sep", "cls"):
            vocabulary.special_token(name)

        given = {group: dict(values) for group, values in (settings or {}).items()}
        config = config_class.from_groups({}, "settings").replace(**given | {"train": {}})
        fine_tuning = families.fine_tuning_of(config)

        def examples(path: str, name: str, labels: tuple[str, ...] | None) -> Any:
            return fine_tuning.examples(
                fine_tuning.read(path, columns or Columns(), True),
                config,
                vocabulary,
                origin={"vocabulary": identity, "task": task},
                labels=labels,
                directory=tf.io.gfile.join(examples_dir, name) if examples_dir and is_chief(self.strategy) else None,
            )

        train_set, known = examples(train_file, "train", None), model_dirs.read_labels(init)
        if train_set.labels and set(train_set.labels) <= set(known) and known != train_set.labels:
            train_set = examples(train_file, "train", known)  # the pretrained head keeps its classes
        if not train_set.learned:
            raise InputError(
                f"--train={train_file}: no answer stands where the file says so, so there is nothing to learn: correct "
                "answer_start, which counts characters from 0, or give --find_answers"
            )
        dev_set = examples(dev_file, "dev", train_set.labels or None)
        self.corpus = TaskCorpus(
            train_set, dev_set, vocabulary, identity["spec"], identity["sha256"], data_dir=os.path.dirname(train_file)
        )
        config = fine_tuning.fit(config, pretrained, train_set).replace(model=given.get("model", {}))
        counts = _counts(config, given.get("train", {}), train_set.learned)
        self.config: Config = config.replace(
            train=given.get("train", {}) | counts | {"warm_start": "" if untrained else init}
        )

    def run(self, model_dir: str, seeds: Sequence[int] = ()) -> dict[str, Any]:
        """Trains, and evaluates on dev; continues runs that are there.

        Args:
            model_dir: where to write; with several seeds each has a sub-directory, "seed-1" and so on.
            seeds: of the runs; (): the settings' one.

        Returns:
            The result of the run, as `summary` gives it.
        """
        seeds = tuple(seeds) or (self.config.train.seed,)
        if len(set(seeds)) < len(seeds):
            raise InputError(f"--seeds={','.join(map(str, seeds))} names a seed twice")
        for name, examples in (("train", self.corpus.train), ("dev", self.corpus.dev)):
            for remark in examples.remarks:
                print(f"{name}: {remark}", flush=True)
        if few := few_updates(self.config, self.corpus.train.learned):
            print(few, flush=True)
        if self.corpus.labels and (label := self.corpus.train.features["label"]).ndim == 1:
            print(f"train: {imbalance(self.corpus.labels, label)}", flush=True)
        results = []
        for seed in seeds:
            folder = model_dir if len(seeds) == 1 else tf.io.gfile.join(model_dir, f"seed-{seed}")
            if len(seeds) > 1:
                print(f"seed {seed}: {folder}", flush=True)
            results.append(self._run_one(folder, seed))
        line = summary(self.config, results)
        if len(seeds) > 1:
            name = families.fine_tuning_of(self.config).criterion
            mean, spread = (math.nan if line[key] is None else line[key] for key in (name, f"{name}_std"))
            print(f"{len(seeds)} seeds: {name} {mean:.4f}, standard deviation {spread:.4f}", flush=True)
        return line

    def _run_one(self, model_dir: str, seed: int) -> dict[str, Any]:
        """Trains one run; its evaluation on dev with the smallest error."""
        config = self.config.replace(train={"seed": seed})
        train(config, self.corpus, model_dir, self.strategy, self._evaluator(config))
        fields: Fields = {"examples": int, "metrics": dict, "collapsed": (str, type(None))}
        lines = model_dirs.read_evaluations(model_dir, fields)
        result = min(lines, key=model_dirs.score)
        said = no_better(result["metrics"], self.corpus.dev, "dev")
        if result["collapsed"]:
            said = f"this run has collapsed: {result['collapsed']}"
        if said:
            print(f"{model_dir}: {said}; try {what_to_try(config)}", flush=True)
        return {"seed": seed} | result

    def _evaluator(self, config: Config) -> Any:
        def make(model: keras.Model) -> TaskEvaluator:
            return TaskEvaluator(config, model, self.corpus.dev, self.strategy, self.corpus.vocabulary)

        return make


def few_updates(config: Config, examples: int) -> str | None:
    """What to say of a run with few updates, which often ends where it began; None if there are enough."""
    steps, size = config.train.train_steps, config.data.batch_size
    if steps >= FEW_UPDATES:
        return None
    return (
        f"this run has only {counted(steps, 'update')} ({counted(examples, 'example')} in batches of {size:,}) with a "
        f"learning_rate of {config.train.learning_rate:g}, which may teach it little: more "
        "--train_steps, a smaller --batch_size or a higher --learning_rate give it more"
    )


def summary(config: Config, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The line that reports runs on dev: of one run its metrics; of several their means and standard deviations."""
    line: dict[str, Any] = {"task": config.task, "split": "dev", "examples": results[0]["examples"]}
    names = ("loss", *results[0]["metrics"])
    runs = [
        {"seed": run["seed"], "step": run["step"], "loss": run["loss"], **run["metrics"], "collapsed": run["collapsed"]}
        for run in results
    ]
    if len(runs) == 1:
        return {name: _finite(value) for name, value in (line | runs[0]).items()}
    for name in names:
        values = [run[name] for run in runs]
        line[name] = _finite(statistics.fmean(values))
        line[f"{name}_std"] = _finite(statistics.stdev(values))
    return line | {"runs": [{name: _finite(value) for name, value in run.items()} for run in runs]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _counts(config: Config, given: Mapping[str, Any], examples: int) -> dict[str, int]:
    """The numbers of steps that were not given: they follow from the number of examples."""
    epoch = -(-examples // config.data.batch_size)
    steps = given.get("train_steps", EPOCHS * epoch)
    period = min(epoch, steps)
    return {
        "train_steps": steps,
        "warmup_steps": given.get("warmup_steps", steps // 10),
        "eval_steps": given.get("eval_steps", period) or steps,  # at least once, at the end
        "save_steps": given.get("save_steps", period),
        "log_steps": given.get("log_steps", min(max(period // 10, 1), 100)),
    }

"""Fine-tuning from Python: a pretrained model and two files become a trained model_dir.

Examples:
    >>> tuner = Finetuner("runs/xlnet", "classification", "train.tsv", "dev.tsv", settings={"data": {"batch_size": 16}})
    >>> results = tuner.run("runs/sentiment", seeds=(1, 2, 3))
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.data.examples.example_set import ExamplePlan, TaskCorpus
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.dataset_folders import split_of
from txl_tf.data.tables.frames import table_of
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.devices.distribute import is_chief, make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.tasks.evaluator import FEW_UPDATES, TaskReader, no_better, task_result, what_to_try
from txl_tf.metrics.error_files import error_files
from txl_tf.published.directly import usable
from txl_tf.runs import model_dir as model_dirs
from txl_tf.settings.run import Config
from txl_tf.storage.files import write_atomically
from txl_tf.storage.strict_json import Fields
from txl_tf.tasks.base import parted
from txl_tf.tasks.texts import imbalance
from txl_tf.training.loop import train

EPOCHS, MOST_EPOCHS, UPDATES = 3, 20, 300
"""Without train_steps, the examples are read EPOCHS times, or up to MOST_EPOCHS times to make UPDATES updates."""

TENTHS = 10
"""The number of parts of the examples, one of which is held out."""

FEW_EXAMPLES = 1_000
"""With fewer examples than this, batches are smaller, for more updates."""

_FIRST_WEIGHTS = ("warm_start", "origin")
"""The settings that say where a run's first weights are from."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The arguments of Finetuner that are seldom given; it says what they are."""

    untrained: bool = False
    examples_dir: str | None = None
    part: tuple[int, int] = (0, TENTHS)
    part_seed: int = 1
    weights: Sequence[float] | None = None
    rows: Mapping[str, Any] | None = None


class _Rows(typing.NamedTuple):
    """The rows of train, in the file `name`, and of dev; the weights of the first; and how their table was read."""

    train: Any
    name: str
    dev: Any
    weights: np.ndarray | None
    columns: Columns


class Finetuner:
    """A pretrained model and a task's examples; InputError if the model, a file or a setting cannot be used.

    Args:
        init: a model_dir with a pretrained model, or a published one by its name in the Hub, as folder or as zip; gives
            the vocabulary and sizes.
        task: a name in `families.tuned_configs`.
        train_file, dev_file: the examples: files, local or gs://, or tables of Python, see `frames.table_of`. Without
            dev_file a part of train_file is held out.
        settings: of the run, {group: {field: value}}. The others follow from the model's size and the number of
            examples: see `_chosen` and `_counts`.
        columns: names of a table's columns, see `Columns.of`.
        strategy: from `distribute.make_strategy`; None: the default.
        untrained: whether all weights are new, and only vocabulary and sizes come from init: shows the worth of
            pretraining.
        examples_dir: where encoded examples are kept if there are many; None: nowhere.
        part: (number from 0 on, count): the part of train_file that is held out, if there is no dev_file.
        part_seed: of the parts' draw.
        weights: how much each row of train_file counts in the loss, for a task of tables: numbers from 0 on. A batch's
            loss is the mean by these weights. None: all count 1.
        rows: what some of the files hold, by their names, if they were read before.

    Attributes:
        config: the run's Config; only the seed differs between runs.
        corpus: a TaskCorpus.
    """

    def __init__(
        self,
        init: str,
        task: str,
        train_file: Any,
        dev_file: Any = None,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        strategy: tf.distribute.Strategy | None = None,
        **options: Any,
    ):
        self.strategy, self._options, self._said = strategy or make_strategy(), Options(**options), list[str]()
        self._init = usable(init, self.strategy)
        pretrained, tuned = _configs(init, self._init, task)
        vocabulary, identity = model_dirs.read_vocabulary(self._init)
        for name in ("sep", "cls"):
            vocabulary.special_token(name)
        given = {group: dict(values) for group, values in (settings or {}).items()}
        config: Any = tuned.from_groups({}, "settings").replace(**given | {"train": {}})
        self._task = families.task_of(config, families.FineTuning)
        rows = self._read(split_of(train_file, "train"), split_of(dev_file, "valid"), Columns.of(columns))
        self._dev = rows.dev
        self.corpus = self._encoded(rows, config, vocabulary, identity)
        self.config, self._chosen = self._settled(config.fit_to_pretrained(pretrained, self.corpus.train), given)
        if not self._options.untrained:
            first = self._init, pretrained.train.origin
            self.config = self.config.replace(train=dict(zip(_FIRST_WEIGHTS, first, strict=True)))

    def _read(self, train_file: Any, dev_file: Any, columns: Columns) -> _Rows:
        """The rows to learn from and to evaluate on."""
        train, name = self._rows_of(train_file, columns)
        columns, weights = train.columns or columns, self._options.weights
        counting = None if weights is None else _weights_of(train, weights, name, self._task.tables)
        if dev_file is not None:
            return _Rows(train, name, self._rows_of(dev_file, columns)[0], counting, columns)
        train, dev, taken, said = _part(self._task, train, name, self._options.part, self._options.part_seed)
        self._said.append(said)
        return _Rows(train, name, dev, None if counting is None else np.delete(counting, taken), columns)

    def _rows_of(self, source: Any, columns: Columns) -> tuple[Any, str]:
        """The rows of a file or table, and its name."""
        known = self._options.rows or {}
        if isinstance(source, str) and source in known:
            return known[source], source
        table = source if isinstance(source, str) else table_of(source)
        if table is None:
            raise InputError(f"give a file, a DataFrame, a list of dicts or a dict of lists, not {str(source)[:40]!r}")
        name = table if isinstance(table, str) else table.name
        found = self._task.read(table, columns)
        self._said.append(f"{name}: {found.understood}")
        return found, name

    def _encoded(self, rows: _Rows, config: Config, vocabulary: Vocabulary, identity: dict[str, Any]) -> TaskCorpus:
        """The rows as examples; the classes are those of a model that has the same ones, or those of train."""

        def examples(part: Any, name: str, labels: tuple[str, ...] | None) -> Any:
            folder = self._options.examples_dir if is_chief(self.strategy) else None
            file = tf.io.gfile.join(folder, f"{name}.npz") if folder else None
            origin = {"vocabulary": identity, "task": config.task}
            plan = ExamplePlan(config, vocabulary, origin, labels, file, scheme=rows.columns.scheme)
            return self._task.examples(part, plan)

        train, known = examples(rows.train, "train", None), model_dirs.read_labels(self._init)
        if train.labels and set(train.labels) <= set(known) and known != train.labels:
            train = examples(rows.train, "train", known)  # the pretrained head keeps its classes
        train = dataclasses.replace(train, weights=rows.weights)
        if not train.learned:
            raise InputError(
                f"--train={rows.name}: no answer is where the file says, so there is nothing to learn: correct "
                "answer_start, which counts characters from 0, or give --find_answers"
            )
        dev, about = examples(rows.dev, "dev", train.labels or None), (identity["spec"], identity["sha256"])
        data_dir, name = os.path.split(rows.name.rstrip("/"))
        return TaskCorpus(train, dev, vocabulary, *about, dataset=name, data_dir=data_dir, columns=rows.columns)

    def _settled(self, config: Any, given: dict[str, dict[str, Any]]) -> tuple[Config, dict[str, set[str]]]:
        """The given settings with those that follow from the model and the examples, and the names of the latter."""
        examples = self.corpus.train.learned
        chosen = _chosen(config, examples) | {"eval": vars(config.eval)}
        config = config.replace(**{group: values | given.get(group, {}) for group, values in chosen.items()})
        chosen["train"] |= (counts := _counts(config, given.get("train", {}), examples))
        nothing = dict.fromkeys(_FIRST_WEIGHTS, "")
        config = config.replace(model=given.get("model", {}), train=given.get("train", {}) | counts | nothing)
        return config, {group: set(values) - set(given.get(group, {})) for group, values in chosen.items()}

    def run(self, model_dir: str, seeds: Sequence[int] = ()) -> dict[str, Any]:
        """Trains, and evaluates on dev; continues runs that exist already. Returns the result: see `summary`.

        With several seeds each run has a sub-directory of model_dir, "seed-1" and so on; (): the seed in the settings.
        """
        seeds = tuple(seeds) or (self.config.train.seed,)
        if len(set(seeds)) < len(seeds):
            raise InputError(f"--seeds={','.join(map(str, seeds))} names a seed twice")
        self.say()
        results = []
        for seed in seeds:
            folder = model_dir if len(seeds) == 1 else tf.io.gfile.join(model_dir, f"seed-{seed}")
            if len(seeds) > 1:
                print(f"seed {seed}: {folder}", flush=True)
            results.append(self.run_one(folder, seed))
        line = summary(self.config, results)
        if len(seeds) > 1:
            _say_spread(self.config, line, f"{len(seeds)} seeds")
        return line

    def say(self) -> None:
        """Prints what is to be known of the examples."""
        said = [*self._said]
        for name, part in (("train", self.corpus.train), ("dev", self.corpus.dev)):
            said += [f"{name}: {remark}" for remark in part.remarks]
        settings, size = self.config.train, self.config.data.batch_size
        if settings.train_steps < FEW_UPDATES:
            examples = counted(self.corpus.train.learned, "example")
            said.append(
                f"this run has only {counted(settings.train_steps, 'update')} ({examples} in batches of {size:,}) with "
                f"a learning_rate of {settings.learning_rate:.3g}, which may teach it little: more --train_steps, a "
                "smaller --batch_size or a higher --learning_rate give it more"
            )
        if self.corpus.labels and self._task.one_class:
            said.append(f"train: {imbalance(self.corpus.labels, self.corpus.train.known_labels())}")
        for line in said:
            print(line, flush=True)

    def run_one(self, model_dir: str, seed: int) -> dict[str, Any]:
        """Trains one run; its evaluation on dev with the smallest error."""
        config = self._as_it_began(model_dir).replace(train={"seed": seed})
        train(config, self.corpus, model_dir, self.strategy, self._evaluator(config, model_dir))
        fields: Fields = {"examples": int, "metrics": dict, "collapsed": (str, type(None))}
        lines = model_dirs.read_evaluations(model_dir, fields)
        result = min(lines, key=model_dirs.score)
        said = no_better(self._task, result["metrics"], self.corpus.dev, "dev")
        if result["collapsed"]:
            said = f"this run has collapsed: {result['collapsed']}"
        if said:
            print(f"{model_dir}: {said}; try {what_to_try(config)}", flush=True)
        return {"seed": seed, "baselines": self.baselines} | result

    @functools.cached_property
    def baselines(self) -> dict[str, float]:
        """The results on dev that need no model; see `FineTuning.baselines`."""
        return self._task.baselines(self.corpus)

    def _as_it_began(self, model_dir: str) -> Config:
        """The settings; if the run exists already, those that were not given are as it began."""
        began = model_dirs.read_config(model_dir)
        if type(began) is not type(self.config):
            return self.config
        groups = {group: vars(getattr(began, group)) for group in self._chosen}
        taken = {group: {name: groups[group][name] for name in names} for group, names in self._chosen.items()}
        repository = self.config.train.origin.partition("@")[0]
        if repository and repository == began.train.origin.partition("@")[0]:  # it may have a new commit since then
            taken["train"] |= {name: groups["train"][name] for name in _FIRST_WEIGHTS}
        return self.config.replace(**taken)

    def _evaluator(self, config: Config, model_dir: str) -> Any:
        """Makes a run's evaluator on dev, which keeps the errors of the best evaluation as files in its model_dir."""

        def make(model: keras.Model) -> Callable[..., dict[str, Any]]:
            task, reader = self._task, TaskReader(config, model, self.strategy)
            dev, data = self.corpus.dev, reader.arranged(self.corpus.dev)

            def evaluate(progress: Any = None) -> dict[str, Any]:
                results = task.results(reader.outputs(data, progress), dev)
                result = task_result(task, results, {}) | {"baselines": self.baselines}
                result["panels"] = results.panels(self.corpus.vocabulary)
                before = map(model_dirs.score, model_dirs.read_evaluations(model_dir))
                if is_chief(self.strategy) and model_dirs.score(result) < min(before, default=math.inf):
                    columns = self.corpus.columns or Columns()
                    source = functools.partial(task.source, self._dev, columns=columns)
                    for name, content in error_files(result["panels"], source, columns.between_labels).items():
                        write_atomically(tf.io.gfile.join(model_dir, name), content)
                return result

            return evaluate

        return make


def _configs(named: str, init: str, task: str) -> tuple[Config, type[Config]]:
    """The settings of the pretrained model in `init`, which the user named so, and the kind of those of the new run."""
    pretrained = model_dirs.read_config(init)
    if pretrained is None:
        raise InputError(
            f"--init={named} has no {model_dirs.CONFIG_FILE}: give the directory of a pretrained model, or a published "
            "one by its name, folder or zip"
        )
    tuned = families.tuned_configs().get(task)
    if tuned is None:
        raise InputError(f"--task={task} is unknown: choose from {', '.join(families.tuned_configs())}")
    if tuned.family != pretrained.family:
        raise InputError(
            f"--init={named} holds {families.with_article(pretrained)}, which is not "
            f"fine-tuned for {task}: give {families.with_article(tuned)}"
        )
    return pretrained, tuned


def _weights_of(rows: Any, weights: Sequence[float], path: str, tables: bool) -> np.ndarray:
    """The weights as float32 [n], one for each row."""
    if not tables:
        raise InputError("weights are for tasks whose examples are the rows of a table: omit them")
    found = np.asarray(weights, np.float32)
    if found.shape != (len(rows),):
        raise InputError(f"weights of shape {found.shape} for {counted(len(rows), 'row')} of {path}: give one for each")
    if not np.isfinite(found).all() or found.min() < 0 or not found.any():
        raise InputError("weights must be finite numbers from 0 on, and some of them above 0")
    return found


def _part(
    task: families.FineTuning, rows: Any, path: str, part: tuple[int, int], seed: int
) -> tuple[Any, Any, list[int], str]:
    """The rows to learn from, the rows held out and their numbers, and a line about them."""
    number, count = part
    numbers = next(iter(task.parts(rows, count, seed)[number:]), [])
    left, taken = parted(rows, numbers)
    if not numbers:
        raise InputError(
            f"{path} has too few examples to hold out one of {count:,} parts: give more, or another file as --dev"
        )
    share = "a tenth" if count == TENTHS else f"part {number + 1} of {count}"
    held = counted(len(numbers), f"{task.noun} of {path} is", f"{task.noun}s of {path} are")
    instead = "; --dev names another file" if count == TENTHS else ""
    return left, taken, numbers, f"dev: {held} held out, {share} by seed {seed}{instead}"


def cross_validate(make: Callable[[int], Finetuner], model_dir: str, folds: int, seed: int) -> dict[str, Any]:
    """Trains as many runs as there are folds, each evaluated on the part that it does not learn from; see `summary`.

    `make` gives the Finetuner with the part of a number held out. Each run has a sub-directory, "fold-1" and so on.
    """
    last, results = make(folds - 1), []  # the smallest part: with fewer texts than folds it is empty, and refused
    for i in range(folds):
        tuner = last if i == folds - 1 else make(i)
        folder = tf.io.gfile.join(model_dir, f"fold-{i + 1}")
        print(f"fold {i + 1}: {folder}", flush=True)
        tuner.say()
        results.append(tuner.run_one(folder, seed) | {"fold": i + 1})
    line = summary(tuner.config, results)
    _say_spread(tuner.config, line, f"{folds} folds")
    return line | {"examples": sum(result["examples"] for result in results)}


def _say_spread(config: Config, line: Mapping[str, Any], what: str) -> None:
    name = families.task_of(config, families.FineTuning).criterion
    mean, spread = (math.nan if line[key] is None else line[key] for key in (name, f"{name}_std"))
    print(f"{what}: {name} {mean:.4f}, standard deviation {spread:.4f}", flush=True)


def summary(config: Config, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A report on dev: of one run its metrics; of several their means and standard deviations; and the baselines."""
    line: dict[str, Any] = {"task": config.task, "split": "dev", "examples": results[0]["examples"]}
    known, names = results[0].get("baselines", {}), ("loss", *results[0]["metrics"])
    beside = {name: statistics.fmean(run["baselines"][name] for run in results) for name in known}
    runs = [
        {name: run[name] for name in ("fold", "seed") if name in run}
        | {"step": run["step"], "loss": run["loss"], **run["metrics"], "collapsed": run["collapsed"]}
        for run in results
    ]
    if len(runs) == 1:
        return {name: _finite(value) for name, value in (line | runs[0] | beside).items()}
    for name in names:
        values = [run[name] for run in runs]
        line[name] = _finite(statistics.fmean(values))
        line[f"{name}_std"] = statistics.stdev(values) if all(map(math.isfinite, values)) else None
    return line | beside | {"runs": [{name: _finite(value) for name, value in run.items()} for run in runs]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _chosen(config: Config, examples: int) -> dict[str, dict[str, Any]]:
    """Settings that follow from the model's size and the number of examples, for those that are not given.

    A small model learns little at the rate of a large one. Without dropout, which the pretrained model may lack, it
    would learn the examples by heart.
    """
    rate = max(1.0, (LARGE_MODEL / config.model.d_model) ** 1.75)
    chosen: dict[str, dict[str, Any]] = {
        "train": {"learning_rate": config.train.learning_rate * rate},
        "model": {name: getattr(config.model, name) or DROPOUT for name in ("dropout", "dropatt")},
    }
    return chosen | ({"data": {"batch_size": config.data.batch_size // 2}} if examples < FEW_EXAMPLES else {})


LARGE_MODEL, DROPOUT = 768, 0.1
"""The d_model from which on the default learning_rate is used; the dropout of a model pretrained without dropout."""


def _counts(config: Config, given: Mapping[str, Any], examples: int) -> dict[str, int]:
    """The numbers of steps that were not given: they follow from the number of examples."""
    epoch = -(-examples // config.data.batch_size)
    epochs = min(max(EPOCHS, -(-UPDATES // epoch)), MOST_EPOCHS)
    steps = given.get("train_steps", epochs * epoch)
    period = min(epoch * max(epochs // 10, 1), steps)
    return {
        "train_steps": steps,
        "warmup_steps": given.get("warmup_steps", steps // 10),
        "eval_steps": given.get("eval_steps", period) or steps,  # at least once, at the end
        "save_steps": given.get("save_steps", period),
        "log_steps": given.get("log_steps", min(max(period // 10, steps // 50, 1), 100)),
    }

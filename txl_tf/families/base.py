"""Model families, the tasks that their models are used for, and named configurations."""

from __future__ import annotations

import dataclasses
import importlib
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from txl_tf.settings.run import Config

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf

    from txl_tf.data.manifest import Corpus
    from txl_tf.data.tables.columns import Columns
    from txl_tf.data.tasks.examples import ExamplePlan, ExampleSet
    from txl_tf.metrics.results import TaskResults
    from txl_tf.objectives.base import AttentionView, Objective, Scorer, TaskObjective


def lazy(named: str) -> Callable[..., Any]:
    """The class, method or function "module:name" of txl_tf, imported when it is first called.

    So modules that load TensorFlow can be registered, and --help does not wait for them.
    """
    module, _, name = named.partition(":")

    def call(*args: Any, **options: Any) -> Any:
        return operator.attrgetter(name)(importlib.import_module(f"txl_tf.{module}"))(*args, **options)

    return call


class TrainingData(Protocol):
    """The batches of a run. An epoch has `epoch_steps` steps of `step_tokens` tokens; `unused` tokens are left over.

    An epoch reads each other token about `reads` times.
    """

    epoch_steps: int
    step_tokens: int
    unused: int
    reads: int

    def batches(self, step: int, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """One host's batches without end from a step on, alternating between its replicas."""


class EvaluationData(Protocol):
    """One pass over a split: `steps` batches of `lanes` lanes, with `targets` targets in total."""

    @property
    def lanes(self) -> int:
        """B."""

    @property
    def steps(self) -> int:
        """Batches in the pass."""

    @property
    def targets(self) -> int | None:
        """The total number of targets; None: known only after the pass."""

    def batches(self, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """One host's batches, alternating between its replicas."""


@dataclasses.dataclass(frozen=True)
class Guide:
    """A task's part of a model card.

    Attributes:
        purpose: what a model does, to stand after "which".
        commands: in a shell, to use a model; {dir} stands for its model_dir.
        code: in Python, the same; {quoted} stands for the model_dir, as a string of Python.
        limit: a sentence about what not to expect; "": none.
        table: the name of a file with labelled examples, as scripts/predict.py reads it; "": not fine-tuned.
    """

    purpose: str
    commands: str
    code: str
    limit: str = ""
    table: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """How models of a family are used. Models of a plain Use are not trained here, but imported and used from Python.

    Attributes:
        config: the subclass of Config with the settings of a run.
        model: the settings' group "model" -> the model, with its weights created; None: the family's function.
        guide: for model cards; None: they say little.
        abilities: what its models can do in Python, besides being evaluated: {method of `txl_tf.Model`: the class that
            does it}. The class is given as "module:class" of txl_tf.inference, since inference imports families. It has
            a class method `of`(TrainedModel, whether XLA compiles).
    """

    config: type[Config]
    model: Callable[[Any], keras.Model] | None = None
    guide: Guide | None = None
    abilities: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods that `txl_tf.Model` has for its models."""
        return tuple(self.abilities)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Use):
    """A task that models are trained for, as the training loop needs it.

    Attributes:
        objective: (model, config) -> Objective.
        training_data: (corpus, config) -> TrainingData.
        batch_spec: (config, lanes, training) -> nest of TensorSpecs: a batch for training, or for evaluation.
        operations: config -> the operations of a training step over all replicas, for MFU; None: not counted.
        attention: (model, corpus, config) -> AttentionView, for TensorBoard; None: nothing is shown.
        head: the beginning of the paths of the weights that a warm start need not have; "": none.
    """

    objective: Callable[[keras.Model, Any], Objective]
    training_data: Callable[[Any, Any], TrainingData]
    batch_spec: Callable[[Any, int, bool], Any]
    operations: Callable[[Any], int] | None = None
    attention: Callable[[keras.Model, Corpus, Any], AttentionView] | None = None
    head: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods that `txl_tf.Model` has for its models, which can be evaluated, too."""
        return (*super().methods, "evaluate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(Training):
    """Learning from a Corpus: predicting its tokens.

    Attributes:
        scorer: (model, config, further options of the family) -> Scorer.
        evaluation_data: (corpus, split, config, the same options) -> EvaluationData.
        fit_to_corpus: (config, corpus, the settings that the user gave, {group: {name: value}}) -> config with these
            settings, and those that follow from the data.
    """

    scorer: Callable[..., Scorer]
    evaluation_data: Callable[..., EvaluationData]
    fit_to_corpus: Callable[[Any, Corpus, Mapping[str, Mapping[str, Any]]], Any]


def predicting(purpose: str, table: str, inputs: str, limit: str = "") -> Guide:
    """The Guide to a task of labelled examples; `inputs` as Predictor.predict takes them, in Python."""
    return Guide(
        purpose,
        f"python scripts/predict.py --model_dir={{dir}} --input={table} --output=predictions.jsonl",
        f"import txl_tf\n\nfor line in txl_tf.load({{quoted}}).predict({inputs}):\n    print(line)",
        limit,
        table,
    )


_TRAINING_EXAMPLES = lazy("data.tasks.batches:TrainingExamples.of")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(Training):
    """Learning a task of labelled examples, from a pretrained model of the family. Its data is a TaskCorpus.

    `config` also has `fit_to_pretrained`(config of the pretrained model, ExampleSet for training), the config with the
    settings that follow from these, and `lengths`, those that batches may be cut to in evaluation, the last of them T.

    Attributes:
        objective: (model, config) -> TaskObjective.
        read: (path, or a Table, Columns, whether every row must have a label) -> the rows of a file, whose `understood`
            says what it was taken for. With `words`, also tags: those that a model knows.
        rows: (Python values, as `Predictor.predict` takes them) -> such rows, without labels. With `words`, also the
            Columns of the model's run.
        examples: (rows, ExamplePlan) -> ExampleSet; InputError if a row has a label that the model does not know.
        results: (outputs of TaskObjective by name, each an array of all examples in order; ExampleSet) -> TaskResults.
        criterion: the metric by which the best checkpoint is chosen; more is better.
        tables: whether its files are tables with a row for each example.
        words: whether its examples are words with tags.
        threshold: the name of a threshold among the results on dev that users may replace; "": there is none.
        without_dev: how predictions are made if the model has no result on dev, which else chooses a threshold; "": it
            chooses none.
    """

    objective: Callable[[keras.Model, Any], TaskObjective]
    training_data: Callable[[Any, Any], TrainingData] = _TRAINING_EXAMPLES
    read: Callable[[Any, Columns, bool], Any]
    rows: Callable[..., Any]
    examples: Callable[[Any, ExamplePlan], ExampleSet]
    results: Callable[[Mapping[str, np.ndarray], Any], TaskResults]
    criterion: str
    tables: bool = False
    words: bool = False
    threshold: str = ""
    without_dev: str = ""
    abilities: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("predict", "predict_file"), "tasks.predictor:Predictor")
    )


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named configuration, its source, size and published result.

    `parameters` is the number of trainable weights with the preset's vocabulary size; `published` is the result that
    the source or the paper reports for it, not our result.
    """

    dataset: str
    source: str
    parameters: int
    published: str
    config: Config


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Named settings for fine-tuning, their source, and the result that the source reports for them, not ours.

    `settings` are those of a run: {group: {field: value}}.
    """

    task: str
    source: str
    published: str
    settings: dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        name: as in config.json.
        title: name for display.
        model: the settings' group "model" -> the model, with its weights created.
        tasks: the uses of its models, by name; empty if models are only used from Python.
        presets: named configurations.
        recipes: named settings for fine-tuning.
        generates: whether its models are trained to continue texts token by token (score, recl, export).
    """

    name: str
    title: str
    model: Callable[[Any], keras.Model]
    tasks: Mapping[str, Use]
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=dict)
    recipes: Mapping[str, Recipe] = dataclasses.field(default_factory=dict)
    generates: bool = False

"""The form of a task: Pretraining learns from a Corpus, FineTuning from labelled examples.

The module of a task loads no TensorFlow: a method imports in its body what does. So --help and checks of files do not
wait for it.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from txl_tf.data.tables.results import WITH_CELLS
from txl_tf.data.tables.table import line_of
from txl_tf.settings.run import Config

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet
    from txl_tf.data.lanes import EvaluationData, TrainingData
    from txl_tf.data.manifest import Corpus
    from txl_tf.data.tables.columns import Columns
    from txl_tf.data.tables.table import Rows, Table
    from txl_tf.metrics.task_results import TaskResults
    from txl_tf.objectives.base import AttentionView, Objective, Scorer, TaskObjective


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


def predicting(purpose: str, table: str, inputs: str, limit: str = "") -> Guide:
    """The Guide to a task of labelled examples; `inputs` as Predictor.predict takes them, in Python."""
    return Guide(
        purpose,
        f"python scripts/predict.py --model_dir={{dir}} --input={table} --output=predictions.jsonl",
        f"import txl_tf\n\nfor line in txl_tf.load({{quoted}}).predict({inputs}):\n    print(line)",
        limit,
        table,
    )


class Task(abc.ABC):
    """A task that models of a family are trained for.

    Attributes:
        config: the subclass of Config with the settings of a run.
        guide: for model cards; None: they say little.
        abilities: what its models can do in Python, besides being evaluated: {method of `txl_tf.Model`: the class that
            does it}. The class is given as "module:class" of txl_tf.inference, since inference imports tasks. It has
            a class method `of`(TrainedModel, whether XLA compiles).
        head: the beginning of the paths of the weights that a warm start need not have; "": none.
        refusal: why a model of another kind of task is refused, with {title} of its family and {task}.
    """

    config: ClassVar[type[Config]]
    guide: ClassVar[Guide | None] = None
    abilities: ClassVar[Mapping[str, str]] = {}
    head: ClassVar[str] = ""
    refusal: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """As in config.json."""
        return self.config.task

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods that `txl_tf.Model` has for its models."""
        return (*self.abilities, "evaluate")

    @abc.abstractmethod
    def model(self, settings: Any) -> keras.Model:
        """The model of the settings' group "model", with its weights created."""

    @abc.abstractmethod
    def objective(self, model: Any, config: Any) -> Objective:
        """The Objective that a run minimizes."""

    @abc.abstractmethod
    def training_data(self, corpus: Any, config: Any) -> TrainingData:
        """The batches of a run."""

    def operations(self, config: Any) -> int | None:
        """The operations of a training step over all replicas, for MFU; None: not counted."""
        return None

    def attention(self, model: Any, corpus: Corpus, config: Any) -> AttentionView | None:
        """For TensorBoard; None: nothing is shown."""
        return None


class Pretraining(Task):
    """Learning from a Corpus: predicting its tokens."""

    refusal = (
        "a model of {title} for {task} is not trained or evaluated by this command: use scripts/finetune.py, "
        "scripts/predict.py, or Python (txl_tf.runs.model_dir.load_trained)"
    )

    @abc.abstractmethod
    def batch_spec(self, config: Any, lanes: int, training: bool) -> Any:
        """The TensorSpecs, in a nest, of a batch for training, or for evaluation."""

    @abc.abstractmethod
    def scorer(self, model: Any, config: Any, **options: Any) -> Scorer:
        """Evaluates a model; the options are the family's own."""

    @abc.abstractmethod
    def evaluation_data(self, corpus: Corpus, split: str, config: Any, **options: Any) -> EvaluationData:
        """One pass over a split; the same options."""

    @abc.abstractmethod
    def fit_to_corpus(self, config: Any, corpus: Corpus, given: Mapping[str, Mapping[str, Any]]) -> Any:
        """The config with the settings that the user gave, {group: {name: value}}, and those that the data decide."""


Signatures = dict[Callable[..., Any], dict[str, Any]]
"""A SavedModel's functions, whose names are its signatures', with the TensorSpecs of their arguments by name."""

Served = Any
"""`inference.tasks.served.ServedTask`: the model in a graph, for a task's signatures."""


class FineTuning(Task):
    """Learning from labelled examples, from a pretrained model of the family. Its data is a TaskCorpus.

    `config` also has `fit_to_pretrained`(config of the pretrained model, ExampleSet for training), the config with the
    settings that follow from these, and `lengths`, those that batches may be cut to in evaluation, the last of them T.

    Attributes:
        criterion: the metric by which the best checkpoint is chosen; more is better.
        results: what the `outputs` for some examples are worth.
        tables: whether its files are tables with a row for each example.
        table_kinds: the tables, of `results.KINDS`, that get the columns of predictions.
        noun: what a row is called.
        one_class: whether an example, or each of its words, has one class: always giving the most frequent one is then
            a prediction to compare with.
        threshold: the name of a threshold among the results on dev that users may replace; "": there is none.
        without_dev: in words, the threshold used when there is no result on dev; "": dev chooses no threshold.
        written: the ends of names of files that it alone writes, with what writes a prediction.
        adds: the columns that a prediction adds to a table: {name: (the prediction's field, its type)}. A type is str,
            int, float, [the type of items], or {name: type}.
        signature: the name of the SavedModel's signature that predicts rows; "": there is none.
    """

    refusal = "{title} is not fine-tuned for {task}: choose another task"
    abilities: ClassVar[Mapping[str, str]] = dict.fromkeys(("predict", "predict_file"), "tasks.predictor:Predictor")

    criterion: ClassVar[str]
    results: ClassVar[type[TaskResults]]
    tables: ClassVar[bool] = False
    table_kinds: ClassVar[tuple[str, ...]] = WITH_CELLS
    noun: ClassVar[str] = "example"
    one_class: ClassVar[bool] = False
    threshold: ClassVar[str] = ""
    without_dev: ClassVar[str] = ""
    written: ClassVar[Mapping[str, Callable[[dict[str, Any]], str]]] = {}
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {}
    signature: ClassVar[str] = ""

    def baselines(self, corpus: Any) -> dict[str, float]:
        """Results on the dev of a TaskCorpus that need no model, by name."""
        return {}

    def worth(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Numbers to stand beside a result on dev, its metrics and baselines, and a sentence; ({}, ""): nothing."""
        return {}, ""

    def training_data(self, corpus: Any, config: Any) -> TrainingData:
        from txl_tf.data.examples.batches import TrainingExamples

        return TrainingExamples.of(corpus, config)

    @abc.abstractmethod
    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Any:
        """The rows of a file or Table; `labelled`: whether all must have a label; `tags`: those that a model knows."""

    @abc.abstractmethod
    def rows(self, values: Sequence[Any], columns: Columns) -> Any:
        """Python values, as `Predictor.predict` takes them, as such rows without labels; the columns of the run."""

    def needs(self, columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
        """The columns that are needed of a table without labels; `names` are those that it has."""
        return ()

    def joined(self, items: Sequence[Any]) -> Any:
        """Rows, from items that were read one by one."""
        return list(items)

    def alike(self, item: Any) -> Hashable:
        """The value that is equal in items that can be read together."""
        return None

    @abc.abstractmethod
    def examples(self, rows: Any, plan: ExamplePlan) -> ExampleSet:
        """Rows as the model reads them; InputError if a row has a label that the model does not know."""

    def objective(self, model: Any, config: Any) -> TaskObjective:
        from txl_tf.objectives.base import TaskObjective

        return TaskObjective(model, config, self)

    @abc.abstractmethod
    def logits(self, model: Any, batch: dict[str, tf.Tensor], config: Any, **options: Any) -> Any:
        """The model's outputs for a batch; options: seed and training as for `XLNet.call`."""

    @abc.abstractmethod
    def losses(self, logits: Any, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """The loss of each example, [b], from the model's outputs; batch: see `objectives.base.Examples`."""

    def targets(self, batch: dict[str, tf.Tensor], weight: tf.Tensor) -> tf.Tensor:
        """How many targets each example has, [b], times its weight [b]; by default one."""
        return weight

    @abc.abstractmethod
    def outputs(self, model: Any, batch: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        """Tensors [b, ..] to make predictions from, without dropout.

        If the batch has labels, "loss" [b] is the loss of each example, the mean over its targets.
        """

    @abc.abstractmethod
    def signatures(self, served: Served) -> Signatures:
        """The functions of a SavedModel, in TensorFlow ops; the first one is the default."""

    def cells(self, row: Any, prediction: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The fields of a row's prediction for `results.as_columns`, by the numbers of the lines that get them."""
        return {line_of(row.where): prediction}

    def signature_inputs(self, items: Sequence[Any]) -> dict[str, Any]:
        """The inputs of `signature` for some rows."""
        return {"texts": [item.text for item in items]}

    def signature_result(self, outputs: dict[str, Any], item: Any) -> dict[str, Any]:
        """The fields of a prediction that `adds` names, from the outputs of `signature` for a row."""
        return outputs

    def served(self, model: Any, rows: dict[str, tf.Tensor], config: Any) -> Any:
        """The outputs of a SavedModel for rows of T tokens; by default logits."""
        return self.logits(model, rows, config)

    def row_specs(self, t_len: int, count: int | None = None) -> dict[str, tf.TensorSpec]:
        """The TensorSpecs of such rows; None: of any number of them."""
        import tensorflow as tf

        kinds = {"tokens": tf.int32, "segments": tf.int32, "padding": tf.bool}
        return {name: tf.TensorSpec([count, t_len], kind) for name, kind in kinds.items()}

    def facts(self, served: Served) -> dict[str, Any]:
        """The values of further placeholders in the README of a SavedModel, the file of its task's name in readmes/."""
        return {}

    def group(self, item: Any) -> Hashable:
        """The value that is equal in rows that must stay together: their text."""
        return item.text

    def source(self, rows: Any, number: int, columns: Columns) -> dict[str, Any]:
        """Facts in the file of a text or question besides its label, by name.

        "row": its place. "cells": the other cells of its row. "text": all of it.
        """
        return {}

    def levels(self, rows: Any, count: int) -> list[Hashable]:
        """For each row its class, of which each of `count` parts gets its share."""
        return [""] * len(rows)

    def parts(self, rows: Rows[Any], count: int, seed: int) -> list[list[int]]:
        """The numbers of the rows of each of `count` parts, in order; there are no more parts than rows.

        Every class has its share in each part. Examples with the same text stay together: a model must not be evaluated
        on a text that it learned by heart. A row whose class has no other text is in no part: without any one part, the
        others must still have every class. Texts are dealt out in an order by `seed`.
        """
        levels = self.levels(rows, count)
        texts: dict[Hashable, list[int]] = {}
        for i, item in enumerate(rows):
            texts.setdefault(self.group(item), []).append(i)
        strata: dict[Hashable, list[list[int]]] = {}
        for group in texts.values():
            strata.setdefault(frozenset(levels[i] for i in group), []).append(group)
        found: list[list[int]] = [[] for _ in range(min(count, len(rows)))]
        draw, dealt = random.Random(seed), 0
        for groups in strata.values():
            draw.shuffle(groups)
            for group in groups if len(groups) > 1 else ():
                found[dealt % count] += group
                dealt += 1
        return [sorted(part) for part in found]


def parted(rows: Rows[Any], numbers: Sequence[int]) -> tuple[Rows[Any], Rows[Any]]:
    """The rows without those of these numbers, which keep what is known of all; and the rows of these numbers."""
    rest, taken = copy.copy(rows), set(numbers)
    rest[:] = [one for i, one in enumerate(rows) if i not in taken]
    return rest, type(rows)([rows[i] for i in numbers])


class SequenceTask(FineTuning):
    """A task with C outputs for a sequence; by default softmax over C classes, label int [b]."""

    head = "xlnet_with_logits/head/"

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.xlnet.with_head import XLNetWithLogits

        return XLNetWithLogits(settings)

    def logits(self, model: Any, batch: dict[str, tf.Tensor], config: Any, **options: Any) -> tf.Tensor:
        """Outputs for sequences or tokens; longer texts than tgt_len are read in segments of it."""
        given = {name: batch[name] for name in ("segments", "padding")}
        return model(batch["tokens"], **given, **options, segment_len=config.data.tgt_len)

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, C]."""
        import tensorflow as tf

        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)

    def outputs(self, model: Any, batch: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        logits = self.logits(model, batch, config)
        found = self.predictions(logits, config)
        if "label" in batch:
            losses = self.losses(logits, batch)
            found["loss"] = losses / tf.maximum(self.targets(batch, tf.ones_like(losses)), 1)
        return found

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """log_probs [b, C], in nats."""
        import tensorflow as tf

        return {"log_probs": tf.nn.log_softmax(logits)}

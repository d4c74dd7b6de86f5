"""A fine-tuned model at work, for use from Python.

Examples:
    >>> predictor = Predictor.load("runs/sentiment")
    >>> predictor.predict(["A fine film.", ("A question?", "A passage.")])
    [{"label": "good", "probability": 0.98, "probabilities": {"bad": 0.02, "good": 0.98}, "step": 300}, ..]

Inputs and predictions, by task:

- classification: a text, or a pair of texts -> label, probability, probabilities by label
- multi_label: the same -> labels, those that fit; probabilities by label
- regression: the same -> score
- multiple_choice: {"article": .., "question": .., "options": [..]} -> choice, the option's number from 0 on; option,
  its text; probability, and the probabilities of all options
- answering: {"question": .., "context": ..} -> answer, "" if there is none; probability; begin and end, its place in
  the context in characters; no_answer_probability; candidates, likely answers, the best first
- tagging: a text, or a tuple of its words -> text, with spaces between such words; tokens, its words; tags, and their
  probabilities; places, where each word begins and ends in characters; entities, each with label, text, begin and end

The probability of an answer is that of its start times that of its end, in one window of the context. Every prediction
also has step, the checkpoint's number.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.data.tables.columns import Columns, table_columns
from txl_tf.data.tables.table import Table
from txl_tf.data.tasks.examples import ExamplePlan, ExampleSet
from txl_tf.devices.distribute import make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.tasks.task_evaluator import TaskReader, no_better, task_result, what_to_try
from txl_tf.progress import Progress
from txl_tf.runs import model_dir as model_dirs


class Predicted(typing.NamedTuple):
    """Predictions for n inputs.

    predictions: for each a dict, see the module.
    metrics: as `task_result` has them, if the inputs have labels; otherwise {}.
    examples: the inputs' ExampleSet.
    outputs: by name, arrays [n, ..], from which the predictions are made.
    doubt: a warning, with what to try, if the predictions are all alike, or with labels no better than the most
        frequent class; otherwise None.
    rows: the inputs as they were read.
    columns: how their table was read.
    """

    predictions: list[dict[str, Any]]
    metrics: dict[str, Any]
    examples: ExampleSet
    outputs: dict[str, np.ndarray]
    doubt: str | None
    rows: Any
    columns: Columns


ENOUGH = 10
"""Fewer inputs than this may all get the same prediction without a warning."""


class Predictor:
    """Predicts with a fine-tuned model. Batches are sorted by length, so that little padding is computed.

    Args:
        trained: a TrainedModel, made in the strategy's scope.
        dev: its metrics on dev, if they are known; also an attribute.
        strategy: where to run; None: the default.
        batch_size: examples at once; does not change the results. None: as in the model's evaluation.
        jit_compile: whether the model is compiled, once for each of a few lengths.

    Raises:
        InputError: the model's task is not one for fine-tuning.
    """

    def __init__(
        self,
        trained: model_dirs.TrainedModel,
        dev: dict[str, float] | None = None,
        *,
        strategy: tf.distribute.Strategy | None = None,
        batch_size: int | None = None,
        jit_compile: bool = False,
    ):
        self.trained = trained
        self.dev = dev or {}
        sizes = {} if batch_size is None else {"batch_size": batch_size}
        self.config = trained.config.replace(eval={"jit_compile": jit_compile} | sizes)
        self._task = families.fine_tuning_of(self.config)
        self._columns = table_columns(trained.model_dir, None, labelled=False)
        self._reader = TaskReader(self.config, trained.model, strategy or make_strategy())

    @classmethod
    def load(
        cls,
        model_dir: str,
        checkpoint: str | None = None,
        weights: str | None = None,
        strategy: tf.distribute.Strategy | None = None,
        **options: Any,
    ) -> Predictor:
        """The model of a directory that fine-tuning or an import wrote; arguments as for `load_trained` and the class.

        InputError if there is no fine-tuned model.
        """
        config = model_dirs.read_config(model_dir)
        if config is not None and config.task not in families.tuned_configs():
            raise InputError(
                f"{model_dir} holds a model that is not fine-tuned (its task is {config.task}): give the model_dir of "
                "scripts/finetune.py"
            )
        strategy = strategy or make_strategy()
        with strategy.scope():
            trained = model_dirs.load_trained(model_dir, weights, checkpoint)
        return cls.of(trained, strategy=strategy, **options)

    @classmethod
    def of(
        cls,
        trained: model_dirs.TrainedModel,
        jit_compile: bool | None = None,
        strategy: tf.distribute.Strategy | None = None,
        **options: Any,
    ) -> Predictor:
        """The model of a TrainedModel, made in the strategy's scope (None: one device), with its metrics on dev.

        jit_compile None: not compiled. Other options are those of the class.
        """
        strategy = strategy or make_strategy("one_device")
        return cls(trained, trained.dev_metrics(), strategy=strategy, jit_compile=bool(jit_compile), **options)

    @property
    def dev_missing(self) -> str:
        """A line for a model without a result on dev, which else chooses a threshold; "" if there is nothing to say."""
        how, model = self._task.without_dev, self.trained
        return f"{model.model_dir} has no result on dev at step {model.step:,}: {how}" if how and not self.dev else ""

    def predict(self, inputs: Any, progress: Progress | None = None, threshold: float | None = None) -> Any:
        """Predicts for each input; see the module. For one input that is not in a list, returns one prediction.

        `threshold` is the least probability of a label that is given, for several labels; None: the best on dev. For
        `progress` see `TaskReader.outputs`. InputError if an input does not have the form that the task needs.
        """
        if not isinstance(inputs, list):
            return self.predict([inputs], progress, threshold)[0]
        if not inputs:
            return []
        rows = self._task.rows(inputs, **({"columns": self._columns} if self._task.words else {}))
        return self._predict(rows, "inputs", False, progress, self._columns, threshold).predictions

    def predict_file(
        self,
        path: str | Table,
        columns: Columns | Mapping[str, Any] | None = None,
        *,
        labelled: bool = False,
        rows: Any = None,
        threshold: float | None = None,
        progress: Progress | None = None,
    ) -> Predicted:
        """Predicts for the inputs in a file, or a Table, in its order.

        Args:
            path: a file in the form that the task is trained on; local or gs://. Or a Table.
            columns: the names of a table's columns, see `Columns.of`. By default they are those of the table that the
                model learned from.
            labelled: whether the inputs have labels to compare with; if not, they are ignored.
            rows: what the file holds, if it was read before; then the other arguments say how.
            threshold: as for `predict`.
            progress: as for `TaskReader.outputs`.

        Raises:
            InputError: the file cannot be read, a row is malformed, or it has a label that the model does not know.
        """
        read_by = table_columns(self.trained.model_dir, columns, labelled)
        if rows is None:
            known = {"tags": self.trained.class_names()} if self._task.words else {}
            rows = self._task.read(path, read_by, labelled, **known)
        name = path if isinstance(path, str) else path.name
        return self._predict(rows, name, labelled, progress, read_by, threshold)

    def _predict(
        self,
        rows: Any,
        name: str,
        labelled: bool,
        progress: Progress | None,
        columns: Columns,
        threshold: float | None = None,
    ) -> Predicted:
        dev = self._with_threshold(threshold)
        labels = self.trained.class_names()
        plan = ExamplePlan(
            self.config, self.trained.vocabulary, labels=labels, labelled=labelled, scheme=columns.scheme
        )
        examples = self._task.examples(rows, plan)
        outputs = self._reader.outputs(self._reader.arranged(examples), progress)
        results = self._task.results(outputs, examples)
        predictions = [one | {"step": self.trained.step} for one in results.predictions(rows, dev)]
        metrics = task_result(self._task, results, dev) if labelled else {}
        if labelled:
            doubt = metrics["collapsed"] or no_better(metrics["metrics"], examples, name)
        else:
            doubt = results.collapse(dev) if len(examples) >= ENOUGH else None
        doubt = doubt and f"{name}: {doubt}; if this is wrong, fine-tune with {what_to_try(self.config)}"
        return Predicted(predictions, metrics, examples, outputs, doubt, rows, columns)

    def _with_threshold(self, threshold: float | None) -> dict[str, float]:
        """The results on dev, with another threshold if one is given; InputError if it is not possible."""
        if threshold is None:
            return self.dev
        if not self._task.threshold:
            raise InputError(
                f"a threshold is for several labels, and this model has learned {self.config.task}: omit it"
            )
        if not 0 < threshold < 1:
            raise InputError(f"threshold={threshold} must be above 0 and below 1")
        return self.dev | {self._task.threshold: threshold}

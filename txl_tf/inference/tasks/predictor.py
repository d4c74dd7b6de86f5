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
  probabilities; places, where each word begins and ends in characters; entities, each with label, text, begin, end, and
  probability, that of its least sure word

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
from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet
from txl_tf.data.tables.columns import Columns, table_columns
from txl_tf.data.tables.results import as_columns
from txl_tf.data.tables.table import Table
from txl_tf.devices.distribute import make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.tasks.evaluator import TaskReader, no_better, task_result, what_to_try
from txl_tf.progress import Progress
from txl_tf.runs import model_dir as model_dirs


class Predicted(typing.NamedTuple):
    """Predictions for n inputs, for each a dict: see the module.

    metrics: as `task_result` has them, if the inputs have labels; otherwise {}.
    outputs: by name, arrays [n, ..], from which the predictions are made.
    doubt: a warning, with what to try, if the predictions are all alike, or with labels no better than the most
        frequent class; otherwise None.
    rows, columns: the inputs as they were read, and how.
    """

    predictions: list[dict[str, Any]]
    metrics: dict[str, Any]
    examples: ExampleSet
    outputs: dict[str, np.ndarray]
    doubt: str | None
    rows: Any
    columns: Columns

    def columns_by_line(self, task: Any, all_probabilities: bool = False) -> dict[int, dict[str, Any]]:
        """{number of a line of the table: the columns of `results.as_columns` that it gets}; `task` has read it.

        InputError if there is no row for each prediction.
        """
        if self.rows.table is None:
            raise InputError("the table has no row for each prediction: give a row for each question")
        cells = [task.cells(*pair) for pair in zip(self.rows, self.predictions, strict=True)]
        return {line: as_columns(one, all_probabilities) for own in cells for line, one in own.items()}


ENOUGH = 10
"""Fewer inputs than this may all get the same prediction without a warning."""


class Predictor:
    """Predicts with a fine-tuned model; InputError if it is another one. Batches are sorted by length.

    Args:
        trained: made in the strategy's scope.
        strategy: where to run; None: the default.
        batch_size: examples at once; does not change the results. None: as in the model's evaluation.
        jit_compile: whether the model is compiled, once for each of a few lengths.

    Attributes:
        dev: its metrics on dev; {} if they are not known.
        task: the FineTuning.
    """

    def __init__(
        self,
        trained: model_dirs.TrainedModel,
        *,
        strategy: tf.distribute.Strategy | None = None,
        batch_size: int | None = None,
        jit_compile: bool = False,
    ):
        self.trained, self.dev = trained, trained.dev_metrics()
        sizes = {} if batch_size is None else {"batch_size": batch_size}
        self.config = trained.config.replace(eval={"jit_compile": jit_compile} | sizes)
        self.task = families.task_of(self.config, families.FineTuning)
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
        """The fine-tuned model of a directory, or InputError; arguments as for `load_trained` and the class."""
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
        """The model of a TrainedModel; strategy None: one device, jit_compile None: not compiled."""
        strategy = strategy or make_strategy("one_device")
        return cls(trained, strategy=strategy, jit_compile=bool(jit_compile), **options)

    @property
    def dev_missing(self) -> str:
        """A line that says which threshold is used when there is no result on dev; "": there is nothing to say."""
        how, model = self.task.without_dev, self.trained
        return f"{model.model_dir} has no result on dev at step {model.step:,}: {how}" if how and not self.dev else ""

    def predict(
        self,
        inputs: Any,
        progress: Progress | None = None,
        threshold: float | None = None,
        unsure_below: float | None = None,
    ) -> Any:
        """Predicts for each input; see the module. For one input that is not in a list, returns one prediction.

        `threshold` is the least probability of a label that is given, for several labels; None: the best on dev.
        With `unsure_below` a prediction has unsure: whether its probability is below that number. For `progress` see
        `TaskReader.outputs`. InputError if an input does not have the form that the task needs.
        """
        if not isinstance(inputs, list):
            return self.predict([inputs], progress, threshold, unsure_below)[0]
        if not inputs:
            return []
        rows, options = self.task.rows(inputs, self._columns), (threshold, unsure_below, progress)
        return self.predict_rows(rows, self._columns, "inputs", False, *options).predictions

    def predict_file(
        self,
        path: str | Table,
        columns: Columns | Mapping[str, Any] | None = None,
        *,
        labelled: bool = False,
        rows: Any = None,
        **options: Any,
    ) -> Predicted:
        """Predicts for the inputs in a file, or a Table, in its order; InputError if it is faulty.

        Args:
            path: a file in the form that the task is trained on; local or gs://. Or a Table.
            columns: the names of a table's columns, see `Columns.of`. By default they are those of the table that the
                model learned from.
            labelled: whether the inputs have labels to compare with; if not, they are ignored.
            rows: what the file holds, if it was read before; then the other arguments say how.
            options: threshold, unsure_below and progress, as for `predict`.
        """
        read_by = table_columns(self.trained.model_dir, columns, labelled)
        if rows is None:
            rows = self.task.read(path, read_by, labelled, self.trained.class_names())
        name = path if isinstance(path, str) else path.name
        return self.predict_rows(rows, read_by, name, labelled, **options)

    def predict_rows(
        self,
        rows: Any,
        columns: Columns,
        name: str = "inputs",
        labelled: bool = False,
        threshold: float | None = None,
        unsure_below: float | None = None,
        progress: Progress | None = None,
    ) -> Predicted:
        """Predicts for rows of the task, read with these columns; a warning calls them `name`. See `predict_file`."""
        dev, trained = self._dev_with(threshold, unsure_below), self.trained
        plan = ExamplePlan(
            self.config, trained.vocabulary, labels=trained.class_names(), labelled=labelled, scheme=columns.scheme
        )
        examples = self.task.examples(rows, plan)
        outputs = self._reader.outputs(self._reader.arranged(examples), progress)
        results = self.task.results(outputs, examples)
        predictions = results.predictions(rows, dev)
        if unsure_below is not None:
            predictions = [one | {"unsure": one["probability"] < unsure_below} for one in predictions]
        predictions = [one | {"step": trained.step} for one in predictions]
        metrics = task_result(self.task, results, dev) if labelled else {}
        if labelled:
            doubt = metrics["collapsed"] or no_better(self.task, metrics["metrics"], examples, name)
        else:
            doubt = results.collapse(dev) if len(examples) >= ENOUGH else None
        doubt = doubt and f"{name}: {doubt}; if this is wrong, fine-tune with {what_to_try(self.config)}"
        return Predicted(predictions, metrics, examples, outputs, doubt, rows, columns)

    def _dev_with(self, threshold: float | None, unsure_below: float | None) -> dict[str, float]:
        """The results on dev, with another threshold if one is given; InputError if either number is not possible."""
        if unsure_below is not None and "probability" not in self.task.adds:
            raise InputError(
                f"unsure_below is for predictions with one probability, and those of {self.config.task} have none: "
                "omit it"
            )
        if unsure_below is not None and not 0 < unsure_below <= 1:
            raise InputError(f"unsure_below={unsure_below} must be above 0 and at most 1")
        if threshold is None:
            return self.dev
        if not self.task.threshold:
            raise InputError(
                f"a threshold is for several labels, and this model has learned {self.config.task}: omit it"
            )
        if not 0 < threshold < 1:
            raise InputError(f"threshold={threshold} must be above 0 and below 1")
        return self.dev | {self.task.threshold: threshold}

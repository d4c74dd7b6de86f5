"""The tasks of XLNets with outputs for a sequence: classification, regression, multiple choice.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from txl_tf import task_metrics
from txl_tf.config import Config
from txl_tf.errors import InputError
from txl_tf.families.base import FineTuning, TrainingData
from txl_tf.models.xlnet import head_config

if TYPE_CHECKING:
    import keras
    import numpy as np

    from txl_tf.data.tasks.corpus import TaskCorpus
    from txl_tf.data.tasks.examples import ExampleSet
    from txl_tf.data.tasks.tables import Columns
    from txl_tf.data.vocabularies import Vocabulary
    from txl_tf.objectives.base import TaskObjective

HEAD = "xlnet_with_logits/head/"


def _with_logits(config: Any) -> keras.Model:
    from txl_tf.models.xlnet.with_head import XLNetWithLogits

    return XLNetWithLogits(config)


def _classification(model: Any, config: Any) -> TaskObjective:
    from txl_tf.objectives.classification import Classification

    return Classification(model, config.data.tgt_len)


def _regression(model: Any, config: Any) -> TaskObjective:
    from txl_tf.objectives.regression import Regression

    return Regression(model, config.data.tgt_len)


def _multiple_choice(model: Any, config: Any) -> TaskObjective:
    from txl_tf.objectives.multiple_choice import MultipleChoice

    return MultipleChoice(model)


def training_examples(corpus: TaskCorpus, config: Any, weights: np.ndarray | None = None) -> TrainingData:
    """The batches of training; `weights`, [n], say how much each example counts."""
    from txl_tf.data.tasks.batches import TrainingExamples

    # The second number makes the orders independent of dropout.
    return TrainingExamples(corpus.train, config.data.batch_size, (config.train.seed, 3), weights)


def _balanced_examples(corpus: TaskCorpus, config: head_config.XLNetClassificationConfig) -> TrainingData:
    from txl_tf.data.tasks.tables import class_weights

    label = corpus.train.features["label"]
    weights = class_weights(label, len(corpus.labels)) if config.objective.balance_classes else None
    return training_examples(corpus, config, weights)


def fit_to_pretrained(config: Any, pretrained: Config, train: ExampleSet) -> Any:
    """The config with the pretrained model's sizes and settings, and as many classes as there are labels.

    If texts may have several segments, all their tokens are remembered, and empty slots of memory are masked.
    """
    names = {field.name for field in dataclasses.fields(config.model)} - {"n_class"}
    shared = {name: value for name, value in vars(pretrained.model).items() if name in names}
    memory = {"reuse_len": 0, "mem_init": "empty"} if _max_segments(config) > 1 else {}
    return config.replace(model=shared | memory | ({"n_class": len(train.labels)} if train.labels else {}))


def _max_segments(config: Any) -> int:
    return getattr(config.data, "max_segments", 1)


def cut_lengths(config: Any) -> tuple[int, ...]:
    """The lengths that evaluation may cut batches to; only T if the model's output depends on padding."""
    from txl_tf.data.tasks.batches import bucket_lengths

    t_len = config.data.tgt_len
    sees_padding = getattr(config.model, "summary_type", None) in ("mean", "first")
    whole = tuple(range(2 * t_len, (_max_segments(config) + 1) * t_len, t_len))
    return ((t_len,) if sees_padding else bucket_lengths(t_len)) + whole


def _table(
    path: str,
    config: Any,
    vocabulary: Vocabulary,
    *,
    origin: dict[str, Any],
    columns: Columns,
    labels: tuple[str, ...] | None,
    directory: str | None,
) -> ExampleSet:
    from txl_tf.data.tasks import tables

    rows, t_len, segments = tables.read_table(path, columns), config.data.tgt_len, config.data.max_segments
    if config.task == "regression":
        label = tables.scores(rows)
        return tables.table_examples(rows, vocabulary, t_len, label, origin, directory, max_segments=segments)
    labels = tables.label_names(rows) if labels is None else labels
    if len(labels) < 2:
        raise InputError(f"{path} has only the label {labels[0]!r}: there is nothing to tell apart")
    numbers = tables.class_numbers(rows, labels)
    return tables.table_examples(
        rows, vocabulary, t_len, numbers, origin, directory, max_segments=segments, labels=labels
    )


def _race(
    path: str,
    config: Any,
    vocabulary: Vocabulary,
    *,
    origin: dict[str, Any],
    columns: Columns,
    labels: tuple[str, ...] | None,
    directory: str | None,
) -> ExampleSet:
    from txl_tf.data.tasks.race import question_examples, read_race

    return question_examples(read_race(path), vocabulary, config.data.tgt_len, origin, directory)


def _sequence_spec(config: Any, lanes: int, label: str, choices: int | None = None) -> Any:
    import tensorflow as tf

    shape = [lanes, *([choices] if choices else []), config.data.tgt_len * _max_segments(config)]
    return {
        "tokens": tf.TensorSpec(shape, tf.int32),
        "segments": tf.TensorSpec(shape, tf.int32),
        "padding": tf.TensorSpec(shape, tf.bool),
        "label": tf.TensorSpec([lanes], label),
        "weight": tf.TensorSpec([lanes], tf.float32),
    }


def _by_label(function: Callable[[Mapping[str, np.ndarray], np.ndarray], Any]) -> Callable[..., Any]:
    """A function of outputs and labels as one of outputs and an ExampleSet."""
    return lambda outputs, examples: function(outputs, examples.features["label"])


HEADS: dict[str, FineTuning] = {
    "classification": FineTuning(
        config=head_config.XLNetClassificationConfig,
        model=_with_logits,
        objective=_classification,
        training_data=_balanced_examples,
        batch_spec=lambda config, lanes, training: _sequence_spec(config, lanes, "int32"),
        head=HEAD,
        examples=_table,
        fit=fit_to_pretrained,
        lengths=cut_lengths,
        measure=_by_label(task_metrics.classification),
        criterion="accuracy",
        collapse=_by_label(task_metrics.collapse_of_classes),
    ),
    "regression": FineTuning(
        config=head_config.XLNetRegressionConfig,
        model=_with_logits,
        objective=_regression,
        training_data=training_examples,
        batch_spec=lambda config, lanes, training: _sequence_spec(config, lanes, "float32"),
        head=HEAD,
        examples=_table,
        fit=fit_to_pretrained,
        lengths=cut_lengths,
        measure=_by_label(task_metrics.regression),
        criterion="pearson",
        collapse=_by_label(task_metrics.collapse_of_scores),
    ),
    "multiple_choice": FineTuning(
        config=head_config.XLNetMultipleChoiceConfig,
        model=_with_logits,
        objective=_multiple_choice,
        training_data=training_examples,
        batch_spec=lambda config, lanes, training: _sequence_spec(config, lanes, "int32", choices=4),
        head=HEAD,
        examples=_race,
        fit=fit_to_pretrained,
        lengths=cut_lengths,
        measure=_by_label(task_metrics.multiple_choice),
        criterion="accuracy",
        collapse=_by_label(task_metrics.collapse_of_classes),
    ),
}
"""What XLNets with a head are used for, by the name of the task."""

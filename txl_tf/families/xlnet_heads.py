"""The tasks of XLNets with outputs for a sequence: classification, regression, multiple choice.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import FineTuning, TrainingData, lazy, predicting
from txl_tf.metrics import labelling, panels
from txl_tf.metrics.labelling import Outputs
from txl_tf.models.xlnet import head_config
from txl_tf.settings.run import Config

if TYPE_CHECKING:
    import numpy as np

    from txl_tf.data.tasks.corpus import TaskCorpus
    from txl_tf.data.tasks.examples import ExampleSet
    from txl_tf.data.tasks.race import RaceQuestion
    from txl_tf.data.tasks.table_files import Columns
    from txl_tf.data.tasks.tables import Row
    from txl_tf.data.vocabularies import Vocabulary

HEAD = "xlnet_with_logits/head/"


def training_examples(corpus: TaskCorpus, config: Any, weights: np.ndarray | None = None) -> TrainingData:
    """The batches of training. weights: how much each example counts, [n]."""
    from txl_tf.data.tasks.batches import TrainingExamples

    # The second number makes the orders independent of dropout.
    return TrainingExamples(corpus.train, config.data.batch_size, (config.train.seed, 3), weights)


def _balanced_examples(corpus: TaskCorpus, config: head_config.XLNetClassificationConfig) -> TrainingData:
    from txl_tf.data.tasks.tables import class_weights

    label = corpus.train.features["label"]
    weights = class_weights(label, len(corpus.labels)) if config.objective.balance_classes else None
    return training_examples(corpus, config, weights)


def fit_to_pretrained(config: Any, pretrained: Config, train: ExampleSet) -> Any:
    """The config with the pretrained model's sizes and settings, and one class for each label.

    If texts may have several segments, all their tokens are remembered, and empty slots of memory are masked.
    """
    shared = shared_settings(config, pretrained)
    memory = {"reuse_len": 0, "mem_init": "empty"} if _max_segments(config) > 1 else {}
    return config.replace(model=shared | memory | ({"n_class": len(train.labels)} if train.labels else {}))


def shared_settings(config: Any, pretrained: Config) -> dict[str, Any]:
    """The pretrained model's settings that the config's model also has, except the number of classes."""
    names = {field.name for field in dataclasses.fields(config.model)} - {"n_class"}
    return {name: value for name, value in vars(pretrained.model).items() if name in names}


def _max_segments(config: Any) -> int:
    return getattr(config.data, "max_segments", 1)


def cut_lengths(config: Any) -> tuple[int, ...]:
    """The lengths that evaluation may cut batches to; only T if the model's output depends on padding."""
    from txl_tf.data.tasks.batches import bucket_lengths

    t_len = config.data.tgt_len
    sees_padding = getattr(config.model, "summary_type", None) in ("mean", "first")
    whole = tuple(range(2 * t_len, (_max_segments(config) + 1) * t_len, t_len))
    return ((t_len,) if sees_padding else bucket_lengths(t_len)) + whole


def _read_scored(path: str, columns: Columns, labelled: bool) -> Sequence[Row]:
    """A table whose labels are numbers."""
    from txl_tf.data.tasks.tables import read_table, scores

    rows = read_table(path, columns, labelled)
    if labelled:
        scores(rows)
    return rows


def _table_examples(
    rows: Sequence[Row],
    config: Any,
    vocabulary: Vocabulary,
    *,
    origin: Mapping[str, Any] = MappingProxyType({}),
    labels: tuple[str, ...] | None = None,
    directory: str | None = None,
    labelled: bool = True,
) -> ExampleSet:
    from txl_tf.data.tasks import tables
    from txl_tf.data.tasks.table_examples import table_examples

    label, remarks = None, list(getattr(rows, "remarks", ()))
    about: dict[str, Any] = {"max_segments": config.data.max_segments}
    if config.task == "classification":
        labels = tables.label_names(rows) if labels is None else labels
        if len(labels) < 2:
            path, _, _ = rows[0].where.rpartition(", line ")
            raise InputError(f"{path} has only the label {labels[0]!r}: there is nothing to tell apart")
        about["labels"] = labels
        if labelled:
            label = tables.class_numbers(rows, labels)
            remarks += tables.twins(tables.label_names(rows))
    elif labelled:
        label = tables.scores(rows)
    about["remarks"] = remarks
    return table_examples(rows, vocabulary, config.data.tgt_len, label, dict(origin), directory, **about)


def _read_race(path: str, columns: Columns, labelled: bool) -> Sequence[RaceQuestion]:
    from txl_tf.data.tasks.race import read_race

    columns.require_no_table("RACE's folders or JSON lines")
    return read_race(path, labelled, columns.encoding)


def _race_examples(
    rows: Sequence[RaceQuestion],
    config: Any,
    vocabulary: Vocabulary,
    *,
    origin: Mapping[str, Any] = MappingProxyType({}),
    labels: tuple[str, ...] | None = None,
    directory: str | None = None,
    labelled: bool = True,
) -> ExampleSet:
    from txl_tf.data.tasks.race_examples import question_examples

    return question_examples(rows, vocabulary, config.data.tgt_len, dict(origin), directory, labelled)


def sequence_spec(config: Any, lanes: int, label: str, choices: int | None = None, of_each: Sequence[int] = ()) -> Any:
    """A batch of sequences, each with a label of the shape `of_each`; with `choices`, each example has that many."""
    import tensorflow as tf

    shape = [lanes, *([choices] if choices else []), config.data.tgt_len * _max_segments(config)]
    return {
        "tokens": tf.TensorSpec(shape, tf.int32),
        "segments": tf.TensorSpec(shape, tf.int32),
        "padding": tf.TensorSpec(shape, tf.bool),
        "label": tf.TensorSpec([lanes, *of_each], label),
        "weight": tf.TensorSpec([lanes], tf.float32),
    }


def _classes(
    outputs: Outputs, examples: ExampleSet, rows: Sequence[Row], dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    import numpy as np

    found = []
    for row in np.exp(outputs["log_probs"]):
        probabilities = dict(zip(examples.labels, row.tolist(), strict=True))
        label = examples.labels[row.argmax()]
        found.append({"label": label, "probability": probabilities[label], "probabilities": probabilities})
    return found


def _scores(
    outputs: Outputs, examples: ExampleSet, rows: Sequence[Row], dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    return [{"score": score} for score in outputs["score"].tolist()]


def _choices(
    outputs: Outputs, examples: ExampleSet, rows: Sequence[RaceQuestion], dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    import numpy as np

    found = []
    for question, row in zip(rows, np.exp(outputs["log_probs"]), strict=True):
        best = int(row.argmax())
        probabilities = row.tolist()
        about = {"choice": best, "option": question.options[best]}
        found.append(about | {"probability": probabilities[best], "probabilities": probabilities})
    return found


def _by_label(function: Callable[[Outputs, Any], Any]) -> Callable[..., Any]:
    """Turns a function of outputs and labels (or None) into one of outputs, an ExampleSet and metrics on dev."""
    return lambda outputs, examples, *_: function(outputs, examples.features.get("label"))


_of_sequences = functools.partial(
    FineTuning,
    model=lazy("models.xlnet.with_head:XLNetWithLogits"),
    head=HEAD,
    fit=fit_to_pretrained,
    lengths=cut_lengths,
)
of_tables = functools.partial(
    _of_sequences,
    read=lazy("data.tasks.tables:read_table"),
    rows=lazy("data.tasks.tables:text_rows"),
    examples=_table_examples,
    tables=True,
)

TEXTS = '["A text.", ("The first of a pair.", "The second.")]'

HEADS: dict[str, FineTuning] = {
    "classification": of_tables(
        config=head_config.XLNetClassificationConfig,
        objective=lazy("objectives.classification:Classification"),
        training_data=_balanced_examples,
        batch_spec=lambda config, lanes, training: sequence_spec(config, lanes, "int32"),
        measure=_by_label(labelling.classification),
        criterion="accuracy",
        collapse=_by_label(labelling.collapse_of_classes),
        predictions=_classes,
        panels=panels.classification,
        abilities=dict.fromkeys(("classify", "predict", "predict_file"), "tasks.predictor:Predictor"),
        guide=predicting(
            "tells to which class a text, or a pair of texts, belongs",
            "TEXTS.tsv",
            TEXTS,
            "It always answers with one of its classes, whatever the text is about.",
        ),
    ),
    "regression": of_tables(
        read=_read_scored,
        config=head_config.XLNetRegressionConfig,
        objective=lazy("objectives.regression:Regression"),
        training_data=training_examples,
        batch_spec=lambda config, lanes, training: sequence_spec(config, lanes, "float32"),
        measure=_by_label(labelling.regression),
        criterion="pearson",
        collapse=_by_label(labelling.collapse_of_scores),
        predictions=_scores,
        panels=panels.regression,
        guide=predicting("gives a score to a text, or to a pair of texts", "TEXTS.tsv", TEXTS),
    ),
    "multiple_choice": _of_sequences(
        config=head_config.XLNetMultipleChoiceConfig,
        objective=lazy("objectives.multiple_choice:MultipleChoice"),
        training_data=training_examples,
        batch_spec=lambda config, lanes, training: sequence_spec(config, lanes, "int32", choices=4),
        read=_read_race,
        rows=lazy("data.tasks.race:question_rows"),
        examples=_race_examples,
        measure=_by_label(labelling.multiple_choice),
        criterion="accuracy",
        collapse=_by_label(labelling.collapse_of_classes),
        predictions=_choices,
        panels=panels.multiple_choice,
        guide=predicting(
            "chooses among answers to a question about a text",
            "QUESTIONS.jsonl",
            '[{"article": "It rains.", "question": "It is _ .", "options": ["wet", "dry"]}]',
        ),
    ),
}
"""The uses of XLNets with a head, by the name of the task."""

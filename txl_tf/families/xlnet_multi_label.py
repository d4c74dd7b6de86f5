"""XLNets that give a text any number of labels.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import lazy, predicting
from txl_tf.families.xlnet_heads import TEXTS, of_tables, sequence_spec, training_examples
from txl_tf.metrics import multi_label, panels
from txl_tf.models.xlnet.head_config import XLNetMultiLabelConfig

if TYPE_CHECKING:
    from txl_tf.data.tasks.examples import ExampleSet
    from txl_tf.data.tasks.tables import Row
    from txl_tf.data.vocabularies import Vocabulary
    from txl_tf.metrics.labelling import Outputs

HALF = 0.5
"""The threshold of a model that was not evaluated on dev, such as an imported one."""


def _examples(
    rows: Sequence[Row],
    config: Any,
    vocabulary: Vocabulary,
    *,
    origin: Mapping[str, Any] = MappingProxyType({}),
    labels: tuple[str, ...] | None = None,
    directory: str | None = None,
    labelled: bool = True,
) -> ExampleSet:
    from txl_tf.data.tasks import label_sets, tables
    from txl_tf.data.tasks.table_examples import table_examples

    remarks = list(getattr(rows, "remarks", ()))
    if labels is None:
        labels = label_sets.label_names(rows)
        if not labels:
            raise InputError(f"{rows[0].where.rpartition(', line ')[0]} has no labels: there is nothing to learn")
    label = None
    if labelled:
        label = label_sets.label_matrix(rows, labels)
        remarks += [*tables.twins(label_sets.label_names(rows)), label_sets.frequencies(labels, label)]
    about: dict[str, Any] = {"max_segments": config.data.max_segments, "labels": labels, "remarks": remarks}
    return table_examples(rows, vocabulary, config.data.tgt_len, label, dict(origin), directory, **about)


def _batch_spec(config: XLNetMultiLabelConfig, lanes: int, training: bool) -> Any:
    return sequence_spec(config, lanes, "int32", of_each=[config.model.n_class])


def threshold_of(dev: Mapping[str, float]) -> float:
    """The least probability of a label that is given: the best threshold on dev, if it is known."""
    return dev.get("threshold", HALF)


def _measure(outputs: Outputs, examples: ExampleSet, dev: Mapping[str, float]) -> dict[str, float]:
    return multi_label.multi_label(examples.features["label"], outputs["probabilities"], dev.get("threshold"))


def _collapse(outputs: Outputs, examples: ExampleSet) -> str | None:
    return multi_label.collapse(outputs["probabilities"], HALF)


def _predictions(
    outputs: Outputs, examples: ExampleSet, rows: Sequence[Row], dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    threshold, found = threshold_of(dev), []
    for row in outputs["probabilities"].tolist():
        probabilities = dict(zip(examples.labels, row, strict=True))
        given = [name for name, probability in probabilities.items() if probability >= threshold]
        found.append({"labels": given, "probabilities": probabilities})
    return found


MULTI_LABEL = of_tables(
    config=XLNetMultiLabelConfig,
    objective=lazy("objectives.multi_label:MultiLabel"),
    training_data=training_examples,
    batch_spec=_batch_spec,
    read=lazy("data.tasks.label_sets:read_label_sets"),
    examples=_examples,
    measure=_measure,
    criterion="micro_f1",
    collapse=_collapse,
    predictions=_predictions,
    panels=panels.multi_label,
    guide=predicting("gives a text, or a pair of texts, each of its labels that fit", "TEXTS.tsv", TEXTS),
)
"""The threshold of its metrics is the best on dev."""

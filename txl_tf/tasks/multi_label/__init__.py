"""Several labels: a text, or a pair of texts, has any number of C labels."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows, Table
from txl_tf.errors import InputError
from txl_tf.metrics import labelling
from txl_tf.metrics.task_results import ByLabel, Dev, Panel, TaskResults, texts_of
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.tasks import remarks, texts
from txl_tf.tasks.base import Served, predicting
from txl_tf.tasks.multi_label.rows import (
    frequencies,
    in_several_rows,
    label_matrix,
    of_columns,
    of_one_column,
    other_separator,
    set_names,
    without_quotes,
)
from txl_tf.tasks.settings import TextsConfig, XLNetHeadRunConfig
from txl_tf.tasks.texts import INPUTS, Row, TextTask, read_table, table_examples

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet
    from txl_tf.data.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class XLNetMultiLabelConfig(XLNetHeadRunConfig):
    """A sequence has any number of C labels."""

    task: ClassVar[str] = "multi_label"

    model: XLNetLogitsConfig = dataclasses.field(default_factory=XLNetLogitsConfig)
    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)


def label_threshold(dev: Dev) -> float:
    """The least probability of a label that is given: the best on dev, or 0.5 if there is none, as after an import."""
    return dev.get("threshold", 0.5)


class LabelSetResults(TaskResults):
    """The results of multi-label classification; the threshold of its metrics is the best on dev."""

    def measure(self, dev: Dev) -> dict[str, float]:
        return labelling.multi_label(self.label, self.outputs["probabilities"], dev.get("threshold"))

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all texts have the same labels, at the threshold of dev or the best on these examples."""
        probabilities, known = self.outputs["probabilities"], dev or self.label is None
        least = label_threshold(dev) if known else labelling.best_threshold(self.label, probabilities)
        predicted = probabilities >= least
        if len(predicted) > 1 and (predicted == predicted[0]).all():
            return f"all {len(predicted):,} examples are predicted to have the same labels"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The counts of each label, and the wrong examples with the largest losses, at the best threshold for them."""
        label, probabilities = self.label.astype(bool), self.outputs["probabilities"]
        predicted = probabilities >= labelling.best_threshold(label, probabilities)

        def shown(i: int) -> tuple[dict[str, Any], str]:
            sides = {"label": label[i], "prediction": predicted[i]}
            about = {name: np.array(self.examples.labels)[these].tolist() for name, these in sides.items()}
            return about, texts_of(self.examples, vocabulary, i)

        counts = labelling.label_counts(label, predicted)
        return [ByLabel(self.examples.labels, *counts), self.worst((label != predicted).any(axis=1), shown)]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """labels, those above the threshold, and the probabilities of all labels by name."""
        threshold, found = label_threshold(dev), []
        for row in self.outputs["probabilities"].tolist():
            probabilities = dict(zip(self.examples.labels, row, strict=True))
            given = [name for name, probability in probabilities.items() if probability >= threshold]
            found.append({"labels": given, "probabilities": probabilities})
        return found


class MultiLabel(TextTask):
    """A sigmoid for each of C labels; label: float [b, C], 1 for the labels that a text has, else 0."""

    config = XLNetMultiLabelConfig
    criterion = "micro_f1"
    results = LabelSetResults
    threshold = "threshold"
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {"labels": ("labels", [str])}
    signature = "label"
    without_dev = "a text gets the labels whose probability is at least 0.5"
    guide = predicting("gives a text, or a pair of texts, each of its labels that fit", "TEXTS.csv", INPUTS)

    def baselines(self, corpus: Any) -> dict[str, float]:
        """The micro F1 of giving all texts the same labels, those most frequent in train; dev chooses how many."""
        train, known = (part.features["label"] for part in (corpus.train, corpus.dev))
        shares = np.broadcast_to(train.mean(axis=0), known.shape)
        return {"same_labels": labelling.multi_label(known, shares)["micro_f1"]}

    def worth(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """A sentence that compares the micro F1 with its baseline."""
        beside = f", the same labels for all texts {result['same_labels']:.1%}" if "same_labels" in result else ""
        return {}, f"micro F1 {result['micro_f1']:.1%} ({result['examples']:,} examples){beside}"

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Rows[Row]:
        rows = read_table(path, columns, labelled, of_columns if columns.label_columns else of_one_column)
        if labelled:
            labels, names = [label for row in rows for label in json.loads(row.label)], set_names(rows)
            rows.understood += f", {counted(len(names), 'label')}"
            rows.remarks += (*remarks.twins(names), *remarks.odd_labels(labels, len(rows)))
            rows.remarks += (*other_separator(rows, columns), *in_several_rows(rows))
            if rows.table and (bare := without_quotes(rows.table, columns.label_column)):
                rows.remarks += (f"{counted(len(bare), 'cell')} such as {bare[0]!r} read as lists of labels",)
        return rows

    def examples(self, rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
        labels = set_names(rows) if plan.labels is None else plan.labels
        if not labels:
            raise InputError(f"{texts.file_of(rows)} has no labels: there is nothing to learn")
        if not plan.labelled:
            return table_examples(rows, plan, None, labels)
        found = label_matrix(rows, labels)
        return table_examples(rows, plan, found, labels, (frequencies(labels, found),))

    def levels(self, rows: Sequence[Row], count: int) -> list[Hashable]:
        """The rarest label of each text."""
        sets = [json.loads(row.label) for row in rows]
        often = collections.Counter(label for one in sets for label in one)
        return [min(one, key=lambda label: (often[label], label), default="") for one in sets]

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """The mean over labels of -log p(has it, or has it not), [b], in nats; logits [b, C]."""
        import tensorflow as tf

        label = tf.cast(batch["label"], logits.dtype)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits), axis=-1)

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """probabilities [b, C], of each label by itself."""
        import tensorflow as tf

        return {"probabilities": tf.sigmoid(logits)}

    def facts(self, served: Served) -> dict[str, Any]:
        return super().facts(served) | {"threshold": f"{label_threshold(served.dev):.4g}"}

    def signature_result(self, outputs: dict[str, Any], item: Row) -> dict[str, Any]:
        return {"labels": [name for name, given in zip(outputs["classes"], outputs["given"], strict=True) if given]}

    def served_results(self, found: dict[str, tf.Tensor], served: Served) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        classes = tf.broadcast_to(tf.constant(served.labels), tf.shape(found["probabilities"]))
        return found | {"given": found["probabilities"] >= label_threshold(served.dev), "classes": classes}

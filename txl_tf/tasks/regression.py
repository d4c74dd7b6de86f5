"""Regression: a text, or a pair of texts, has a score, such as the similarity of the two."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows, Table
from txl_tf.errors import Faults
from txl_tf.metrics import labelling
from txl_tf.metrics.task_results import Dev, Panel, TaskResults, texts_of
from txl_tf.tasks.base import Served, predicting
from txl_tf.tasks.settings import TextsConfig, XLNetScoreConfig
from txl_tf.tasks.texts import INPUTS, Row, TextTask, file_of, read_table, table_examples

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet
    from txl_tf.data.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class XLNetRegressionConfig(XLNetScoreConfig):
    """A sequence has a score, such as the similarity of two texts."""

    task: ClassVar[str] = "regression"

    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)


def scores(rows: Sequence[Row]) -> np.ndarray:
    """The labels as numbers, float32 [n]; InputError if one is not a finite number."""
    found, faults = np.full(len(rows), np.nan, np.float32), Faults(file_of(rows))
    for i, row in enumerate(rows):
        with contextlib.suppress(ValueError):
            found[i] = np.nan if "_" in row.label else float(row.label)  # Python reads 1_0 as 10
        if not np.isfinite(found[i]):
            faults.add(f"{row.where} has the label {row.label!r}, which is not a finite number such as -1234.5")
    faults.raise_any(int(np.isfinite(found).sum()))
    return found


class ScoreResults(TaskResults):
    """The results of regression: a number for each text."""

    def measure(self, dev: Dev) -> dict[str, float]:
        measures = labelling.pearson, labelling.spearman
        return {measure.__name__: measure(self.label, self.outputs["score"]) for measure in measures}

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all scores are nearly the same or, with labels, that they are no better than that."""
        score, label = self.outputs["score"], self.label
        if len(score) > 1 and np.ptp(score) < 1e-3 * (np.abs(score).mean() if label is None else np.std(label)):
            return f"all {len(score):,} examples are predicted to have nearly the same score"
        if label is None:
            return None
        loss, prior = float(np.mean(self.outputs["loss"])), float(np.var(label, dtype=np.float64))
        if loss >= prior:
            return f"its squared error is {loss:.4f}, and always predicting the mean has {prior:.4f}"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The examples with the largest squared errors."""
        label, score = self.label, self.outputs["score"]

        def shown(i: int) -> tuple[dict[str, Any], str]:
            about = {"label": f"{label[i]:.6g}", "prediction": f"{score[i]:.6g}"}
            return about, texts_of(self.examples, vocabulary, i)

        return [self.worst(label != score, shown)]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        return [{"score": score} for score in self.outputs["score"].tolist()]


class Regression(TextTask):
    """One score for a text; label: float [b]."""

    config = XLNetRegressionConfig
    criterion = "pearson"
    results = ScoreResults
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {"score": ("score", float)}
    signature = "regress"
    guide = predicting("gives a score to a text, or to a pair of texts", "TEXTS.csv", INPUTS)

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Rows[Row]:
        rows = read_table(path, columns, labelled)
        if labelled:
            found = scores(rows)
            rows.understood += f", scores from {found.min():g} to {found.max():g}"
            if len(found) > 2 and found[-1] and np.isclose(found[-1], found[:-1].sum()):
                rows.remarks += (f"{rows[-1].where} has the sum of all other scores: remove it if it is a total",)
        return rows

    def examples(self, rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
        return table_examples(rows, plan, scores(rows) if plan.labelled else None)

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """(score - label)**2, [b]; logits [b, 1]."""
        import tensorflow as tf

        return tf.math.squared_difference(logits[:, 0], tf.cast(batch["label"], logits.dtype))

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """score [b]."""
        return {"score": logits[:, 0]}

    def signature_result(self, outputs: dict[str, Any], item: Row) -> dict[str, Any]:
        return {"score": outputs["scores"]}

    def served_results(self, found: dict[str, tf.Tensor], served: Served) -> dict[str, tf.Tensor]:
        return {"scores": found["score"]}

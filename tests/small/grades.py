"""A task of its own: a text has a grade from 0 to C. It touches no file of txl_tf.

A model has an output for each step from one grade to the next. A grade is the number of steps that are likely.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from txl_tf.metrics.task_results import TaskResults
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.tasks.base import predicting
from txl_tf.tasks.regression import scores
from txl_tf.tasks.settings import TextsConfig, XLNetHeadRunConfig
from txl_tf.tasks.texts import INPUTS, TextTask, read_table, table_examples


@dataclasses.dataclass(frozen=True)
class GradesConfig(XLNetHeadRunConfig):
    task: ClassVar[str] = "grades"

    model: XLNetLogitsConfig = dataclasses.field(default_factory=XLNetLogitsConfig)
    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)

    def fit_to_pretrained(self, pretrained, train):
        fitted = super().fit_to_pretrained(pretrained, train)
        return fitted.replace(model={"n_class": int(train.features["label"].max())})


class GradeResults(TaskResults):
    def measure(self, dev):
        wrong = np.abs(self.outputs["grade"] - self.label)
        return {"exact": float(np.mean(wrong == 0)), "mean_error": float(np.mean(wrong))}

    def collapse(self, dev):
        grades = self.outputs["grade"]
        same = len(grades) > 1 and np.ptp(grades) == 0
        return f"all {len(grades):,} texts are predicted to have the grade {grades[0]}" if same else None

    def predictions(self, rows, dev):
        return [{"grade": grade} for grade in self.outputs["grade"].tolist()]


class Grades(TextTask):
    config = GradesConfig
    criterion = "exact"
    results = GradeResults
    adds: ClassVar = {"grade": ("grade", int)}
    signature = "grade"
    guide = predicting("gives a text a grade", "TEXTS.tsv", INPUTS)

    def read(self, path, columns, labelled=True, tags=()):
        rows = read_table(path, columns, labelled)
        if labelled:
            rows.understood += f", grades up to {scores(rows).max():g}"
        return rows

    def examples(self, rows, plan):
        return table_examples(rows, plan, scores(rows) if plan.labelled else None)

    def losses(self, logits, batch):
        import tensorflow as tf

        steps = tf.range(logits.shape[1], dtype=logits.dtype)
        passed = tf.cast(tf.cast(batch["label"], logits.dtype)[:, None] > steps, logits.dtype)
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(passed, logits), axis=1)

    def predictions(self, logits, config):
        import tensorflow as tf

        return {"grade": tf.reduce_sum(tf.cast(logits > 0, tf.int32), axis=1), "steps": tf.sigmoid(logits)}

    def signature_result(self, outputs, item):
        return {"grade": outputs["grades"]}

    def served_results(self, found, served):
        import tensorflow as tf

        return {"grades": tf.cast(found["grade"], tf.int32), "steps": found["steps"]}

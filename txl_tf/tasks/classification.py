"""Classification: a text, or a pair of texts, belongs to one of C classes."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows, Table
from txl_tf.data.tables.written import written_list
from txl_tf.errors import InputError
from txl_tf.metrics import labelling
from txl_tf.metrics.labelling import confusion
from txl_tf.metrics.task_results import Confusion, Dev, Panel, Reliability, TaskResults, texts_of
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.settings.groups import Group, usual
from txl_tf.tasks import remarks, texts
from txl_tf.tasks.base import Served, predicting
from txl_tf.tasks.settings import TextsConfig, XLNetHeadRunConfig
from txl_tf.tasks.texts import INPUTS, Row, TextTask, file_of, read_table, table_examples

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet, TaskCorpus
    from txl_tf.data.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class ClassificationConfig(Group):
    """The objective of classification: how much each class counts."""

    heading: ClassVar[str] = "data"

    balance_classes: bool = usual(
        False,
        "weight the examples of a class by (all examples) / (classes * its examples), so that all classes count alike",
    )


@dataclasses.dataclass(frozen=True)
class XLNetClassificationConfig(XLNetHeadRunConfig):
    """A sequence belongs to one of C classes."""

    task: ClassVar[str] = "classification"

    model: XLNetLogitsConfig = dataclasses.field(default_factory=XLNetLogitsConfig)
    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)
    objective: ClassificationConfig = dataclasses.field(default_factory=ClassificationConfig)


class ClassResults(TaskResults):
    """The results of classification: one class for each text."""

    def measure(self, dev: Dev) -> dict[str, float]:
        predicted, _ = self.chosen()
        measures = labelling.accuracy, labelling.macro_f1, labelling.matthews
        return {measure.__name__: measure(self.label, predicted) for measure in measures}

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all predictions are one class or no better than that, unless all labels are one class."""
        label, (predicted, _) = self.label, self.chosen()
        if label is not None and np.ptp(label) == 0:
            return None
        if len(predicted) > 1 and np.ptp(predicted) == 0:
            return f"all {len(predicted):,} examples are predicted to be of one class"
        if label is None:
            return None
        loss = float(np.mean(self.outputs["loss"]))
        # A model that is too sure of itself may have a high loss and still be right, so both must be bad.
        counts = np.bincount(label, minlength=self.outputs["log_probs"].shape[1])
        prior, largest = labelling.entropy(counts), counts.max() / len(label)
        if loss >= prior and labelling.accuracy(label, predicted) <= largest:
            return f"it is no better than always predicting the largest class (loss {loss:.4f}, there {prior:.4f})"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A confusion matrix, a reliability diagram, and the examples whose label has the least probability."""
        names, label, (predicted, confidence) = self.examples.labels, self.label, self.chosen()

        def shown(i: int) -> tuple[dict[str, Any], str]:
            about = {"label": names[label[i]], "prediction": names[predicted[i]]}
            return about | {"probability": round(float(confidence[i]), 6)}, texts_of(self.examples, vocabulary, i)

        return [
            Confusion(names, confusion(label, predicted, len(names))),
            Reliability(confidence, label == predicted),
            self.worst(label != predicted, shown),
        ]

    def chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """The predictions and their probabilities, [n] each."""
        log_probs = self.outputs["log_probs"]
        return log_probs.argmax(axis=1), np.exp(log_probs.max(axis=1))

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """label, its probability, and the probabilities of all classes by name."""
        found = []
        for row in np.exp(self.outputs["log_probs"]):
            probabilities = dict(zip(self.examples.labels, row.tolist(), strict=True))
            label = self.examples.labels[row.argmax()]
            found.append({"label": label, "probability": probabilities[label], "probabilities": probabilities})
        return found


MOST_EXAMPLES = 20_000
"""With more examples there is no bag of tokens: it would take long, and the model does not need the comparison."""


def _bag_of_tokens(corpus: TaskCorpus) -> float:
    """The accuracy on dev of logistic regression on the counts of tokens, their order ignored."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    train, dev = _tokens(corpus.train), _tokens(corpus.dev)
    counter = CountVectorizer(analyzer=list).fit(train)
    fit = LogisticRegression(max_iter=1_000).fit(counter.transform(train), corpus.train.known_labels())
    return float(fit.score(counter.transform(dev), corpus.dev.known_labels()))


def _tokens(examples: ExampleSet) -> list[list[int]]:
    tokens, padding = examples.features["tokens"], examples.features["padding"]
    return [row[~absent].tolist() for row, absent in zip(tokens, padding, strict=True)]


def _with_rows(rows: Rows[Row], table: Table, columns: Columns) -> list[Row]:
    """The rows whose text holds further lines with a label, as after a quote that is not closed."""
    several = [row for row in rows if "\n" in row.text] if table.header_line else []
    names = {row.label for row in rows} if several else set()
    place = 0 if table.names[0] == columns.label_column else -1
    lines = ((row, line.split(table.separator)) for row in several for line in row.text.splitlines())
    return [row for row, cells in lines if len(cells) > 1 and cells[place].strip() in names]


class Classification(TextTask):
    """Softmax over C classes; label: int [b]."""

    config = XLNetClassificationConfig
    criterion = "accuracy"
    results = ClassResults
    one_class = True
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "prediction": ("label", str),
        "probability": ("probability", float),
    }
    signature = "classify"
    abilities: ClassVar[dict[str, str]] = dict.fromkeys(
        ("classify", "predict", "predict_file"), "tasks.predictor:Predictor"
    )
    guide = predicting(
        "tells to which class a text, or a pair of texts, belongs",
        "TEXTS.csv",
        INPUTS,
        "It always answers with one of its classes, whatever the text is about.",
    )

    def baselines(self, corpus: Any) -> dict[str, float]:
        """The accuracies of the most frequent class and, if scikit-learn is installed, of a bag of tokens."""
        train, dev = corpus.train.known_labels(), corpus.dev.known_labels()
        found = {"most_frequent_class": float(np.mean(dev == np.bincount(train).argmax()))}
        if importlib.util.find_spec("sklearn") and len(train) <= MOST_EXAMPLES:
            found["bag_of_tokens"] = _bag_of_tokens(corpus)
        return found

    def worth(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The interval of the accuracy, and a sentence that also has the baselines."""
        accuracy, count = result["accuracy"], result["examples"]
        low, high = labelling.interval(accuracy, count)
        shown = f"accuracy {accuracy:.1%}, 95 % interval {low:.0%} to {high:.0%} ({count:,} examples)"
        names = {"most_frequent_class": "the most frequent class alone", "bag_of_tokens": "a bag of tokens"}
        beside = ", ".join(f"{words} {result[name]:.1%}" for name, words in names.items() if name in result)
        return {"accuracy_interval": [low, high]}, "; ".join(filter(None, [shown, beside]))

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Rows[Row]:
        rows = read_table(path, columns, labelled)
        if labelled:
            names = texts.label_names(rows)
            rows.understood += f", {counted(len(names), 'class', 'classes')}"
            rows.remarks += tuple(remarks.twins(names))
            rows.remarks += remarks.odd_labels([row.label for row in rows], len(rows))
            rows.remarks += remarks.relabelled(rows)
            if rows.table and (held := _with_rows(rows, rows.table, columns)):
                said = f"{counted(len(held), 'line')} inside of texts {'ends' if len(held) == 1 else 'end'} like rows"
                rows.remarks += (f"{said} ({held[0].place}): a quote may be missing",)
            if all(written_list(name) is not None or name[0] in "'\"" for name in names):
                rows.remarks += (f"labels such as {names[0]!r} are read as they stand: --task=multi_label reads lists",)
        return rows

    def examples(self, rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
        labels = texts.label_names(rows) if plan.labels is None else plan.labels
        if len(labels) < 2:
            raise InputError(f"{file_of(rows)} has only the label {labels[0]!r}: there is nothing to tell apart")
        return table_examples(rows, plan, texts.class_numbers(rows, labels) if plan.labelled else None, labels)

    def signature_result(self, outputs: dict[str, Any], item: Row) -> dict[str, Any]:
        return outputs | {"label": outputs["labels"]}

    def served_results(self, found: dict[str, tf.Tensor], served: Served) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        probabilities, classes = tf.exp(found["log_probs"]), tf.constant(served.labels)
        return {
            "labels": tf.gather(classes, tf.argmax(probabilities, axis=1)),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
            # A row for each text: TensorFlow Serving cuts every output by its first axis.
            "classes": tf.broadcast_to(classes, tf.shape(probabilities)),
        }

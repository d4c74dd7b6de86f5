"""Several labels: a text, or a pair of texts, has any number of C labels.

Tables have lists, cells with a separator, columns of 0 and 1, or numbers.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import shlex
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows, Table, content
from txl_tf.data.tables.written import written_list
from txl_tf.errors import InputError
from txl_tf.metrics import labelling
from txl_tf.metrics.task_results import ByLabel, Dev, Panel, TaskResults, texts_of
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.tasks import texts
from txl_tf.tasks.base import Served, predicting
from txl_tf.tasks.settings import TextsConfig, XLNetHeadRunConfig
from txl_tf.tasks.texts import INPUTS, LabelReader, Row, TextTask, read_table, refuse_bad_cell, table_examples

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet
    from txl_tf.data.vocabularies import Vocabulary


OTHER_SEPARATORS = (",", ";", "#", "\n", "|", "\t", "/", "&", " ")
"""Signs that may separate labels if the given separator does not."""
_BARE = re.compile(r"""\[[^]["']*\]|\{[^{}"':]*\}""")


def _of_one_column(table: Table, columns: Columns) -> LabelReader:
    """The reader of the labels in a cell, as a JSON list, in order and without repetitions."""
    column, names = columns.label_column, columns.named_labels
    if table.names and column not in table.names and not columns.named("label_column"):
        bits = [name for name in table.names if all(_bit(values.get(name)) is not None for _, values in table.rows)]
        if len(bits) > 1:
            raise InputError(
                f"{table.header} has no column 'label', and columns of only 0 and 1: give "
                f"--label_columns={','.join(bits)} if each stands for a label, or name the column of labels with "
                "--label_column"
            )
    bare = bool(_without_quotes(table, column))
    lists = [_as_list(values.get(column), columns, bare) for _, values in table.rows] if names else []
    # With names, numbers are 0 or 1 for each name, or the numbers of the names: the whole column decides.
    in_bits = all(len(one) == len(names) and all(_bit(number) is not None for number in one) for one in lists if one)

    def read(values: dict[str, Any], where: str) -> str:
        refuse_bad_cell(values.get(column), where)
        found = _as_list(values[column], columns, bare) if column in values else None
        shown = f"{where} has {json.dumps(values.get(column), default=str)[:40]} in column {column!r}"
        if found is None:
            raise InputError(
                f"{shown}: give its labels as a list of texts, or as one text with {columns.label_separator!r} between "
                "them"
            )
        if names and in_bits:
            found = [name for name, number in zip(names, found, strict=False) if _bit(number)]
        elif names:
            found = [texts.name_of(number, names, where) for number in found]
        elif not all(isinstance(label, str) for label in found):
            raise InputError(
                f"{shown}: give its labels as a list of texts, or with --label_names=FIRST,SECOND,.. the names of 0, "
                "1 and so on"
            )
        return _kept(found, columns, where)

    return read


def _of_columns(table: Table, columns: Columns) -> LabelReader:
    """The reader of labels in columns of 0 and 1."""
    wanted: list[str] = []
    for part in columns.label_columns.split(","):
        first, dots, last = part.partition("..")
        ends = [part] if part in table.names or not dots else [first, last]
        if missing := [name for name in ends if name not in table.names]:
            raise InputError(
                f"{table.header} has no column {missing[0]!r} but {', '.join(map(repr, table.names))}: correct "
                f"--label_columns={columns.label_columns}"
            )
        span = [table.names.index(name) for name in ends]
        if span[0] > span[-1]:
            raise InputError(f"--label_columns={part}: {last!r} stands before {first!r}, so give {last}..{first}")
        wanted += table.names[span[0] : span[-1] + 1]

    def read(values: dict[str, Any], where: str) -> str:
        for name in wanted:
            refuse_bad_cell(values.get(name), where)
            if _bit(values.get(name)) is None:
                raise InputError(
                    f"{where} has {json.dumps(values.get(name), default=str)[:40]} in column {name!r}, one of "
                    "--label_columns: each needs 0 or 1"
                )
        return _kept([name for name in wanted if _bit(values[name])], columns, where)

    return read


def _bit(value: Any) -> int | None:
    """0 or 1, if a value stands for one of them."""
    if isinstance(value, str):
        value = {"true": 1, "false": 0}.get(value.strip().lower(), value)
        try:
            value = float(value)
        except ValueError:
            return None
    return int(value) if isinstance(value, (int, float)) and value in (0, 1) else None


def _without_quotes(table: Table, column: str) -> list[str]:
    """The cells of a column if all are lists in writing whose texts have no quotes, such as [a, b]; otherwise [].

    Lists with 0 or 1 for each label, such as [1, 0, 0], are none of these.
    """
    found: list[Any] = [cell for _, values in table.rows if content(cell := values.get(column))]
    if not all(isinstance(cell, str) and _BARE.fullmatch(cell.strip()) for cell in found):
        return []
    items = [cell.strip()[1:-1].split(",") for cell in found]
    if all(len(one) == len(items[0]) and None not in map(_bit, one) for one in items):
        return []
    return found if any(len(one) > 1 for one in items) else []


def _as_list(value: Any, columns: Columns, bare: bool) -> list[Any] | None:
    """The labels in a cell: a list, a list in writing, or texts with the separator between them; None: none of these.

    An empty cell has no labels. `bare`: lists in writing have no quotes.
    """
    if value is None or value != value:
        return []
    if isinstance(value, str) and bare and content(value):
        return value.strip()[1:-1].split(",")
    if isinstance(value, str):
        found = written_list(value)
        return value.split(columns.between_labels) if found is None else found
    if isinstance(value, dict) and value.keys() == {"choices"}:  # of Label Studio
        value = value["choices"]
    elif isinstance(value, dict) and None not in map(_bit, value.values()):  # of spaCy: {label: 0 or 1}
        value = [label for label, bit in value.items() if _bit(bit)]
    return value if isinstance(value, list) else None


def _kept(labels: Sequence[str], columns: Columns, where: str) -> str:
    """Labels as a row keeps them; InputError if a table as output could not be read again."""
    found = sorted({label.strip() for label in labels} - {""})
    for label in found:
        texts.refuse_missing(label, where)
    if holding := [label for label in found if columns.between_labels in label]:
        raise InputError(
            f"{where} has the label {holding[0]!r}, which holds what separates labels in a cell: give another "
            f"--label_separator than {columns.label_separator!r}"
        )
    return json.dumps(found, ensure_ascii=False)


def _other_separator(rows: Rows[Row], columns: Columns) -> tuple[str, ...]:
    """A remark on labels that look like several labels with another separator than the given one."""
    cells = [json.loads(row.label) for row in rows]
    every, labels = {label for cell in cells for label in cell}, [cell[0] for cell in cells if len(cell) == 1]
    single, several = set(labels), any(len(cell) > 1 for cell in cells)
    for separator in OTHER_SEPARATORS:
        joined = {label for label in single if separator in label}
        parts = collections.Counter(part.strip() for label in joined | every for part in label.split(separator))
        of_joined = {part.strip() for label in joined for part in label.split(separator)}
        # Labels that recur in other cells, not commas inside of names.
        if len(joined) > 1 and (1 if several else 2) * sum(parts[part] > 1 for part in of_joined) >= len(of_joined):
            count = sum(separator in label for label in labels)
            if several:
                remedy = "give all rows one separator if it separates labels"
                return (f"{count:,} of {len(rows):,} rows have {separator!r} between labels of other rows: {remedy}",)
            given = shlex.quote(separator.replace("\n", "\\n").replace("\t", "\\t"))
            return (
                f"no cell has {columns.label_separator!r}, {count:,} of {len(rows):,} have {separator!r}: give "
                f"--label_separator={given} if it separates labels",
            )
    return ()


def _in_several_rows(rows: Rows[Row]) -> tuple[str, ...]:
    """A remark if a tenth of the texts stand in several rows, each with one label of its own."""
    if any(len(json.loads(row.label)) > 1 for row in rows):
        return ()
    labels: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for row in rows:
        labels[row.text, row.text_b].add(row.label)
    count = sum(len(own) > 1 for own in labels.values())
    said = "with another label in each: give each text one row with all its labels if they belong together"
    found = 1 < len(labels) <= 10 * count
    return (f"{counted(count, 'text')} in several rows, {said}",) if found else ()


def set_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that occur in sets of labels, in order."""
    return tuple(sorted({label for row in rows for label in json.loads(row.label)}))


def label_matrix(rows: Sequence[Row], labels: tuple[str, ...]) -> np.ndarray:
    """Which labels each row has, uint8 [n, C]; InputError if one is not among `labels`."""
    owned = [(i, label) for i, row in enumerate(rows) for label in json.loads(row.label)]
    single = [Row(rows[i].text, "", label, rows[i].where) for i, label in owned]
    found = np.zeros([len(rows), len(labels)], np.uint8)
    found[[i for i, _ in owned], texts.class_numbers(single, labels)] = 1
    return found


def frequencies(labels: tuple[str, ...], matrix: np.ndarray) -> str:
    """How often each label occurs, in one line: the most frequent, and how many labels a text has."""
    counts = collections.Counter(dict(zip(labels, matrix.sum(axis=0).tolist(), strict=True)))
    shown = [f"{name} {count / len(matrix):.1%}" for name, count in counts.most_common(6)]
    more = ", .." if len(labels) > 6 else ""
    return f"{len(labels)} labels: {', '.join(shown)}{more}; a text has {matrix.sum(axis=1).mean():.2f} of them"


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
    guide = predicting("gives a text, or a pair of texts, each of its labels that fit", "TEXTS.tsv", INPUTS)

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Rows[Row]:
        rows = read_table(path, columns, labelled, _of_columns if columns.label_columns else _of_one_column)
        if labelled:
            rows.understood += f", {counted(len(set_names(rows)), 'label')}"
            rows.remarks += (*texts.twins(set_names(rows)), *_other_separator(rows, columns), *_in_several_rows(rows))
            if rows.table and (bare := _without_quotes(rows.table, columns.label_column)):
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

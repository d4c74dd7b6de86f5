"""The results of a fine-tuned model on some examples, and data for pictures, texts and tables about them.

training/board/draw_panels.py draws panels for TensorBoard, and metrics/error_files.py writes them as files.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from txl_tf.data.examples.example_set import ExampleSet
    from txl_tf.data.vocabularies import Vocabulary

FIRST, SECOND = 0, 1  # segment ids, as in data/examples/layout.py


class Confusion(NamedTuple):
    """How often examples of each class, in rows, are predicted as each class, in columns: int [C, C]."""

    labels: tuple[str, ...]
    counts: np.ndarray


class ByLabel(NamedTuple):
    """How often each of C labels is predicted rightly, there, and predicted, int [C]; a text may have several."""

    labels: tuple[str, ...]
    right: np.ndarray
    there: np.ndarray
    predicted: np.ndarray


class Reliability(NamedTuple):
    """The probability of each example's prediction, [n], and whether it is right, bool [n]."""

    confidence: np.ndarray
    right: np.ndarray


class Wrong(NamedTuple):
    """A wrong prediction.

    number: of its text or question, from 0 on.
    columns: its label and prediction and, where there are such, probability and loss; or error, what is wrong in words.
    text: as the model reads it.
    """

    number: int
    columns: Mapping[str, Any]
    text: str


class Worst(NamedTuple):
    """The worst predictions, the worst first."""

    rows: tuple[Wrong, ...]


Panel = Confusion | ByLabel | Reliability | Worst


def heading(columns: Mapping[str, Any]) -> str:
    """The columns of a wrong prediction, or of its row in a file, in words."""
    if "error" in columns:
        return str(columns["error"])
    given, right = (
        (value if isinstance(value, str) else ", ".join(value)) or "nothing"
        for value in (columns["prediction"], columns["label"])
    )
    sure, loss = columns.get("probability", ""), columns.get("loss", "")
    about = given if sure == "" else f"{given} ({float(sure):.1%})"
    return f"{about} instead of {right}" + ("" if loss == "" else f", loss {float(loss):.3f}")


def texts_of(examples: ExampleSet, vocabulary: Vocabulary, i: int) -> str:
    """The text of an example, or its two texts, as the model reads them."""
    sides = [decoded(examples, vocabulary, (i,), segment) for segment in (FIRST, SECOND)]
    return "\n\n".join(side for side in sides if side)


def decoded(examples: ExampleSet, vocabulary: Vocabulary, place: tuple[int, ...], segment: int) -> str:
    """The text of one segment of a row of tokens."""
    tokens, segments, padding = (examples.features[name][place] for name in ("tokens", "segments", "padding"))
    return vocabulary.decode(tokens[(segments == segment) & ~padding].tolist()).strip()


Outputs = Mapping[str, np.ndarray]
"""A task's `outputs` by name, [n, ..], for all examples in order."""

Dev = Mapping[str, float]
"""The model's metrics on dev, if these are other examples and they are known; else {}."""

WORST = 20
"""The number of examples that panels show."""


class TaskResults(abc.ABC):
    """The results of one evaluation, from the outputs for its examples."""

    def __init__(self, outputs: Outputs, examples: Any):
        self.outputs, self.examples = outputs, examples
        self.label = examples.features.get("label")

    @abc.abstractmethod
    def measure(self, dev: Dev) -> dict[str, float]:
        """The task's standard metrics; the examples are labelled."""

    @abc.abstractmethod
    def collapse(self, dev: Dev) -> str | None:
        """How the model has collapsed, as the end of a sentence, or None."""

    @abc.abstractmethod
    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """The prediction for each row, as JSON values."""

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The evaluation's pictures and texts for TensorBoard; texts are shown as the model reads them."""
        return []

    def worst(self, wrong: np.ndarray, shown: Callable[[int], tuple[dict[str, Any], str]]) -> Worst:
        """The wrong examples with the largest losses, the largest first; the first of equals first.

        `shown` gives the columns of an example, to which its loss is added, and its text.
        """
        loss, found = self.outputs["loss"], []
        order = np.argsort(-loss, kind="stable")
        for i in order[wrong[order]][:WORST].tolist():
            columns, text = shown(i)
            found.append(Wrong(i, columns | {"loss": round(float(loss[i]), 6)}, text))
        return Worst(tuple(found))

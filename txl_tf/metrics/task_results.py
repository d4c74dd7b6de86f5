"""The results of a fine-tuned model on some examples."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from txl_tf.metrics.panels import Panel, Worst, Wrong

if TYPE_CHECKING:
    from txl_tf.data.vocabularies import Vocabulary

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

"""Data for pictures, texts and tables about an evaluation on dev.

TaskResults makes them. training/board/draw_panels.py draws them for TensorBoard, and metrics/error_files.py
writes them as files.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

if typing.TYPE_CHECKING:
    from txl_tf.data.examples.example_set import ExampleSet
    from txl_tf.data.vocabularies import Vocabulary

FIRST, SECOND = 0, 1  # segment ids, as in data/examples/layout.py


class Confusion(typing.NamedTuple):
    """How often examples of each class are predicted as each class.

    labels: the names of C classes.
    counts: int [C, C], of labels in rows and predictions in columns.
    """

    labels: tuple[str, ...]
    counts: np.ndarray


class ByLabel(typing.NamedTuple):
    """How often each of C labels is right, where a text may have any number of them.

    labels: their names.
    right, there, predicted: int [C], how often it is predicted rightly, there, and predicted.
    """

    labels: tuple[str, ...]
    right: np.ndarray
    there: np.ndarray
    predicted: np.ndarray


class Reliability(typing.NamedTuple):
    """How sure the model is of its predictions, and whether they are right.

    confidence: [n], the probability of each example's prediction.
    right: bool [n].
    """

    confidence: np.ndarray
    right: np.ndarray


class Wrong(typing.NamedTuple):
    """A wrong prediction.

    number: of its text or question, from 0 on.
    columns: its label and prediction and, where there are such, probability and loss; or error, what is wrong in words.
    text: as the model reads it.
    """

    number: int
    columns: Mapping[str, Any]
    text: str


class Worst(typing.NamedTuple):
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

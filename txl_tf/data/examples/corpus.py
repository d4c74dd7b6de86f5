"""The data of a fine-tuning run: examples to train and evaluate on, in the vocabulary of the model it begins with."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any

import numpy as np

from txl_tf.data.examples.example_set import ExampleSet
from txl_tf.data.examples.layout import PADDING, SECOND
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class TaskCorpus:
    """The examples of a run, with the attributes that the training loop needs from a Corpus.

    Attributes:
        train, dev: ExampleSets.
        vocabulary: text to ids and back.
        vocabulary_spec: its `spec`.
        files: the sha256 of the vocabulary's files, by name.
        dataset: a name.
        data_dir: where the examples are from, for messages.
        columns: how their table is read; None: they are not from a table.
    """

    train: ExampleSet
    dev: ExampleSet
    vocabulary: Vocabulary
    vocabulary_spec: dict[str, Any]
    files: dict[str, str]
    dataset: str = "text"
    data_dir: str = ""
    columns: Columns | None = None

    @property
    def unit(self) -> str:
        """The kind of token: "byte", "char", "word" or "subword"."""
        return self.vocabulary.unit

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; () if there are none."""
        return self.train.labels

    @property
    def pairs(self) -> bool:
        """Whether an example to learn from has a second text."""
        return bool(np.any(self.train.features.get("segments", PADDING) == np.uint8(SECOND)))

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short hash of all examples."""
        prints = self.train.fingerprint() + self.dev.fingerprint()
        return hashlib.sha256(prints.encode()).hexdigest()[:16]

    def check_content(self) -> None:
        """Does nothing: examples are checked when they are read."""

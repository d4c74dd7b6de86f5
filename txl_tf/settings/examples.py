"""The settings of what labelled examples are read and evaluated with: groups of the runs with such a task."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from txl_tf.settings.groups import Group, hidden, require, setting, usual


@dataclasses.dataclass(frozen=True)
class ExamplesConfig(Group):
    """The batches of examples."""

    heading: ClassVar[str] = "data"

    batch_size: int = usual(32, "examples per step over all replicas, B", at_least=1)
    tgt_len: int = usual(128, "tokens per sequence, padding included, T", at_least=8)
    bi_data: bool = hidden(False, "what an imported model's config.json says; only its export has it again")


_SEGMENTS = (
    "a text is read in up to this many segments of tgt_len tokens, each with the memory (mem_len) of the segments "
    "before it. "
)


@dataclasses.dataclass(frozen=True)
class TextsConfig(ExamplesConfig):
    """The batches of texts and pairs of texts."""

    max_segments: int = usual(
        1, _SEGMENTS + "The head reads the last segment, and only that has a gradient", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class TaggedTextsConfig(ExamplesConfig):
    """The batches of texts whose words have tags."""

    max_segments: int = usual(8, _SEGMENTS + "A longer text is read in several such parts", at_least=1)


@dataclasses.dataclass(frozen=True)
class ExamplesEvalConfig(Group):
    """How a model with a head is evaluated and used."""

    owner: ClassVar[str] = "evaluation's "
    heading: ClassVar[str] = "evaluation"

    batch_size: int = usual(32, "examples that are evaluated at once", at_least=1)
    jit_compile: bool = setting(True, "compile evaluation with XLA on one CPU or GPU (a TPU always compiles)")


@dataclasses.dataclass(frozen=True)
class QuestionsConfig(ExamplesConfig):
    """The batches of questions about texts, which are read in windows."""

    tgt_len: int = usual(512, "tokens of a window with its question, padding included, T", at_least=8)
    max_query_len: int = usual(64, "a longer question is cut to this many tokens", at_least=1)
    doc_stride: int = usual(128, "tokens from the start of one window of a text to that of the next", at_least=1)
    find_answers: bool = usual(
        False, "if an answer is not where the file says, take the one place in the text where it is"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.tgt_len >= self.max_query_len + 4,
            f"tgt_len={self.tgt_len} leaves no room for the text: it must be at least max_query_len + 4 = "
            f"{self.max_query_len + 4}",
        )


@dataclasses.dataclass(frozen=True)
class AnswersEvalConfig(ExamplesEvalConfig):
    """How a model that answers questions is evaluated and used."""

    max_answer_len: int = usual(64, "tokens of the longest answer", at_least=1)
    n_best: int = setting(5, "how many likely answers are reported for each question", at_least=1)


@dataclasses.dataclass(frozen=True)
class ClassificationConfig(Group):
    """The objective of classification: how much each class counts."""

    heading: ClassVar[str] = "data"

    balance_classes: bool = usual(
        False,
        "weight the examples of a class by (all examples) / (classes * its examples), so that all classes count alike",
    )

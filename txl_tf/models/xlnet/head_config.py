"""The settings of XLNets with a head other than the language model's, and of runs with them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar

from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.settings.examples import (
    AnswersEvalConfig,
    ClassificationConfig,
    ExamplesConfig,
    ExamplesEvalConfig,
    QuestionsConfig,
    TaggedTextsConfig,
    TextsConfig,
)
from txl_tf.settings.groups import Group, hidden, require, setting, usual
from txl_tf.settings.run import Config, TrainConfig

AnyHeadConfig = TypeVar("AnyHeadConfig", bound="XLNetHeadRunConfig")


@dataclasses.dataclass(frozen=True)
class XLNetLogitsConfig(XLNetConfig):
    """An XLNet with C outputs for a sequence: a classifier, a regressor, or a model that scores choices."""

    n_class: int = setting(2, "outputs for a sequence, C: the number of classes, or 1", at_least=1)
    summary_type: str = usual(
        "last",
        "how a sequence becomes one vector: the hidden state of the last or first token, the mean of all hidden states "
        "(padding included, as in the official code), or attention with a learned query",
        choices=("last", "first", "mean", "attn"),
    )
    summary_use_proj: bool = setting(True, "a dense layer with tanh follows the summary")
    summary_dropout: float = setting(0.1, "dropout of the summary", at_least=0, below=1)


@dataclasses.dataclass(frozen=True)
class XLNetAnswersConfig(XLNetConfig):
    """An XLNet that finds the answer to a question in a text."""

    answer_head: str = setting(
        "conditioned",
        "how an answer's end and its absence are found. conditioned: the end given the start, and a separate logit for "
        "no answer, as in the official code. simple: the end by itself, and both at CLS for no answer, as in "
        "XLNetForQuestionAnsweringSimple",
        choices=("conditioned", "simple"),
    )
    start_n_top: int = setting(5, "how many of the most likely starts of an answer are considered", at_least=1)
    end_n_top: int = setting(5, "how many of the most likely ends are considered for each start", at_least=1)


@dataclasses.dataclass(frozen=True)
class XLNetTagsConfig(XLNetConfig):
    """An XLNet with C outputs for every token."""

    n_class: int = setting(2, "outputs for a token, C: the number of tags", at_least=1)
    reuse_len: int = hidden(0, "tokens of a segment that are remembered; 0: all", at_least=0, at_most=0)
    mem_init: str = hidden("empty", "empty slots of memory are masked", choices=("empty",))


def _fine_tuning() -> TrainConfig:
    """Settings that the official scripts' fine-tuning commands share; and only the newest checkpoint is kept."""
    return TrainConfig(
        learning_rate=2e-5,
        lr_schedule="linear",
        min_lr_ratio=0.0,
        adam_epsilon=1e-6,
        clip=1.0,
        steps_per_loop=50,
        keep_checkpoints=1,
    )


@dataclasses.dataclass(frozen=True)
class XLNetHeadRunConfig(Config):
    """All settings of a run with a head; subclasses name the task, the model's settings and those of its data."""

    family: ClassVar[str] = "xlnet"

    data: ExamplesConfig = dataclasses.field(default_factory=ExamplesConfig)
    train: TrainConfig = dataclasses.field(default_factory=_fine_tuning)
    eval: ExamplesEvalConfig = dataclasses.field(default_factory=ExamplesEvalConfig)
    objective: Group = dataclasses.field(default_factory=Group)  # without settings: it follows from the head

    def __post_init__(self) -> None:
        require(
            self.max_segments == 1 or self.model.mem_len,
            f"max_segments={self.max_segments} needs memory: set mem_len above 0",
        )

    @property
    def max_segments(self) -> int:
        """The most segments of T tokens that a text may have, S."""
        return getattr(self.data, "max_segments", 1)

    def lengths(self) -> tuple[int, ...]:
        """The lengths that evaluation may cut batches to; only T if the model's output depends on padding."""
        t_len = self.data.tgt_len
        sees_padding = getattr(self.model, "summary_type", None) in ("mean", "first")
        whole = tuple(range(2 * t_len, (self.max_segments + 1) * t_len, t_len))
        return ((t_len,) if sees_padding else bucket_lengths(t_len)) + whole

    def fit_to_pretrained(self: AnyHeadConfig, pretrained: Config, train: Any) -> AnyHeadConfig:
        """With the pretrained model's sizes and settings, and one class for each label of the ExampleSet `train`.

        If texts may have several segments, all their tokens are remembered, and empty slots of memory are masked.
        """
        classes = {"n_class": len(train.labels)} if train.labels else {}
        return self.replace(model=self.shared_settings(pretrained) | classes)

    def shared_settings(self, pretrained: Config) -> dict[str, Any]:
        """The settings of the model that are the pretrained model's, or follow from them."""
        names = {field.name for field in dataclasses.fields(self.model)} - {"n_class"}
        shared = {name: value for name, value in vars(pretrained.model).items() if name in names}
        return shared | ({"reuse_len": 0, "mem_init": "empty"} if self.max_segments > 1 else {})


def bucket_lengths(t_len: int) -> tuple[int, ...]:
    """The few lengths that batches sorted by length are cut to: fractions of T, and T itself."""
    return tuple(sorted({-(-t_len * eighths // 8) for eighths in (1, 2, 3, 4, 6, 8)}))


@dataclasses.dataclass(frozen=True)
class XLNetClassificationConfig(XLNetHeadRunConfig):
    """A sequence belongs to one of C classes."""

    task: ClassVar[str] = "classification"

    model: XLNetLogitsConfig = dataclasses.field(default_factory=XLNetLogitsConfig)
    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)
    objective: ClassificationConfig = dataclasses.field(default_factory=ClassificationConfig)


@dataclasses.dataclass(frozen=True)
class XLNetMultiLabelConfig(XLNetHeadRunConfig):
    """A sequence has any number of C labels."""

    task: ClassVar[str] = "multi_label"

    model: XLNetLogitsConfig = dataclasses.field(default_factory=XLNetLogitsConfig)
    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)


@dataclasses.dataclass(frozen=True)
class _XLNetScoreConfig(XLNetHeadRunConfig):
    """A sequence has one number."""

    model: XLNetLogitsConfig = dataclasses.field(default_factory=lambda: XLNetLogitsConfig(n_class=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.model.n_class == 1, f"n_class={self.model.n_class} must be 1 for {self.task}")


@dataclasses.dataclass(frozen=True)
class XLNetRegressionConfig(_XLNetScoreConfig):
    """A sequence has a score, such as the similarity of two texts."""

    task: ClassVar[str] = "regression"

    data: TextsConfig = dataclasses.field(default_factory=TextsConfig)


@dataclasses.dataclass(frozen=True)
class XLNetMultipleChoiceConfig(_XLNetScoreConfig):
    """One of a few sequences is the right one, such as a question with one of its answers."""

    task: ClassVar[str] = "multiple_choice"


@dataclasses.dataclass(frozen=True)
class XLNetAnsweringConfig(XLNetHeadRunConfig):
    """A text holds the answer to a question, or does not."""

    task: ClassVar[str] = "answering"

    model: XLNetAnswersConfig = dataclasses.field(default_factory=XLNetAnswersConfig)
    data: QuestionsConfig = dataclasses.field(default_factory=QuestionsConfig)
    eval: AnswersEvalConfig = dataclasses.field(default_factory=AnswersEvalConfig)


@dataclasses.dataclass(frozen=True)
class XLNetTaggingConfig(XLNetHeadRunConfig):
    """Every word of a text has a tag, such as a name's kind or a part of speech."""

    task: ClassVar[str] = "tagging"

    model: XLNetTagsConfig = dataclasses.field(default_factory=XLNetTagsConfig)
    data: TaggedTextsConfig = dataclasses.field(default_factory=TaggedTextsConfig)

    def shared_settings(self, pretrained: Config) -> dict[str, Any]:
        """As for other tasks, with all tokens remembered; a model without memory gets a memory of one segment."""
        shared = super().shared_settings(pretrained)
        return shared | {"reuse_len": 0, "mem_init": "empty", "mem_len": shared["mem_len"] or self.data.tgt_len}

"""The settings that the runs of several tasks have."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar

from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.settings.groups import Group, hidden, require, setting, usual
from txl_tf.settings.run import Config, TrainConfig

AnyHeadConfig = TypeVar("AnyHeadConfig", bound="XLNetHeadRunConfig")


@dataclasses.dataclass(frozen=True)
class ExamplesConfig(Group):
    """The batches of examples."""

    heading: ClassVar[str] = "data"

    batch_size: int = usual(32, "examples per step over all replicas, B", at_least=1)
    tgt_len: int = usual(128, "tokens per sequence, padding included, T", at_least=8)
    bi_data: bool = hidden(False, "what an imported model's config.json says; only its export has it again")


SEGMENTS = (
    "a text is read in up to this many segments of tgt_len tokens, each with the memory (mem_len) of the segments "
    "before it. "
)


@dataclasses.dataclass(frozen=True)
class TextsConfig(ExamplesConfig):
    """The batches of texts and pairs of texts."""

    max_segments: int = usual(1, SEGMENTS + "The head reads the last segment, and only that has a gradient", at_least=1)


@dataclasses.dataclass(frozen=True)
class ExamplesEvalConfig(Group):
    """How a model with a head is evaluated and used."""

    owner: ClassVar[str] = "evaluation's "
    heading: ClassVar[str] = "evaluation"

    batch_size: int = usual(32, "examples that are evaluated at once", at_least=1)
    jit_compile: bool = setting(True, "compile evaluation with XLA on one CPU or GPU (a TPU always compiles)")


_FINE_TUNING: dict[str, Any] = {"learning_rate": 2e-5, "lr_schedule": "linear", "min_lr_ratio": 0.0}
_FINE_TUNING |= {"adam_epsilon": 1e-6, "clip": 1.0, "steps_per_loop": 50, "keep_checkpoints": 1}
"""Settings that the official scripts' fine-tuning commands share; and only the newest checkpoint is kept."""


@dataclasses.dataclass(frozen=True)
class XLNetHeadRunConfig(Config):
    """All settings of a run with a head; subclasses name the task, the model's settings and those of its data."""

    family: ClassVar[str] = "xlnet"

    data: ExamplesConfig = dataclasses.field(default_factory=ExamplesConfig)
    train: TrainConfig = dataclasses.field(default_factory=lambda: TrainConfig(**_FINE_TUNING))
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
        """With the pretrained model's sizes and settings, and one class for each label of the ExampleSet `train`."""
        classes = {"n_class": len(train.labels)} if train.labels else {}
        return self.replace(model=self.shared_settings(pretrained) | classes)

    def shared_settings(self, pretrained: Config) -> dict[str, Any]:
        """The settings of the model that are the pretrained model's, or follow from them."""
        # In texts of several segments all tokens are remembered, and empty slots of memory are masked.
        names = {field.name for field in dataclasses.fields(self.model)} - {"n_class"}
        shared = {name: value for name, value in vars(pretrained.model).items() if name in names}
        return shared | ({"reuse_len": 0, "mem_init": "empty"} if self.max_segments > 1 else {})


def bucket_lengths(t_len: int) -> tuple[int, ...]:
    """The few lengths that batches sorted by length are cut to: fractions of T, and T itself."""
    return tuple(sorted({-(-t_len * eighths // 8) for eighths in (1, 2, 3, 4, 6, 8)}))


@dataclasses.dataclass(frozen=True)
class XLNetScoreConfig(XLNetHeadRunConfig):
    """A sequence has one number."""

    model: XLNetLogitsConfig = dataclasses.field(default_factory=lambda: XLNetLogitsConfig(n_class=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.model.n_class == 1, f"n_class={self.model.n_class} must be 1 for {self.task}")

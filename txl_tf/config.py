"""The settings machinery, and the groups of settings that all families share.

Every setting of a run is a field of a frozen dataclass: flags, config.json and presets come from these. The names are
those of the official code. A `Config` has five groups: the model, the batches it is trained on, the training run, the
evaluation, and the objective. Each family defines its own groups for model and evaluation, in
models/<family>/config.py, and a subclass of `Config` that names the types of all five.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from txl_tf.errors import InputError

FORMAT = 2
"""Format version of config.json. Format 1 has no family, and has loss_positions in the group "train"."""


class _Dataclass(typing.Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Settings = typing.TypeVar("Settings", bound=_Dataclass)
Run = typing.TypeVar("Run", bound="Config")


def setting(default: Any, help: str, choices: tuple[str, ...] | None = None) -> Any:
    """A dataclass field; its help and choices are also those of its command-line flag."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


def require(condition: object, message: str) -> None:
    """Raises InputError with this message unless the condition is true."""
    if not condition:
        raise InputError(message)


def require_choices(config: Any) -> None:
    """Raises InputError if a field of a settings dataclass has a value that is not among its choices."""
    for field in dataclasses.fields(config):
        value, choices = getattr(config, field.name), field.metadata["choices"]
        require(not choices or value in choices, f"{field.name} is {value!r}; choose from {choices}")


def require_at_least(config: Any, least: int, *names: str) -> None:
    """Raises InputError if one of these fields of a settings dataclass is smaller than `least`."""
    for name in names:
        value = getattr(config, name)
        rule = "must not be negative" if least == 0 else f"must be at least {least}"
        require(value >= least, f"{name}={value} {rule}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The batches a model is trained on."""

    batch_size: int = setting(24, "segments per step over all replicas, B: the number of lanes")
    tgt_len: int = setting(512, "tokens per segment, T")
    random_offset: bool = setting(False, "move the lanes' start in every epoch, so that other tokens are left over")

    def __post_init__(self) -> None:
        """Refuses empty batches."""
        require_at_least(self, 1, "batch_size", "tgt_len")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Optimisation and schedule of a training run. Steps are optimizer updates."""

    train_steps: int = setting(400_000, "number of updates")
    learning_rate: float = setting(2.5e-4, "Adam's peak learning rate")
    lr_schedule: str = setting(
        "cosine",
        "how the learning rate falls after the warmup: half a cosine (official Transformer-XL) or linearly (XLNet)",
        choices=("cosine", "linear"),
    )
    min_lr_ratio: float = setting(0.004, "the schedule ends at this fraction of learning_rate")
    warmup_steps: int = setting(0, "updates of linear warmup")
    adam_epsilon: float = setting(1e-8, "added to the root of Adam's second moment; 1e-6 in the XLNet paper")
    bias_correction: bool = setting(
        True, "correct for Adam's moments starting at zero; the official XLNet code with weight decay does not"
    )
    weight_decay: float = setting(
        0.0,
        "an update also subtracts learning rate * this * weight from all weights except biases and layer norms (AdamW, "
        "Loshchilov and Hutter 2019); 0.01 in XLNet's pretraining",
    )
    layer_decay: float = setting(
        1.0,
        "a layer's learning rate is this times that of the layer above it, the embedding's this times that of the "
        "lowest layer (XLNet paper: 0.75 for SQuAD); 1: the same rate for all layers",
    )
    layer_decay_of: str = setting(
        "rate",
        "what layer_decay multiplies: the learning rate (XLNet paper), or the clipped gradient (official XLNet code; "
        "Adam nearly cancels this, since it normalises gradients)",
        choices=("rate", "gradient"),
    )
    clip: float = setting(0.25, "largest global norm of the gradient, summed over replicas; 0: no clipping")
    accumulate_steps: int = setting(
        1, "read each replica's lanes in this many groups, one after the other: the same update in less memory"
    )
    bfloat16_moments: bool = setting(
        False, "keep Adam's moments in bfloat16, stochastically rounded: half the memory and bandwidth for moments"
    )
    ema_decay: float = setting(0.0, "also keep an exponential average of the weights with this decay; 0: none")
    average_from_step: int = setting(0, "also keep the mean of the weights from this update on; 0: none")
    seed: int = setting(1, "of initial weights, dropout and lane offsets")
    jit_compile: bool = setting(
        True, "compile the step with XLA on one CPU or GPU, if TensorFlow can (on a TPU it is always compiled)"
    )
    steps_per_loop: int = setting(200, "updates per call of the host loop on the device; changes no result")
    log_steps: int = setting(200, "updates between lines of metrics.jsonl")
    save_steps: int = setting(4_000, "updates between checkpoints")
    eval_steps: int = setting(4_000, "updates between evaluations on the valid split; 0: none")
    early_stop_evals: int = setting(0, "end the run when valid has not improved for this many evaluations; 0: never")
    keep_checkpoints: int = setting(3, "newest checkpoints to keep, in addition to the best on valid")
    warm_start: str = setting(
        "", "start with the weights of this model_dir (its newest) or checkpoint; its other state is not used"
    )
    max_bad_steps: int = setting(100, "stop after this many skipped updates in a row (loss or gradient not finite)")
    profile_steps: tuple[int, ...] = setting((), "a,b: write a TensorBoard profile from update a to update b")
    peak_tflops: float = setting(
        0.0,
        "peak TFLOP/s of a replica, to compute MFU, the used fraction of it; 0: the peak in bfloat16 on a TPU of known "
        "type, no MFU on other devices",
    )

    def __post_init__(self) -> None:
        """Refuses a run that cannot start or end."""
        require_choices(self)
        require_at_least(self, 1, "train_steps", "accumulate_steps", "steps_per_loop", "log_steps", "save_steps")
        require_at_least(self, 1, "keep_checkpoints", "max_bad_steps")
        require_at_least(self, 0, "warmup_steps", "eval_steps", "early_stop_evals", "clip", "min_lr_ratio")
        require_at_least(self, 0, "peak_tflops")
        require(
            not self.profile_steps
            or (
                len(self.profile_steps) == 2 and 0 <= self.profile_steps[0] < self.profile_steps[1] <= self.train_steps
            ),
            f"profile_steps={','.join(map(str, self.profile_steps))} must be two numbers of updates, a,b with "
            f"0 <= a < b <= train_steps={self.train_steps}",
        )
        require(
            self.eval_steps or not self.early_stop_evals,
            f"early_stop_evals={self.early_stop_evals} needs evaluations: set eval_steps above 0",
        )
        require(self.learning_rate > 0, f"learning_rate={self.learning_rate} must be positive")
        require(
            1e-37 <= self.adam_epsilon < math.inf,
            f"adam_epsilon={self.adam_epsilon} must be finite and at least 1e-37, so that float32 can represent it",
        )
        require(
            0 <= self.weight_decay < 1 / self.learning_rate,
            f"weight_decay={self.weight_decay} must be at least 0 and less than 1 / learning_rate="
            f"{1 / self.learning_rate:g}, or an update would subtract a whole weight",
        )
        require(0 < self.layer_decay <= 1, f"layer_decay={self.layer_decay} must be in (0, 1]")
        require(
            self.warmup_steps < self.train_steps,
            f"warmup_steps={self.warmup_steps} must be less than train_steps={self.train_steps}",
        )
        require(0 <= self.ema_decay < 1, f"ema_decay={self.ema_decay} must be in [0, 1)")
        require(
            0 <= self.average_from_step <= self.train_steps,
            f"average_from_step={self.average_from_step} must be at most train_steps={self.train_steps}",
        )
        require(
            not (self.ema_decay and self.average_from_step),
            "give ema_decay or average_from_step, not both: a run keeps one average",
        )

    @property
    def averages_weights(self) -> bool:
        """Whether an average of the weights is kept."""
        return bool(self.ema_decay or self.average_from_step)


@dataclasses.dataclass(frozen=True)
class CausalLMConfig:
    """The objective of causal language modelling: which targets count."""

    loss_positions: str = setting(
        "full",
        "targets of a segment that count in the loss: all, or the second half of them (the paper's table 6)",
        choices=("full", "half"),
    )

    def __post_init__(self) -> None:
        """Refuses unknown choices."""
        require_choices(self)


CONTEXT, FUNCTIONAL, TARGET = range(3)
"""Kinds of token in a factorization order; functional tokens are SEP and CLS, which are never predicted."""


@dataclasses.dataclass(frozen=True)
class PermutationLMConfig:
    """The objective of permutation language modelling: which tokens are predicted, and in which orders."""

    num_predict: int = setting(85, "predicted tokens per segment, P")
    perm_size: int = setting(256, "tokens that are permuted together, at most reuse_len and tgt_len - reuse_len")
    mask_alpha: int = setting(6, "a span of n tokens is predicted out of n * mask_alpha / mask_beta (the paper's K)")
    mask_beta: int = setting(1, "see mask_alpha")
    max_span: int = setting(
        5, "tokens in the longest predicted span; the probability of n tokens is proportional to 1 / n"
    )

    def __post_init__(self) -> None:
        """Refuses settings with which no spans can be drawn."""
        require_at_least(self, 1, "num_predict", "perm_size", "mask_alpha", "mask_beta", "max_span")
        require(
            self.mask_alpha > self.mask_beta,
            f"mask_alpha={self.mask_alpha} must exceed mask_beta={self.mask_beta}, or no context would be left",
        )


@dataclasses.dataclass(frozen=True)
class PairsConfig:
    """The batches of segments that consist of tokens to be remembered, followed by a pair of texts."""

    batch_size: int = setting(16, "segments per step over all replicas, B: the number of lanes")
    tgt_len: int = setting(512, "tokens per segment, T")
    bi_data: bool = setting(True, "half of the lanes read the text backward")

    def __post_init__(self) -> None:
        """Refuses empty batches."""
        require_at_least(self, 1, "batch_size", "tgt_len")
        require(
            self.batch_size % 2 == 0 or not self.bi_data,
            f"batch_size={self.batch_size} is odd, and with bi_data half of the lanes read backward: make it even",
        )


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` in a model_dir holds them. Subclasses name the types of the groups.

    Attributes:
        family, task: names of the model family and of its task, as in families.py.
    """

    family: ClassVar[str]
    task: ClassVar[str]

    model: Any
    data: Any
    train: TrainConfig
    eval: Any
    objective: Any

    @classmethod
    def groups(cls) -> dict[str, type]:
        """The type of each group: {"model": .., "data": .., ..}."""
        return field_types(cls)

    def to_json(self) -> str:
        """The settings as indented JSON text."""
        about = {"format": FORMAT, "family": self.family, "task": self.task}
        return json.dumps(about | dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_groups(cls: type[Run], groups: Mapping[str, Any], where: str) -> Run:
        """The settings in the groups of a config.json; missing settings have their defaults.

        Args:
            groups: group -> field -> value.
            where: the file's name, for messages.

        Raises:
            InputError: an unknown group or key, or a value of the wrong type.
        """
        known = cls.groups()
        unknown = sorted(set(groups) - set(known))
        require(not unknown, f"{where} has unknown groups {unknown}; known are {sorted(known)}")
        return cls(**{name: from_dict(known[name], values, f"{where}, {name}") for name, values in groups.items()})

    def replace(self: Run, **groups: Mapping[str, Any]) -> Run:
        """These settings with some fields of some groups replaced: replace(train={"seed": 2})."""
        return dataclasses.replace(self, **{name: update(getattr(self, name), v) for name, v in groups.items()})


def parse_config(text: str, where: str) -> dict[str, Any]:
    """The JSON object in the text of a config.json: format, family, task and groups.

    Raises:
        InputError: not JSON, not an object, or of a format that this version does not know; `where` names the file.
    """
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error}): restore it or start a new model_dir") from error
    require(isinstance(parsed, dict), f"{where} must hold a JSON object")
    version = parsed.setdefault("format", 1)
    known = type(version) is int and 1 <= version <= FORMAT
    require(known, f"{where} has format {version!r}; this version of txl_tf reads 1 to {FORMAT}")
    return parsed


def field_types(config_class: type) -> dict[str, Any]:
    """The type of each field as an object, not a string: {"cutoffs": tuple[int, ...], ..}."""
    hints = typing.get_type_hints(config_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class)}


def update(config: Settings, values: Mapping[str, Any]) -> Settings:
    """`config` with some fields replaced, each value checked against its field's type and choices."""
    return dataclasses.replace(config, **_checked(type(config), values, type(config).__name__))


def from_dict(config_class: type[Settings], values: Any, where: str) -> Settings:
    """A settings dataclass from a dict; raises InputError for unknown keys and values of the wrong type."""
    require(isinstance(values, dict), f"{where} must be a JSON object, not {type(values).__name__}")
    return config_class(**_checked(config_class, values, where))


def _checked(config_class: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    unknown = sorted(set(values) - set(fields))
    require(not unknown, f"{where} has unknown keys {unknown}; known are {sorted(fields)}")
    kinds = field_types(config_class)
    checked = {}
    for name, value in values.items():
        checked[name] = _coerce(value, kinds[name], f"{where}: {name}")
        choices = fields[name].metadata["choices"]
        require(not choices or value in choices, f"{where}: {name} is {value!r}; choose from {choices}")
    return checked


def _coerce(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind`: an int is converted to float and a list to tuple; other conversions are refused."""
    if isinstance(kind, types.GenericAlias):
        require(
            isinstance(value, (list, tuple)) and all(type(item) is int for item in value),
            f"{where} must be a list of integers, got {value!r}",
        )
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    require(type(value) is kind, f"{where} must be of type {kind.__name__}, got {value!r}")
    return value

"""The settings of a run, and the groups of settings that all families share.

The names are those of the official code. A `Config` has five groups: the model, the batches it is trained on, the
training run, the evaluation, and the objective. Each family defines its own groups for model and evaluation, in
models/<family>/config.py, and a subclass of `Config` that names the types of all five.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from txl_tf.settings.choices import OPS
from txl_tf.settings.groups import Group, field_types, from_dict, hidden, minor, require, setting, update, usual
from txl_tf.storage.strict_json import check_record, parse_json

_REMEDY = "restore it or start a new model_dir"
FORMAT = 2
"""Format version of config.json. Format 1 has no family, and has loss_positions in the group "train"."""
AnyConfig = typing.TypeVar("AnyConfig", bound="Config")


@dataclasses.dataclass(frozen=True)
class DataConfig(Group):
    """The batches a model is trained on."""

    heading: ClassVar[str] = "data"

    batch_size: int = usual(24, "segments per step over all replicas, B: the number of lanes", at_least=1)
    tgt_len: int = usual(512, "tokens per segment, T", at_least=1)
    tgt_len_std: int = setting(
        0,
        "draw each segment's length from a normal distribution with this standard deviation, as AWD-LSTM does; its "
        "mean is tgt_len, or with probability 0.05 half of it; 0: all segments have tgt_len",
        at_least=0,
    )
    random_offset: bool = minor(False, "start the lanes elsewhere in every epoch, so that other tokens are left over")

    def __post_init__(self) -> None:
        super().__post_init__()
        std = self.tgt_len_std
        require(3 * std < self.tgt_len, f"tgt_len_std={std} must be less than a third of tgt_len={self.tgt_len}")
        both = std and self.random_offset
        require(not both, "give tgt_len_std or random_offset, not both: random lengths already move segments")

    @property
    def longest(self) -> int:
        """Tokens of the longest segment, to which all are padded: three standard deviations above tgt_len."""
        return self.tgt_len + 3 * self.tgt_len_std


@dataclasses.dataclass(frozen=True)
class TrainConfig(Group):
    """Optimisation and schedule of a training run. Steps are optimizer updates."""

    heading: ClassVar[str] = "optimizer"

    train_steps: int = usual(400_000, "number of updates", at_least=1, under="schedule")
    learning_rate: float = usual(2.5e-4, "Adam's peak learning rate", above=0)
    lr_schedule: str = usual(
        "cosine",
        "how the learning rate falls after the warmup: half a cosine (official Transformer-XL) or linearly (XLNet)",
        choices=("cosine", "linear"),
        under="schedule",
    )
    min_lr_ratio: float = setting(
        0.004, "the schedule ends at this fraction of learning_rate", at_least=0, at_most=1, under="schedule"
    )
    warmup_steps: int = usual(0, "updates of linear warmup", at_least=0, under="schedule")
    adam_epsilon: float = hidden(
        1e-8, "added to the root of Adam's second moment; 1e-6 in the XLNet paper", at_least=1e-37
    )
    bias_correction: bool = hidden(
        True, "correct for Adam's moments starting at zero; the official XLNet code with weight decay does not"
    )
    weight_decay: float = usual(
        0.0,
        "an update also subtracts learning rate * this * weight, except from biases and layer norms (AdamW, Loshchilov "
        "and Hutter 2019); 0.01 in XLNet's pretraining",
        at_least=0,
    )
    l2: float = setting(
        0.0,
        "L2 regularization: add this times the weight to each clipped gradient, before Adam's moments (--weight_decay "
        "is AdamW's)",
        at_least=0,
    )
    embedding_lr: float = minor(1.0, "the embedding's learning rate is this times that of other weights", above=0)
    lr_by_length: bool = minor(
        False, "multiply the learning rate of a step by its number of targets / (batch_size * tgt_len)"
    )
    layer_decay: float = setting(
        1.0,
        "each layer's learning rate is this times the rate of the layer above it, and the embedding counts as the "
        "lowest layer (XLNet paper: 0.75 for SQuAD); 1: the same rate for all layers",
        above=0,
        at_most=1,
    )
    layer_decay_of: str = hidden(
        "rate",
        "what layer_decay multiplies: the learning rate (XLNet paper), or the clipped gradient (official XLNet code; "
        "Adam nearly cancels this, since it normalises gradients)",
        choices=("rate", "gradient"),
    )
    clip: float = usual(0.25, "largest global norm of the gradient, summed over replicas; 0: no clipping", at_least=0)
    accumulate_steps: int = usual(
        1,
        "process each replica's lanes in this many groups, one after the other: the same update in less memory",
        at_least=1,
        under="devices",
    )
    bfloat16_moments: bool = setting(
        False,
        "keep Adam's moments in bfloat16, stochastically rounded: half the memory and bandwidth for moments",
        under="devices",
    )
    shard_optimizer: bool = setting(
        False,
        "shard weights, moments and averaged weights over the replicas; each replica updates its shards, and whole "
        "weights exist only within steps and evaluations. Saves memory and time with many replicas; changes updates by "
        "rounding at most, and nothing on one replica",
        under="devices",
    )
    bfloat16_gradients: bool = setting(
        False,
        "with shard_optimizer: sum the gradients of sharded weights over the replicas in bfloat16. On a TPU this sends "
        "half the bytes and takes less memory, elsewhere it only rounds; changes nothing on one replica",
        under="devices",
    )
    ema_decay: float = usual(
        0.0, "also keep an exponential average of the weights with this decay; 0: none", at_least=0, below=1
    )
    average_from_step: int = setting(0, "also keep the mean of the weights from this update on; 0: none", at_least=0)
    average_lr_ratio: float = minor(
        0.0,
        "from average_from_step on the learning rate stays at this fraction of learning_rate; 0: it follows the "
        "schedule",
        at_least=0,
        under="schedule",
    )
    seed: int = usual(1, "random seed, of initial weights, dropout and lane offsets", at_least=0, under="schedule")
    jit_compile: bool = usual(
        True, "compile the step with XLA on one CPU or GPU (a TPU always compiles)", under="devices"
    )
    steps_per_loop: int = usual(
        200, "updates per call of the host loop on the device; changes no result", at_least=1, under="devices"
    )
    log_steps: int = usual(200, "updates between lines of metrics.jsonl", at_least=1, under="saving")
    save_steps: int = usual(4_000, "updates between checkpoints", at_least=1, under="saving")
    eval_steps: int = usual(
        4_000, "updates between evaluations on the valid split; 0: none", at_least=0, under="saving"
    )
    early_stop_evals: int = usual(
        0,
        "end the run if the last evaluations, this many, gave no better result on valid or dev; 0: never",
        at_least=0,
        under="schedule",
    )
    keep_checkpoints: int = usual(
        3, "newest checkpoints to keep, in addition to the best on valid", at_least=1, under="saving"
    )
    warm_start: str = usual(
        "",
        "start with the weights of this checkpoint or model_dir (its newest checkpoint, or for a fine-tuned model the "
        "best on dev), and with nothing else from it",
        under="model",
    )
    warm_start_layers: int = setting(
        0,
        "take only the first layers of --warm_start, this many; needed if it has another number of layers; the other "
        "layers start new; 0: take all",
        at_least=0,
        under="model",
    )
    origin: str = hidden(
        "", "the published model that the first weights are of, hf://OWNER/NAME@COMMIT; it follows from its name"
    )
    ops: str = hidden(
        "proven", "what computes the model, as --ops gave it; kept when the run is continued", choices=OPS
    )
    extended_at: tuple[int, ...] = hidden(
        (), "the earlier train_steps of a run that was extended; its schedule up to each of them stays"
    )
    eval_tokens: int = setting(
        0,
        "evaluations while training read only the first tokens of the valid split, this many; 0: all",
        at_least=0,
        under="saving",
    )
    freeze: str = setting(
        "",
        "weights that are not trained, such as embedding,layers:0-7: layers, and names (or their beginnings) as in the "
        "table of scripts/describe_model.py; they have no gradient, no moments and no average",
        under="model",
    )
    max_bad_steps: int = minor(
        100, "stop after this many skipped updates in a row (loss or gradient not finite)", at_least=1, under="schedule"
    )
    profile_steps: tuple[int, ...] = setting(
        (), "a,b: write a TensorBoard profile from update a to update b", at_least=0, under="devices"
    )
    peak_tflops: float = minor(
        0.0,
        "peak TFLOP/s of a replica, to compute MFU, the fraction of it that is used; 0: the bfloat16 peak of a known "
        "TPU, and no MFU on other devices",
        at_least=0,
        under="devices",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        steps, warmup = self.train_steps, self.warmup_steps
        average, profile = self.average_from_step, self.profile_steps
        require(
            not profile or (len(profile) == 2 and profile[0] < profile[1] <= steps),
            f"profile_steps={','.join(map(str, profile))} must be two numbers of updates, a,b with "
            f"0 <= a < b <= train_steps={steps}",
        )
        evaluates = self.eval_steps or not self.early_stop_evals
        require(evaluates, f"early_stop_evals={self.early_stop_evals} needs evaluations: set eval_steps above 0")
        require(
            self.shard_optimizer or not self.bfloat16_gradients,
            "bfloat16_gradients needs shard_optimizer: only gradients of sharded weights are summed in bfloat16",
        )
        require(
            self.weight_decay < 1 / self.learning_rate,
            f"weight_decay={self.weight_decay} must be less than 1 / learning_rate={1 / self.learning_rate:g}, or an "
            "update would subtract a whole weight",
        )
        require(warmup < steps, f"warmup_steps={warmup} must be less than train_steps={steps}: lower it, too")
        require(
            all(earlier < later for earlier, later in itertools.pairwise((warmup, *self.ends))),
            f"extended_at={','.join(map(str, self.extended_at))} must rise from warmup_steps={warmup} to "
            f"train_steps={steps}",
        )
        require(average <= steps, f"average_from_step={average} must be at most train_steps={steps}")
        require(
            warmup < average or not self.average_lr_ratio,
            f"average_lr_ratio={self.average_lr_ratio} needs average_from_step above warmup_steps={warmup}",
        )
        both = self.ema_decay and average
        require(not both, "give ema_decay or average_from_step, not both: a run keeps one average")

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps at which this run ends, or ended before it was extended."""
        return (*self.extended_at, self.train_steps)

    @property
    def averages_weights(self) -> bool:
        """Whether an average of the weights is kept."""
        return bool(self.ema_decay or self.average_from_step)


@dataclasses.dataclass(frozen=True)
class CausalLMConfig(Group):
    """The objective of causal language modelling: which targets count."""

    heading: ClassVar[str] = "data"

    loss_positions: str = minor(
        "full",
        "targets of a segment that count in the loss: all, or the second half of them (the paper's table 6)",
        choices=("full", "half"),
    )
    activation_penalty: float = minor(
        0.0, "add to the loss this times the mean square of the last hidden states, after dropout", at_least=0
    )
    slowness_penalty: float = minor(
        0.0,
        "add to the loss this times the mean square of the differences between neighbouring last hidden states, before "
        "dropout",
        at_least=0,
    )


GROUP_PREFIXES = {"eval": "eval_"}
"""The prefixes of the names of a group's settings outside of it, as in flags; other groups' names stand alone."""


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` in a model_dir holds them. Subclasses name the types of the groups.

    `family` and `task` are names of the model family and of its task, as in families/.
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
    def from_groups(cls: type[AnyConfig], groups: Mapping[str, Any], where: str) -> AnyConfig:
        """The settings in the groups of a config.json, {group: {field: value}}; missing settings have their defaults.

        InputError for an unknown group or key, or a value of the wrong type; `where` is the file's name.
        """
        known = cls.groups()
        unknown = sorted(set(groups) - set(known))
        require(not unknown, f"{where} has unknown groups {unknown}; known are {sorted(known)}")
        return cls(**{name: from_dict(known[name], values, f"{where}, {name}") for name, values in groups.items()})

    def replace(self: AnyConfig, **groups: Mapping[str, Any]) -> AnyConfig:
        """These settings with some fields of some groups replaced: replace(train={"seed": 2})."""
        return dataclasses.replace(self, **{name: update(getattr(self, name), v) for name, v in groups.items()})


def parse_config(text: str, where: str) -> dict[str, Any]:
    """The JSON object in the text of a config.json: format, family, task and groups.

    InputError if it is not JSON, not an object, or of a format that this version does not know; `where` names the file.
    """
    parsed = check_record(parse_json(text, where, _REMEDY), where, {}, _REMEDY)
    check_record(parsed, where, {name: str for name in ("family", "task") if name in parsed}, _REMEDY)
    version = parsed.setdefault("format", 1)
    known = type(version) is int and 1 <= version <= FORMAT
    require(known, f"{where} has format {version!r}; this version of txl_tf reads 1 to {FORMAT}")
    train = parsed.get("train")
    if isinstance(train, dict) and train.pop("program", "") == "kernels":  # older versions: how a run was computed
        train["jit_compile"] = False
    return parsed

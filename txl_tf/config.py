"""Every setting of a run, as frozen dataclasses: the single source for flags, config.json and presets (presets.py).

The names are those of the official code. `Config` holds four groups: the model, the batches it is trained on, the
training run, and how it is evaluated.
"""

import dataclasses
import itertools
import json
import math
import types
import typing

from txl_tf.errors import InputError


def setting(default, help, choices=None):
    """A dataclass field whose help and choices also make its command-line flag."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


def _require(condition, message):
    if not condition:
        raise InputError(message)


def _require_choices(config):
    for field in dataclasses.fields(config):
        value, choices = getattr(config, field.name), field.metadata["choices"]
        _require(not choices or value in choices, f"{field.name} is {value!r}; choose from {choices}")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The architecture. All but the last group fixes the weights; the last says how far attention reaches."""

    vocab_size: int = setting(256, "number of tokens in the vocabulary, V; taken from the data when training")
    n_layer: int = setting(12, "number of decoder layers, N")
    d_model: int = setting(512, "width of the hidden states, D; even")
    d_embed: int = setting(512, "width of the embeddings (of the most frequent cluster)")
    n_head: int = setting(8, "attention heads per layer, H")
    d_head: int = setting(64, "size of one attention head")
    d_inner: int = setting(2048, "width of the feed-forward block's hidden layer")
    attn_type: str = setting(
        "transformer_xl",
        "how attention learns of positions, official numbers in brackets: the paper's relative encoding [0], 'shaw' "
        "learned relative keys [1], 'vaswani' sinusoids added to the input [2], 'alrfou' vectors learned per layer and "
        "added to its input [3]",
        choices=("transformer_xl", "shaw", "vaswani", "alrfou"),
    )
    max_klen: int = setting(
        1024,
        "positions that shaw and alrfou tell apart, officially tgt_len + mem_len of training; farther ones are alike",
    )
    untie_r: bool = setting(False, "a global content and position bias (u, v) for each layer instead of one for all")
    cutoffs: tuple[int, ...] = setting((), "ids at which the clusters of the adaptive softmax end; empty: full softmax")
    div_val: int = setting(1, "divide the embedding width by this from cluster to cluster")
    tie_weight: bool = setting(True, "softmax and embedding share their tables")
    proj_share_all_but_first: bool = setting(False, "softmax and embedding share projections of all tail clusters")
    proj_same_dim: bool = setting(True, "project clusters that have the model's width, too")
    activation: str = setting("relu", "of the feed-forward block", choices=("relu", "gelu"))
    pre_lnorm: bool = setting(
        False, "normalise what the sublayers read instead of their sums; as officially, none follows the last layer"
    )
    layer_norm_epsilon: float = setting(1e-5, "added to the variance in layer norm")
    init_std: float = setting(0.02, "standard deviation of initial weights")
    proj_init_std: float = setting(0.01, "standard deviation of initial embedding projections")
    dtype: str = setting(
        "float32", "Keras dtype policy of the computation", choices=("float32", "mixed_bfloat16", "float64")
    )
    remat: bool = setting(
        False, "keep only each layer's input for the backward pass and compute the rest again: less memory, same result"
    )
    dropout: float = setting(0.1, "dropout of embeddings, positions, sublayer outputs and feed-forward")
    dropout_type: str = setting(
        "standard",
        "'variational': one mask for all positions, as AWD-LSTM and the paper's PTB result (not for dropatt)",
        choices=("standard", "variational"),
    )
    dropemb: float = setting(0.0, "dropout of whole words of the vocabulary at the input, as in AWD-LSTM")
    dropatt: float = setting(0.0, "dropout of attention probabilities")

    mem_len: int = setting(512, "memory slots per layer, M")
    clamp_len: int = setting(-1, "distances beyond this one look alike; <= 0: all are told apart")
    same_length: bool = setting(False, "every query sees equally many keys, instead of all that are there")
    same_length_window: str = setting(
        "tf", "keys a query sees with same_length: 'tf' mem_len + 1, 'pytorch' mem_len", choices=("tf", "pytorch")
    )
    mem_init: str = setting(
        "zeros",
        "empty memory slots: 'zeros' are attended to as zero vectors (official TF), 'empty' are masked "
        "(official PyTorch)",
        choices=("zeros", "empty"),
    )

    def __post_init__(self):
        """Refuses sizes that make no model."""
        _require_choices(self)
        for name in (
            "vocab_size",
            "n_layer",
            "d_model",
            "d_embed",
            "n_head",
            "d_head",
            "d_inner",
            "div_val",
            "max_klen",
        ):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        _require(self.d_model % 2 == 0, f"d_model={self.d_model} must be even: half sines, half cosines")
        _require(self.mem_len >= 0, f"mem_len={self.mem_len} must not be negative")
        for name in ("dropout", "dropemb", "dropatt"):
            _require(0 <= getattr(self, name) < 1, f"{name}={getattr(self, name)} must be in [0, 1)")
        bounds = (0, *self.cutoffs, self.vocab_size)
        _require(
            all(low < high for low, high in itertools.pairwise(bounds)),
            f"cutoffs={list(self.cutoffs)} must rise and stay below vocab_size={self.vocab_size}",
        )
        narrowest = self.d_embed // self.div_val ** len(self.cutoffs)
        _require(
            narrowest >= 1, f"div_val={self.div_val} leaves nothing of d_embed={self.d_embed} for the last cluster"
        )

    @property
    def reach(self):
        """The settings that say how far attention reaches."""
        return Reach(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Reach)})


@dataclasses.dataclass(frozen=True)
class Reach:
    """How far attention reaches: all of it may differ between training and evaluation with the same weights.

    The fields are those of `ModelConfig`, where they are described.
    """

    mem_len: int
    clamp_len: int = -1
    same_length: bool = False
    same_length_window: str = "tf"
    mem_init: str = "zeros"

    @property
    def window(self):
        """The number of keys a query sees, itself included, or None where it sees all of the past."""
        return self.mem_len + (self.same_length_window == "tf") if self.same_length else None


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The batches a model is trained on."""

    batch_size: int = setting(24, "segments per step over all replicas, B: the number of lanes")
    tgt_len: int = setting(512, "tokens per segment, T")
    random_offset: bool = setting(False, "start the lanes elsewhere in every epoch, so that the remainder differs")

    def __post_init__(self):
        """Refuses empty batches."""
        for name in ("batch_size", "tgt_len"):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Optimisation and the course of a training run. Steps are optimizer updates."""

    train_steps: int = setting(400_000, "updates in all")
    learning_rate: float = setting(2.5e-4, "Adam's peak learning rate")
    lr_schedule: str = setting(
        "cosine",
        "how the learning rate falls after the warmup: half a cosine (official Transformer-XL) or linearly (XLNet)",
        choices=("cosine", "linear"),
    )
    min_lr_ratio: float = setting(0.004, "the schedule ends at this share of learning_rate")
    warmup_steps: int = setting(0, "updates of linear warmup")
    adam_epsilon: float = setting(1e-8, "added to the root of Adam's second moment; 1e-6 in the XLNet paper")
    bias_correction: bool = setting(
        True, "make up for Adam's moments beginning at zero; the official XLNet code does not with weight decay"
    )
    weight_decay: float = setting(
        0.0,
        "an update also takes learning rate * this of each weight but biases and layer norms (AdamW, Loshchilov and "
        "Hutter 2019); 0.01 in XLNet's pretraining",
    )
    layer_decay: float = setting(
        1.0,
        "each layer learns at this share of the rate of the layer above it, the embedding at that share of the lowest "
        "layer's (XLNet paper: 0.75 for SQuAD); 1: all layers alike",
    )
    layer_decay_of: str = setting(
        "rate",
        "what layer_decay multiplies: the learning rate (XLNet paper), or the clipped gradient (official XLNet code), "
        "which Adam nearly undoes",
        choices=("rate", "gradient"),
    )
    clip: float = setting(0.25, "largest global norm of the gradient, summed over replicas; 0: no clipping")
    loss_positions: str = setting(
        "full",
        "which targets of a segment are learned from: all, or the recent half of them (the paper's table 6)",
        choices=("full", "half"),
    )
    accumulate_steps: int = setting(
        1, "read each replica's lanes in so many groups, one after the other: one update in less memory"
    )
    bfloat16_moments: bool = setting(
        False, "keep Adam's moments in bfloat16, stochastically rounded: half their memory and bandwidth"
    )
    ema_decay: float = setting(0.0, "also keep an exponential average of the weights with this decay; 0: none")
    average_from_step: int = setting(
        0, "also keep the mean of the weights after this update and all later ones; 0: none"
    )
    seed: int = setting(1, "of initial weights, dropout and lane offsets")
    jit_compile: bool = setting(
        True, "compile the step with XLA on one CPU or GPU, where TensorFlow can (a TPU always compiles)"
    )
    steps_per_loop: int = setting(200, "updates per call of the host loop on the device; changes no result")
    log_steps: int = setting(200, "updates between lines of metrics.jsonl")
    save_steps: int = setting(4_000, "updates between checkpoints")
    eval_steps: int = setting(4_000, "updates between evaluations on the valid split; 0: none")
    early_stop_evals: int = setting(0, "end the run when valid has not improved for so many evaluations; 0: never")
    keep_checkpoints: int = setting(3, "newest checkpoints to keep, besides the best on valid")
    warm_start: str = setting(
        "", "begin with the weights of this model_dir (its newest) or checkpoint; no other state is taken from it"
    )
    max_bad_steps: int = setting(100, "stop after skipping so many updates in a row: loss or gradient not finite")
    profile_steps: tuple[int, ...] = setting((), "a,b: write a TensorBoard profile from update a to update b")
    peak_tflops: float = setting(
        0.0, "peak TFLOP/s of a replica, of which MFU is the share; 0: bfloat16's on a TPU of known kind, else no MFU"
    )

    def __post_init__(self):
        """Refuses a run that cannot start or end."""
        _require_choices(self)
        for name in (
            *("train_steps", "accumulate_steps", "steps_per_loop", "log_steps", "save_steps", "keep_checkpoints"),
            "max_bad_steps",
        ):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        for name in ("warmup_steps", "eval_steps", "early_stop_evals", "clip", "min_lr_ratio"):
            _require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must not be negative")
        _require(self.peak_tflops >= 0, f"peak_tflops={self.peak_tflops} must not be negative")
        _require(
            not self.profile_steps
            or (
                len(self.profile_steps) == 2 and 0 <= self.profile_steps[0] < self.profile_steps[1] <= self.train_steps
            ),
            f"profile_steps={','.join(map(str, self.profile_steps))} must be two numbers of updates, a,b with "
            f"0 <= a < b <= train_steps={self.train_steps}",
        )
        _require(
            self.eval_steps or not self.early_stop_evals,
            f"early_stop_evals={self.early_stop_evals} needs evaluations: give eval_steps, too",
        )
        _require(self.learning_rate > 0, f"learning_rate={self.learning_rate} must be positive")
        _require(
            1e-37 <= self.adam_epsilon < math.inf,
            f"adam_epsilon={self.adam_epsilon} must be finite and at least 1e-37, the smallest that float32 holds well",
        )
        _require(
            0 <= self.weight_decay < 1 / self.learning_rate,
            f"weight_decay={self.weight_decay} must be at least 0 and less than 1 / learning_rate="
            f"{1 / self.learning_rate:g}, or an update would take all of a weight",
        )
        _require(0 < self.layer_decay <= 1, f"layer_decay={self.layer_decay} must be in (0, 1]")
        _require(
            self.warmup_steps < self.train_steps,
            f"warmup_steps={self.warmup_steps} must be less than train_steps={self.train_steps}",
        )
        _require(0 <= self.ema_decay < 1, f"ema_decay={self.ema_decay} must be in [0, 1)")
        _require(
            0 <= self.average_from_step <= self.train_steps,
            f"average_from_step={self.average_from_step} must be at most train_steps={self.train_steps}",
        )
        _require(
            not (self.ema_decay and self.average_from_step),
            "give ema_decay or average_from_step, not both: one average",
        )

    @property
    def averages_weights(self):
        """Whether an average of the weights is kept."""
        return bool(self.ema_decay or self.average_from_step)


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """How far attention reaches in evaluation, usually farther than in training; the weights are the same."""

    batch_size: int = setting(10, "lanes the split is cut into")
    tgt_len: int = setting(80, "tokens per segment")
    mem_len: int = setting(2100, "memory slots per layer")
    clamp_len: int = setting(820, "distances beyond this one look alike; <= 0: all are told apart")
    same_length: bool = setting(True, "every query sees equally many keys")
    jit_compile: bool = setting(True, "compile evaluation with XLA on one CPU or GPU (a TPU always compiles)")

    def __post_init__(self):
        """Refuses empty batches."""
        for name in ("batch_size", "tgt_len"):
            _require(getattr(self, name) >= 1, f"evaluation's {name}={getattr(self, name)} must be at least 1")
        _require(self.mem_len >= 0, f"evaluation's mem_len={self.mem_len} must not be negative")


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` in a model_dir is this."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)

    def to_json(self):
        """The settings as indented JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text, where="config.json"):
        """The settings in JSON text; what is missing has its default.

        Raises:
            InputError: not JSON, an unknown key or a value of the wrong type; `where` names the place.
        """
        try:
            groups = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{where} is not JSON ({error}): restore it or start a new model_dir") from error
        _require(isinstance(groups, dict), f"{where} must hold a JSON object")
        group_types = {field.name: field.type for field in dataclasses.fields(cls)}
        unknown = sorted(set(groups) - set(group_types))
        _require(not unknown, f"{where} has unknown groups {unknown}; known are {sorted(group_types)}")
        return cls(
            **{name: from_dict(group_types[name], values, f"{where}, {name}") for name, values in groups.items()}
        )

    def for_evaluation(self, **overrides):
        """How to evaluate, with `overrides` of EvalConfig fields or mem_init (None: keep): (EvalConfig, Reach)."""
        given = {name: value for name, value in overrides.items() if value is not None}
        mem_init = given.pop("mem_init", self.model.mem_init)
        evaluation = update(self.eval, given)
        reach = {name: getattr(evaluation, name) for name in ("mem_len", "clamp_len", "same_length")}
        return evaluation, dataclasses.replace(self.model.reach, mem_init=mem_init, **reach)


def field_types(config_class):
    """The type of each field, resolved: {"cutoffs": tuple[int, ...], ..}."""
    return typing.get_type_hints(config_class)


def update(config, values):
    """`config` with some fields replaced, each value checked against its field's type and choices."""
    return dataclasses.replace(config, **_checked(type(config), values, type(config).__name__))


def from_dict(config_class, values, where):
    """A settings dataclass from a dict, unknown or ill-typed keys refused with an InputError."""
    _require(isinstance(values, dict), f"{where} must be a JSON object, not {type(values).__name__}")
    return config_class(**_checked(config_class, values, where))


def _checked(config_class, values, where):
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    unknown = sorted(set(values) - set(fields))
    _require(not unknown, f"{where} has unknown keys {unknown}; known are {sorted(fields)}")
    kinds = field_types(config_class)
    checked = {}
    for name, value in values.items():
        checked[name] = _coerce(value, kinds[name], f"{where}: {name}")
        choices = fields[name].metadata["choices"]
        _require(not choices or value in choices, f"{where}: {name} is {value!r}; choose from {choices}")
    return checked


def _coerce(value, kind, where):
    """`value` as `kind`: an int may stand for a float and a list for a tuple, nothing else is converted."""
    if isinstance(kind, types.GenericAlias):
        _require(
            isinstance(value, (list, tuple)) and all(type(item) is int for item in value),
            f"{where} must be a list of integers, got {value!r}",
        )
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    _require(type(value) is kind, f"{where} must be of type {kind.__name__}, got {value!r}")
    return value

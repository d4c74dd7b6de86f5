"""The settings of a Transformer-XL: its model, how far its attention reaches, and a whole run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from txl_tf.errors import InputError
from txl_tf.layers.dropout_rates import Rates
from txl_tf.settings.choices import DTYPES
from txl_tf.settings.groups import Bundle, Group, hidden, minor, require, setting, update, usual
from txl_tf.settings.run import CausalLMConfig, Config, DataConfig, TrainConfig

CONVENTIONS = Bundle(
    "whose rules for memory. At the start of a text official_tf and huggingface attend to zero vectors, "
    "official_pytorch to nothing. With same_length a query sees mem_len + 1 keys in official_tf, else mem_len",
    {
        "official_tf": {"mem_init": "zeros", "same_length_window": "tf"},
        "official_pytorch": {"mem_init": "empty", "same_length_window": "pytorch"},
        "huggingface": {"mem_init": "zeros", "same_length_window": "pytorch"},
    },
)


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(Group):
    """The architecture. The settings from mem_len on define how far attention reaches; the weights fit any of them."""

    bundles: ClassVar[Mapping[str, Bundle]] = {"conventions": CONVENTIONS}

    vocab_size: int = hidden(256, "number of tokens in the vocabulary, V; taken from the data", at_least=1)
    n_layer: int = usual(12, "number of decoder layers, N", at_least=1)
    d_model: int = usual(512, "width of the hidden states, D; even", at_least=1)
    d_embed: int = usual(512, "width of the embeddings (of the most frequent cluster)", at_least=1)
    n_head: int = usual(8, "attention heads per layer, H", at_least=1)
    d_head: int = usual(64, "size of one attention head", at_least=1)
    d_inner: int = usual(2048, "width of the feed-forward block's hidden layer", at_least=1)
    attn_type: str = usual(
        "transformer_xl",
        "the kind of positions in attention (official number). 'transformer_xl' (0): the paper's relative encoding. "
        "'shaw' (1): learned relative keys. 'vaswani' (2): sinusoids, added to the input. 'alrfou' (3): learned "
        "vectors for each layer, added to its input",
        choices=("transformer_xl", "shaw", "vaswani", "alrfou"),
    )
    max_klen: int = hidden(
        1024,
        "for shaw and alrfou: number of positions with a vector of their own; a run sets it to its tgt_len + mem_len; "
        "farther positions share the last vector",
        at_least=1,
    )
    tied_positions: bool = hidden(
        False, "project positions with the keys' matrix: fewer parameters; only for attn_type=transformer_xl"
    )
    untie_r: bool = setting(False, "each layer has its own global content and position biases (u, v)")
    cutoffs: tuple[int, ...] = setting(
        (), "ids at which the clusters of the adaptive softmax end; empty: full softmax", at_least=1
    )
    div_val: int = setting(
        1, "each cluster's embedding width is that of the previous cluster divided by this", at_least=1
    )
    tie_weight: bool = minor(True, "softmax and embedding share their tables")
    proj_share_all_but_first: bool = hidden(False, "softmax and embedding share projections of all tail clusters")
    proj_same_dim: bool = hidden(True, "with div_val > 1, also project clusters that already have width d_model")
    activation: str = minor("relu", "activation of the feed-forward block", choices=("relu", "gelu"))
    pre_lnorm: bool = minor(
        False, "normalise the inputs of sublayers, not their outputs; as in the official code, without a final norm"
    )
    layer_norm_epsilon: float = hidden(1e-5, "added to the variance in layer norm", at_least=0, below=1)
    init_std: float = setting(0.02, "standard deviation of initial weights", at_least=0)
    norm_init_std: float = hidden(
        0.0, "layer norms' factors start as normal(1, this), as in the official PyTorch code", at_least=0
    )
    proj_init_std: float = hidden(0.01, "standard deviation of initial embedding projections", at_least=0)
    dtype: str = usual("float32", "Keras dtype policy of the computation", choices=DTYPES)
    remat: bool = usual(
        False, "keep only each layer's input for the backward pass and compute the rest again: less memory, same result"
    )
    dropout: float = usual(
        0.1, "dropout rate of embeddings, positions, sublayer outputs and feed-forward", at_least=0, below=1
    )
    dropout_type: str = setting(
        "standard",
        "'variational': one mask for all positions, as in AWD-LSTM and the paper's PTB result (except dropatt)",
        choices=("standard", "variational"),
    )
    dropout_sites: str = setting(
        "",
        "rates for single sites instead of --dropout, such as input:0.6,qkv:0.2: input (after the embedding), "
        "positions, qkv (queries, keys and values; 0 unless given), attention (its output), feed_forward, output "
        "(before the softmax)",
    )
    dropemb: float = minor(
        0.0,
        "rate at which whole words of the vocabulary are dropped from the input, as in AWD-LSTM",
        at_least=0,
        below=1,
    )
    dropatt: float = usual(0.0, "dropout rate of attention probabilities", at_least=0, below=1)

    mem_len: int = usual(512, "memory slots per layer, M", at_least=0)
    ext_len: int = setting(
        0,
        "tokens before a segment that are read again with it, with gradient, in place of memory (ext_len of the "
        "official PyTorch code)",
        at_least=0,
    )
    clamp_len: int = usual(-1, "larger distances are treated as this one; <= 0: no limit")
    same_length: bool = usual(False, "every query sees the same number of keys, instead of all keys before it")
    same_length_window: str = hidden(
        "tf", "keys a query sees with same_length: 'tf' mem_len + 1, 'pytorch' mem_len", choices=("tf", "pytorch")
    )
    mem_init: str = hidden(
        "zeros",
        "empty memory slots: 'zeros' are attended to as zero vectors (official TF), 'empty' are masked "
        "(official PyTorch)",
        choices=("zeros", "empty"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_model % 2 == 0, f"d_model={self.d_model} must be even: half sines, half cosines")
        bounds = (0, *self.cutoffs, self.vocab_size)
        require(
            all(low < high for low, high in itertools.pairwise(bounds)),
            f"cutoffs={list(self.cutoffs)} must rise and stay below vocab_size={self.vocab_size}",
        )
        narrowest = self.d_embed // self.div_val ** len(self.cutoffs)
        require(narrowest >= 1, f"div_val={self.div_val} leaves nothing of d_embed={self.d_embed} for the last cluster")
        _ = self.rates, self.reach  # which are checked

    @property
    def rates(self) -> Rates:
        """The dropout rates of all sites."""
        return Rates.of(self.dropout)._replace(**given_rates(self.dropout_sites))

    @property
    def reach(self) -> Reach:
        """The settings that define how far attention reaches."""
        return Reach(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Reach)})


def given_rates(text: str) -> dict[str, float]:
    """The rates in the text of `dropout_sites`, such as "input:0.6,qkv:0.2", by site.

    InputError for an unknown site, one given twice, or a rate that is not in [0, 1).
    """
    given: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        site, colon, number = part.partition(":")
        if not colon or site not in Rates._fields:
            raise InputError(
                f"dropout_sites={text}: {part!r} must be SITE:RATE, with a SITE of {', '.join(Rates._fields)}"
            )
        if site in given:
            raise InputError(f"dropout_sites={text} has {site} twice")
        try:
            given[site] = float(number)
        except ValueError:
            given[site] = math.nan
        if not 0 <= given[site] < 1:
            raise InputError(f"dropout_sites={text}: the rate of {site} must be a number at least 0 and below 1")
    return given


@dataclasses.dataclass(frozen=True)
class Reach:
    """How far attention reaches. All fields may differ between training and evaluation with the same weights.

    `TransformerXLConfig` has the same fields and describes them.
    """

    mem_len: int
    clamp_len: int = -1
    same_length: bool = False
    same_length_window: str = "tf"
    mem_init: str = "zeros"
    ext_len: int = 0

    def __post_init__(self) -> None:
        """Refuses an extended context after memory of zero vectors, which no published code defines."""
        require(
            not self.ext_len or not self.mem_len or self.mem_init == "empty",
            f"ext_len={self.ext_len} with mem_len={self.mem_len} needs conventions=official_pytorch, where memory "
            "begins empty: give that, or mem_len=0",
        )

    @property
    def by_token(self) -> Reach:
        """For reading token by token: memory takes the place of the extended context."""
        return dataclasses.replace(self, mem_len=self.mem_len + self.ext_len, ext_len=0)

    @property
    def window(self) -> int | None:
        """The number of keys a query sees, itself included, or None if it sees all of the past."""
        return self.mem_len + (self.same_length_window == "tf") if self.same_length else None


@dataclasses.dataclass(frozen=True)
class EvalConfig(Group):
    """Settings of evaluation. Attention usually reaches farther than in training, with the same weights."""

    owner: ClassVar[str] = "evaluation's "
    heading: ClassVar[str] = "evaluation"

    batch_size: int = usual(10, "number of lanes, the contiguous parts of the split that are read together", at_least=1)
    tgt_len: int = usual(80, "tokens per segment", at_least=1)
    mem_len: int = usual(2100, "memory slots per layer", at_least=0)
    ext_len: int = setting(0, "tokens before a segment that are read again with it, in place of memory", at_least=0)
    clamp_len: int = setting(820, "larger distances are treated as this one; <= 0: no limit")
    same_length: bool = setting(True, "every query sees the same number of keys")
    jit_compile: bool = setting(True, "compile evaluation with XLA on one CPU or GPU (a TPU always compiles)")

    def reach(self, training: Reach) -> Reach:
        """The Reach of evaluation, given that of training."""
        names = ("mem_len", "clamp_len", "same_length", "ext_len")
        return dataclasses.replace(training, **{name: getattr(self, name) for name in names})


@dataclasses.dataclass(frozen=True)
class TransformerXLRunConfig(Config):
    """All settings of a Transformer-XL's training run."""

    family: ClassVar[str] = "transformer_xl"
    task: ClassVar[str] = "causal_lm"

    model: TransformerXLConfig = dataclasses.field(default_factory=TransformerXLConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    objective: CausalLMConfig = dataclasses.field(default_factory=CausalLMConfig)

    def __post_init__(self) -> None:
        require(
            not self.data.tgt_len_std or self.objective.loss_positions == "full",
            "tgt_len_std needs loss_positions=full: with random lengths half of a segment has no fixed length",
        )

    @classmethod
    def from_groups(cls, groups: Mapping[str, Any], where: str) -> TransformerXLRunConfig:
        """As for `Config.from_groups`; also accepts the groups of format 1."""
        train = groups.get("train")
        if isinstance(train, Mapping) and "loss_positions" in train:
            rest = {name: value for name, value in train.items() if name != "loss_positions"}
            groups = {**groups, "train": rest, "objective": {"loss_positions": train["loss_positions"]}}
        return super().from_groups(groups, where)

    def fit_to_corpus(self, corpus: Any, given: Mapping[str, Mapping[str, Any]]) -> TransformerXLRunConfig:
        """With the settings that were given, and those that follow from a Corpus.

        InputError if the clusters of an adaptive softmax are not known.
        """
        model = given.get("model", {})
        require(
            not self.model.cutoffs or corpus.cutoffs or "cutoffs" in model,
            f"the preset has an adaptive softmax, and {corpus.data_dir} has no cutoffs: give --cutoffs",
        )
        cutoffs = corpus.cutoffs if self.model.cutoffs else ()
        own = {"vocab_size": corpus.vocab_size, "cutoffs": cutoffs}
        config = self.replace(**{**given, "model": own | dict(model)})
        if config.model.attn_type in ("shaw", "alrfou"):  # a vector for each position of training, as in their code
            klen = config.data.longest + config.model.ext_len + config.model.mem_len
            config = config.replace(model={"max_klen": klen})
        return config

    def for_evaluation(self, **overrides: Any) -> tuple[EvalConfig, Reach]:
        """The settings of evaluation; `overrides` replace EvalConfig fields or the conventions (None: unchanged)."""
        given = {name: value for name, value in overrides.items() if value is not None}
        memory = {"conventions", "mem_init", "same_length_window"} & set(given)
        model = update(self.model, {name: given.pop(name) for name in memory})
        evaluation = update(self.eval, given)
        return evaluation, evaluation.reach(model.reach)

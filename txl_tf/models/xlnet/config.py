"""The settings of an XLNet: its model, and a whole pretraining run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from txl_tf.settings.choices import DTYPES
from txl_tf.settings.groups import Bundle, Group, hidden, minor, require, setting, usual
from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig
from txl_tf.settings.run import Config, TrainConfig

CONVENTIONS = Bundle(
    "whose rules for memory: at the start of a text official_tf attends to zero vectors, huggingface to nothing",
    {"official_tf": {"mem_init": "zeros"}, "huggingface": {"mem_init": "empty"}},
)


@dataclasses.dataclass(frozen=True)
class XLNetConfig(Group):
    """The architecture. The last group of fields sets the memory; the weights depend only on the other fields."""

    bundles: ClassVar[Mapping[str, Bundle]] = {"conventions": CONVENTIONS}

    vocab_size: int = hidden(32_000, "number of tokens in the vocabulary, V; taken from the data", at_least=1)
    n_layer: int = usual(12, "number of layers, N", at_least=1)
    d_model: int = usual(768, "width of the hidden states and embeddings, D; even", at_least=1)
    n_head: int = usual(12, "attention heads per layer, H", at_least=1)
    d_head: int = usual(64, "size of one attention head", at_least=1)
    d_inner: int = usual(3072, "width of the feed-forward block's hidden layer", at_least=1)
    untie_r: bool = setting(True, "each layer has its own global biases of attention")
    activation: str = minor(
        "gelu_tanh",
        "activation of the feed-forward block. 'gelu_tanh' is called gelu in the official code and gelu_new by Hugging "
        "Face; 'gelu' is Hugging Face's gelu",
        choices=("relu", "gelu", "gelu_tanh"),
    )
    layer_norm_epsilon: float = hidden(1e-12, "added to the variance in layer norm", at_least=0, below=1)
    init_std: float = setting(0.02, "standard deviation of initial weights", at_least=0)
    dtype: str = usual("float32", "Keras dtype policy of the computation", choices=DTYPES)
    remat: bool = usual(
        False, "keep only each layer's input for the backward pass and compute the rest again: less memory, same result"
    )
    dropout: float = usual(
        0.1, "dropout of embeddings, positions, sublayer outputs and feed-forward", at_least=0, below=1
    )
    dropatt: float = usual(0.1, "dropout of attention probabilities", at_least=0, below=1)

    mem_len: int = usual(384, "memory slots per layer, M", at_least=0)
    reuse_len: int = usual(256, "how many tokens at the start of a segment are remembered, R; 0: all", at_least=0)
    clamp_len: int = setting(-1, "larger distances, on either side, are treated as this one; <= 0: no limit")
    mem_init: str = hidden(
        "zeros",
        "empty memory slots: 'zeros' are attended to as zero vectors (official), 'empty' are masked",
        choices=("zeros", "empty"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_model % 2 == 0, f"d_model={self.d_model} must be even: half sines, half cosines")


@dataclasses.dataclass(frozen=True)
class XLNetEvalConfig(Group):
    """How the permutation objective is evaluated; segments and the rule for targets are the same as in training."""

    owner: ClassVar[str] = "evaluation's "
    heading: ClassVar[str] = "evaluation"

    batch_size: int = usual(8, "lanes the split is cut into", at_least=1)
    mem_len: int = usual(-1, "memory slots per layer, M; -1: as in training", at_least=-1)
    seed: int = minor(1, "of the pairs of texts, spans and orders that are evaluated", at_least=0)
    jit_compile: bool = setting(True, "compile evaluation with XLA on one CPU or GPU (a TPU always compiles)")

    def memory_length(self, model: XLNetConfig) -> int:
        """M in evaluation."""
        return model.mem_len if self.mem_len < 0 else self.mem_len


@dataclasses.dataclass(frozen=True)
class XLNetRunConfig(Config):
    """All settings of an XLNet's pretraining run."""

    family: ClassVar[str] = "xlnet"
    task: ClassVar[str] = "permutation_lm"

    model: XLNetConfig = dataclasses.field(default_factory=XLNetConfig)
    data: PairsConfig = dataclasses.field(default_factory=PairsConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: XLNetEvalConfig = dataclasses.field(default_factory=XLNetEvalConfig)
    objective: PermutationLMConfig = dataclasses.field(default_factory=PermutationLMConfig)

    def fit_to_corpus(self, corpus: Any, given: Mapping[str, Mapping[str, Any]]) -> XLNetRunConfig:
        """With the settings that were given and the size of a Corpus's vocabulary; InputError without SEP or CLS."""
        for name in ("sep", "cls"):
            corpus.vocabulary.special_token(name)
        return self.replace(**{**given, "model": {"vocab_size": corpus.vocab_size, **given.get("model", {})}})

    @classmethod
    def from_groups(cls, groups: Mapping[str, Any], where: str) -> XLNetRunConfig:
        """As for `Config.from_groups`; also accepts mask_alpha as a fraction, mask_alpha / mask_beta."""
        objective = groups.get("objective")
        if isinstance(objective, Mapping) and type(beta := objective.get("mask_beta")) is int and beta:
            rest = {name: value for name, value in objective.items() if name != "mask_beta"}
            alpha = rest.get("mask_alpha")
            groups = {**groups, "objective": rest | ({"mask_alpha": alpha / beta} if type(alpha) is int else {})}
        return super().from_groups(groups, where)

    def __post_init__(self) -> None:
        t_len, reuse_len, perm_size = self.data.tgt_len, self.model.reuse_len, self.objective.perm_size
        require(
            1 <= reuse_len <= t_len - 6,
            f"reuse_len={reuse_len} must be from 1 to tgt_len - 6 = {t_len - 6}: a segment begins with "
            "reuse_len tokens that the next one remembers, and a pair of texts and three marks fill the rest",
        )
        require(
            perm_size <= min(reuse_len, t_len - reuse_len),
            f"perm_size={perm_size} must be at most reuse_len={reuse_len} and tgt_len - reuse_len="
            f"{t_len - reuse_len}, or one part of a segment would be permuted with the other",
        )
        predictions = self.objective.num_predict
        require(predictions < t_len, f"num_predict={predictions} must be below tgt_len={t_len}")
        require(
            predictions - predictions // 2 <= reuse_len and predictions // 2 <= t_len - reuse_len,
            f"num_predict={predictions} is too large: half must fit into the first reuse_len={reuse_len} tokens "
            f"of a segment, half into the other {t_len - reuse_len}",
        )
        require(
            self.eval.batch_size % 2 == 0 or not self.data.bi_data,
            f"evaluation's batch_size={self.eval.batch_size} is odd, and with bi_data half of the lanes read backward: "
            "make it even",
        )

"""The groups of settings of XLNet's pretraining: pairs of texts, and which of their tokens are predicted."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from txl_tf.settings.groups import Group, minor, require, setting, usual

CONTEXT, FUNCTIONAL, TARGET = range(3)
"""Kinds of token in a factorization order; functional tokens are SEP and CLS, which are never predicted."""


@dataclasses.dataclass(frozen=True)
class PermutationLMConfig(Group):
    """The objective of permutation language modelling: which tokens are predicted, and in which orders."""

    heading: ClassVar[str] = "data"

    num_predict: int = usual(85, "predicted tokens per segment, P", at_least=1)
    perm_size: int = setting(
        256, "tokens that are permuted together, at most reuse_len and tgt_len - reuse_len", at_least=1
    )
    mask_alpha: float = minor(6.0, "the paper's K: a span of n tokens is predicted out of n * mask_alpha", above=1)
    max_span: int = minor(
        5, "tokens in the longest predicted span; the probability of n tokens is proportional to 1 / n", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class PairsConfig(Group):
    """The batches of segments: each has tokens that the next one remembers, then a pair of texts."""

    heading: ClassVar[str] = "data"

    batch_size: int = usual(16, "segments per step over all replicas, B: the number of lanes", at_least=1)
    tgt_len: int = usual(512, "tokens per segment, T", at_least=1)
    bi_data: bool = usual(True, "half of the lanes read the text backward")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.batch_size % 2 == 0 or not self.bi_data,
            f"batch_size={self.batch_size} is odd, and with bi_data half of the lanes read backward: make it even",
        )

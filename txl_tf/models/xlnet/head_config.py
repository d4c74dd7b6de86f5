"""The settings of XLNets with a head other than the language model's."""

from __future__ import annotations

import dataclasses

from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.settings.groups import hidden, setting, usual


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

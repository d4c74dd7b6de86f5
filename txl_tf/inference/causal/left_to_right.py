"""An XLNet that continues texts token by token, for use from Python.

Its factorization order is the order of the text. The query stream's row for the next token sees the tokens so far, and
the cache keeps their keys and values from the content stream. A pretrained XLNet has rarely seen this order: in
training it knew most of a text when it predicted the rest. So its continuations are worse than those of a model that
is trained for them.

Examples:
    >>> model = LeftToRightXLNet.of(load_trained("runs/xlnet"))
    >>> model.generate("A long text, since XLNet needs some", max_tokens=50, temperature=0.8)
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.settings.groups import update


class LeftToRight(CachedDecoder):
    """Reads tokens with both streams. The results are those of a model with mems that reads one token at a time.

    `hidden` is the query stream's: row i predicts the token after token i.
    """

    ahead = 1
    reads_few_rows = False

    def __call__(self, tokens: tf.Tensor, *given: Any, **named: Any) -> tuple[tf.Tensor, Cache]:
        """As for `CachedDecoder`."""
        hidden, cache = super().__call__(tokens, *given, **named)
        return hidden[:, tokens.shape[1] :], cache

    def embedded(self, tokens: tf.Tensor) -> tf.Tensor:
        """The first layer's input [B, 2 T, D]: the T tokens, then T mask embeddings."""
        content = self.model.embedding(tokens)
        mask = tf.cast(tf.convert_to_tensor(self.model.mask_embedding), content.dtype)
        return tf.concat([content, tf.broadcast_to(mask, tf.shape(content))], axis=1)


class LeftToRightXLNet(LanguageModel):
    """Continues and scores texts from left to right with an XLNet.

    The reach has same_length: every token is read with the M slots of memory before it; None: with the model's own
    memory. Others as for LanguageModel.
    """

    decoder = LeftToRight
    note = "an XLNet is trained to fill gaps, not to continue texts: this text may soon make little sense"
    model: XLNet

    def __init__(self, model: XLNet, vocabulary: Vocabulary, reach: Reach | None = None, jit_compile: bool = True):
        super().__init__(model, vocabulary, reach or _reach(model.config), jit_compile)

    @classmethod
    def of(cls, trained: TrainedModel, jit_compile: bool | None = None, **reach: Any) -> LeftToRightXLNet:
        """The XLNet of a TrainedModel; jit_compile None: compiled.

        `reach` has mem_len, clamp_len, mem_init or conventions to use instead, and InputError for another setting. By
        default mem_len is that of evaluation, or, if that is 0, the length of a segment.
        """
        config = trained.config
        wrong = set(reach) - {"mem_len", "clamp_len", "mem_init", "conventions"}
        if wrong:
            raise InputError(f"--{min(wrong)}: not for an XLNet, which reads each token with the memory before it")
        mem_len = config.eval.memory_length(config.model) or config.data.tgt_len
        model = update(config.model, {"mem_len": mem_len, **reach})
        return cls(trained.model, trained.vocabulary, _reach(model), jit_compile is not False)


def _reach(config: XLNetConfig) -> Reach:
    """The Reach with a model's memory."""
    return Reach(config.mem_len, config.clamp_len, same_length=True, mem_init=config.mem_init)

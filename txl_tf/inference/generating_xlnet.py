"""An XLNet's SavedModel that also continues texts: the signatures of both wings of inference in one export.

To those of `ServedXLNet` it adds (see `ServedCausal`):

generate, initial_cache, step, read, write: they continue texts of any length, by the query stream with memory
decode_after: tokens that continue texts -> texts
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from txl_tf.inference.causal.left_to_right import LeftToRightXLNet
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.saved_model import filled
from txl_tf.inference.xlnet.served_xlnet import ServedXLNet


class GeneratingXLNet(ServedXLNet):
    """The graph functions that are exported, and sampling.json with the settings of sampling.

    `options` are jit_compile and lengths, as for `ServedXLNet`.
    """

    def __init__(self, continuation: LeftToRightXLNet, **options: Any):
        super().__init__(continuation.model, continuation.vocabulary, **options)
        self.causal = ServedCausal(continuation.generator, continuation.vocabulary)
        self.kept = self.causal.kept

    def description(self, name: str) -> str:
        """See `Served`."""
        return f"{super().description(name)}\n{filled('generating_xlnet', **self.causal.facts())}"

    def files(self) -> dict[str, str]:
        """See `Served`."""
        return self.causal.files()

    def inputs(self) -> dict[Callable[..., Any], dict[str, tf.TensorSpec]]:
        """See `ServedXLNet`."""
        texts, tokens = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        return super().inputs() | {self.decode_after: {"tokens": tokens, "after": texts}} | self.causal.continuing()

    def decode_after(self, tokens: tf.Tensor, after: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `decode_after`; see README."""
        return self.causal.decode(tokens, after)

"""One layer of the decoder: attention and feed-forward, each with residual and layer norm."""

from __future__ import annotations

import typing
from collections.abc import Callable

import keras
import tensorflow as tf

from txl_tf.layers.absolute_attention import AbsoluteAttention, LearnedAbsoluteAttention
from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.layers.dropout import TIME, dropout, split_seed
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.layer_norm import LayerNorm
from txl_tf.layers.memory_attention import Biases, HiddenShape, Kernels, MemoryAttention
from txl_tf.layers.segment_attention import SegmentAttention
from txl_tf.layers.shaw_attention import ShawAttention
from txl_tf.ops import KeyValueRing

ATTENTION: dict[str, type[MemoryAttention]] = {
    "transformer_xl": RelMultiHeadAttention,
    "shaw": ShawAttention,
    "vaswani": AbsoluteAttention,
    "alrfou": LearnedAbsoluteAttention,
    "xlnet": SegmentAttention,
}
"""The attention class of each attn_type: the official numbers 0, 1, 2, 3 in order, then XLNet's."""


@keras.saving.register_keras_serializable(package="txl_tf")
class DecoderLayer(keras.layers.Layer):
    """Attention to the memory and the segment, then the feed-forward block.

    Post-LN, as in the paper:   h = LN(h + Attention(h, [mems, h]));  h = LN(h + FeedForward(h)).
    Pre-LN (`pre_lnorm`):       h = h + Attention(LN(h), LN([mems, h]));  h = h + FeedForward(LN(h)),
    as in the official PyTorch code, where no norm follows the last layer.

    Shapes: hidden [B, T, D], mems [B, M, D], result [B, T, D].

    Args:
        n_head, d_head, dropatt: as for `MemoryAttention`.
        attn_type: a key of `ATTENTION`.
        own_biases, bidirectional: as for `RelMultiHeadAttention`; other attention classes ignore them.
        max_klen: as for `ShawAttention` and `LearnedAbsoluteAttention`; other attention classes ignore it.
        d_inner, activation: as for `FeedForward`.
        pre_lnorm: normalise the inputs of the sublayers, instead of the sums after them.
        dropout: rate after the attention's output and inside the feed-forward block.
        variational: each of these dropouts has one mask for all positions of a row. Dropout of attention probabilities,
            which belong to pairs of positions, still has one mask element for each.
        init_std: of all kernels.
        layer_norm_epsilon: added to the variance.

    Raises:
        ValueError: an unknown attn_type, or an argument that the sublayers refuse.
    """

    def __init__(
        self,
        *,
        n_head: int,
        d_head: int,
        d_inner: int,
        activation: str = "relu",
        pre_lnorm: bool = False,
        dropout: float = 0.0,
        dropatt: float = 0.0,
        variational: bool = False,
        attn_type: str = "transformer_xl",
        own_biases: bool = True,
        bidirectional: bool = False,
        max_klen: int | None = None,
        init_std: float = 0.02,
        layer_norm_epsilon: float = 1e-5,
        **kwargs: typing.Any,
    ):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.variational = variational
        self.pre_lnorm = pre_lnorm
        self.arguments = {
            "n_head": n_head,
            "d_head": d_head,
            "d_inner": d_inner,
            "activation": activation,
            "pre_lnorm": pre_lnorm,
            "dropout": dropout,
            "dropatt": dropatt,
            "variational": variational,
            "attn_type": attn_type,
            "own_biases": own_biases,
            "bidirectional": bidirectional,
            "max_klen": max_klen,
            "init_std": init_std,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        policy = self.dtype_policy
        if attn_type not in ATTENTION:
            raise ValueError(f"DecoderLayer: attn_type is {attn_type!r}; choose from {tuple(ATTENTION)}")
        kind = ATTENTION[attn_type]
        options = {name: self.arguments[name] for name in kind.options}
        self.attention = kind(
            n_head, d_head, dropatt=dropatt, init_std=init_std, dtype=policy, name="attention", **options
        )
        self.attention_norm = LayerNorm(epsilon=layer_norm_epsilon, dtype=policy, name="attention_norm")
        self.feed_forward = FeedForward(
            d_inner,
            activation=activation,
            dropout=dropout,
            variational=variational,
            init_std=init_std,
            dtype=policy,
            name="feed_forward",
        )
        self.feed_forward_norm = LayerNorm(epsilon=layer_norm_epsilon, dtype=policy, name="feed_forward_norm")

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Builds the sublayers for inputs [B, T, D]."""
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            layer.build(hidden_shape)

    def call(
        self,
        hidden: tf.Tensor,
        mems: tf.Tensor | None = None,
        positions: tf.Tensor | None = None,
        attention_mask: tf.Tensor | None = None,
        biases: Biases | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
        ring: KeyValueRing | None = None,
        kernels: tuple[Kernels, ...] | None = None,
        block: int = 1,
        look: Callable[[tf.Tensor], None] | None = None,
    ) -> tf.Tensor | tuple[tf.Tensor, KeyValueRing]:
        """The layer's output [B, T, D]; arguments as for `MemoryAttention.call`, look as for its `read`.

        If attention returns only the last rows of `hidden`, so does the layer.

        With a `ring` and an optional `block` (inference), arguments and result are as for `MemoryAttention.extend`.
        kernels: the result of `kernels()`, if the caller computes it once for many calls.
        """
        attention_kernels, *feed_forward_kernels = kernels or [None]
        rate = self.dropout if training else 0.0
        attention_seed, output_seed, feed_forward_seed = split_seed(seed, 3)
        memory = None
        if ring is None:
            hidden, memory = self.attention.place(hidden, mems, positions)
        segment = hidden
        if self.pre_lnorm:
            segment = self.attention_norm(hidden)
            memory = None if memory is None else self.attention_norm(memory)
        if ring is None:
            attended = self.attention.read(
                segment, memory, positions, attention_mask, biases, attention_seed, training, look
            )
        else:
            attended, ring = self.attention.extend(
                segment, ring, positions, attention_mask, biases, attention_kernels, block
            )
        if attended.shape[1] != hidden.shape[1]:
            hidden = hidden[:, -attended.shape[1] :]
        hidden = hidden + dropout(attended, rate, output_seed, TIME if self.variational else None)
        if not self.pre_lnorm:
            hidden = self.attention_norm(hidden)

        segment = self.feed_forward_norm(hidden) if self.pre_lnorm else hidden
        hidden = hidden + self.feed_forward(
            segment, seed=feed_forward_seed, training=training, kernels=feed_forward_kernels
        )
        if not self.pre_lnorm:
            hidden = self.feed_forward_norm(hidden)
        return hidden if ring is None else (hidden, ring)

    def kernels(self) -> tuple[typing.Any, ...]:
        """The attention's Kernels, then the feed-forward block's kernels."""
        return self.attention.kernels(), *self.feed_forward.kernels()

    def project_zero_memory(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Key and value of a memory slot that holds a zero vector, each [1, H, 1, d] in the compute dtype.

        With pre-LN they are not zero: attention then reads the layer norm of a zero vector, which is its beta.
        """
        if self.pre_lnorm:
            slot = tf.convert_to_tensor(self.attention_norm.beta)[None, None]
            return tuple(
                tf.cast(part, self.compute_dtype)
                for part in self.attention.project_context(slot, self.attention.kernels())
            )
        heads = [1, self.arguments["n_head"], 1, self.arguments["d_head"]]
        return (tf.zeros(heads, self.compute_dtype),) * 2

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        return super().get_config() | self.arguments

"""One layer of the decoder: attention and feed-forward, each with residual and layer norm."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from txl_tf.layers.ablation_attention import AbsoluteAttention, LearnedAbsoluteAttention, ShawAttention
from txl_tf.layers.attention import Biases, HiddenShape, Kernels, MemoryAttention, RelMultiHeadAttention
from txl_tf.layers.dropout import TIME, dropout, split_seed
from txl_tf.layers.dropout_rates import Rates
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.layer import Layer
from txl_tf.layers.layer_norm import LayerNorm
from txl_tf.layers.segment_attention import SegmentAttention
from txl_tf.ops import KeyValueRing

ATTENTION: dict[str, type[MemoryAttention]] = {
    "transformer_xl": RelMultiHeadAttention,
    "shaw": ShawAttention,
    "vaswani": AbsoluteAttention,
    "alrfou": LearnedAbsoluteAttention,
    "xlnet": SegmentAttention,
}
"""The attention class of each attn_type: the official numbers 0, 1, 2, 3 in order, then XLNet's."""


@dataclasses.dataclass(frozen=True)
class LayerConfig:
    """The settings of a DecoderLayer.

    n_head, d_head, dropatt: as for `MemoryAttention`.
    attn_type: a key of `ATTENTION`.
    own_biases, tied_positions: as for `RelMultiHeadAttention`; other attention classes ignore them.
    max_klen: as for `ShawAttention` and `LearnedAbsoluteAttention`; other attention classes ignore it.
    d_inner, activation: as for `FeedForward`.
    pre_lnorm: normalise the inputs of the sublayers, not their outputs.
    dropout: rate after the attention's output and inside the feed-forward block, or a `Rates`.
    variational: each of these dropouts has one mask for all positions of a row. Dropout of attention probabilities
        still has a mask element for each pair of positions.
    init_std: of all kernels.
    layer_norm_epsilon: added to the variance.
    norm_init_std: layer norms' gamma starts as normal(1, norm_init_std).
    """

    n_head: int
    d_head: int
    d_inner: int
    activation: str = "relu"
    pre_lnorm: bool = False
    dropout: float | Sequence[float] = 0.0
    dropatt: float = 0.0
    variational: bool = False
    attn_type: str = "transformer_xl"
    own_biases: bool = True
    tied_positions: bool = False
    max_klen: int | None = None
    init_std: float = 0.02
    layer_norm_epsilon: float = 1e-5
    norm_init_std: float = 0.0


@keras.saving.register_keras_serializable(package="txl_tf")
class DecoderLayer(Layer):
    """Attention to the memory and the segment, then the feed-forward block.

    Post-LN, as in the paper:   h = LN(h + Attention(h, [mems, h]));  h = LN(h + FeedForward(h)).
    Pre-LN (`pre_lnorm`):       h = h + Attention(LN(h), LN([mems, h]));  h = h + FeedForward(LN(h)),
    as in the official PyTorch code, where no norm follows the last layer.

    Shapes: hidden [B, T, D], mems [B, M, D], result [B, T, D].

    Args:
        settings: those of LayerConfig, and of a Keras layer.

    Raises:
        ValueError: an unknown attn_type, or an argument that the sublayers refuse.
    """

    def __init__(self, **settings: typing.Any):
        own = {field.name for field in dataclasses.fields(LayerConfig)} & settings.keys()
        super().__init__(**{name: value for name, value in settings.items() if name not in own})
        self.config = config = LayerConfig(**{name: settings[name] for name in own})
        self.rates = Rates.of(config.dropout)
        attn_type = config.attn_type
        if attn_type not in ATTENTION:
            raise ValueError(f"DecoderLayer: attn_type is {attn_type!r}; choose from {tuple(ATTENTION)}")
        kind = ATTENTION[attn_type]
        options = {name: getattr(config, name) for name in kind.options}
        shared = {"init_std": config.init_std, "variational": config.variational, "dtype": self.dtype_policy}
        drops: dict[str, typing.Any] = {"dropatt": config.dropatt, "dropqkv": self.rates.qkv}
        norm = {"epsilon": config.layer_norm_epsilon, "dtype": self.dtype_policy}
        if config.norm_init_std:
            norm["gamma_initializer"] = keras.initializers.RandomNormal(1.0, config.norm_init_std)
        self.attention = kind(config.n_head, config.d_head, name="attention", **drops, **shared, **options)
        self.attention_norm = LayerNorm(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.d_inner, activation=config.activation, dropout=self.rates.feed_forward, name="feed_forward", **shared
        )
        self.feed_forward_norm = LayerNorm(name="feed_forward_norm", **norm)

    def get_config(self) -> dict[str, typing.Any]:
        """The settings: those of LayerConfig, and of a Keras layer."""
        return super().get_config() | dataclasses.asdict(self.config)

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
        look: Callable[[tf.Tensor], None] | None = None,
    ) -> tf.Tensor:
        """The layer's output [B, T, D]; arguments as for `MemoryAttention.call`, look as for its `read`.

        The result has the rows that the attention answers.
        """
        rate = self.rates.attention if training else 0.0
        attention_seed, output_seed, feed_forward_seed = split_seed(seed, 3)
        hidden, memory = self.attention.place(hidden, mems, positions)
        segment = self.attention_norm(hidden) if self.config.pre_lnorm else hidden
        if self.config.pre_lnorm and memory is not None:
            memory = self.attention_norm(memory)
        attended = self.attention.read(
            segment, memory, positions, attention_mask, biases, attention_seed, training, look
        )
        hidden = self.attention.residual(hidden, positions) + dropout(
            attended, rate, output_seed, TIME if self.config.variational else None
        )
        return self._feed_forward(hidden, seed=feed_forward_seed, training=training)

    def extend(
        self,
        hidden: tf.Tensor,
        ring: KeyValueRing,
        positions: tf.Tensor,
        attention_mask: tf.Tensor,
        kernels: tuple[Kernels, ...],
        biases: Biases | None = None,
        block: int = 1,
    ) -> tuple[tf.Tensor, KeyValueRing]:
        """The layer's output [B, T, D], and the ring with the segment's keys and values.

        Arguments as for `MemoryAttention.extend`, with the layer's `kernels()`.
        """
        with tf.name_scope(self.name):
            segment = self.attention_norm(hidden) if self.config.pre_lnorm else hidden
            attended, ring = self.attention.extend(segment, ring, positions, attention_mask, kernels[0], biases, block)
            return self._feed_forward(hidden + attended, kernels=kernels[1:]), ring

    def _feed_forward(self, hidden: tf.Tensor, **inputs: typing.Any) -> tf.Tensor:
        """The part after attention; inputs: as for `FeedForward.call`."""
        if self.config.pre_lnorm:
            return hidden + self.feed_forward(self.feed_forward_norm(hidden), **inputs)
        hidden = self.attention_norm(hidden)
        return self.feed_forward_norm(hidden + self.feed_forward(hidden, **inputs))

    def kernels(self) -> tuple[typing.Any, ...]:
        """The attention's Kernels, then the feed-forward block's kernels."""
        return self.attention.kernels(), *self.feed_forward.kernels()

    def project_zero_memory(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Key and value of a memory slot that holds a zero vector, each [1, H, 1, d] in the compute dtype.

        With pre-LN they are not zero: attention then reads the layer norm of a zero vector, which is its beta.
        """
        if self.config.pre_lnorm:
            slot = tf.convert_to_tensor(self.attention_norm.beta)[None, None]
            return tuple(
                tf.cast(part, self.compute_dtype)
                for part in self.attention.project_context(slot, self.attention.kernels())
            )
        heads = [1, self.attention.n_head, 1, self.attention.d_head]
        return (tf.zeros(heads, self.compute_dtype),) * 2

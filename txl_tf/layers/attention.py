"""Transformer-XL's attention, with relative positions (section 3.3 of the paper)."""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.dropout import dropout
from txl_tf.layers.memory_attention import Biases, HiddenShape, MemoryAttention, PositionDropout
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.ops import Scores


@keras.saving.register_keras_serializable(package="txl_tf")
class RelMultiHeadAttention(MemoryAttention):
    """Attention of a segment over its memory and itself, with relative positions.

    For query i and key j at distance d the score is the sum of the paper's four terms, divided by sqrt(d_head):

        (a) q_i . k_j     content to content        (b) q_i . W_kR R_d    content to position
        (c) u . k_j       global content bias       (d) v . W_kR R_d      global position bias

    computed as (q + u) . k  +  shift((q + v) . r), where r = W_kR R is projected once for the K distances
    (linear, not quadratic, in length: appendix B). `positions` are the encodings R of the distances, [K, D], by default
    sinusoids.

    Args:
        n_head, d_head, dropatt, init_std: as for `MemoryAttention`.
        own_biases: whether the layer has its own u and v (`untie_r`); otherwise `biases` is passed to every call.
        tied_positions: project positions with the keys' matrix: W_kR = W_kE.
        clamp_len: with no `positions` given, larger distances are encoded as this one; <= 0: no limit.
        same_length: with no `attention_mask` given, let every query see only the M + 1 newest keys.
        bidirectional: queries may see keys in their future, whose distances are negative.

    Examples:
        >>> segment, memory = keras.Input([16, 64]), keras.Input([32, 64])
        >>> output = RelMultiHeadAttention(n_head=4, d_head=16)(segment, mems=memory)
        >>> keras.Model([segment, memory], output).output_shape
        (None, 16, 64)
    """

    cacheable = True
    bias_names: tuple[str, ...] = ("content_bias", "position_bias")
    """u and v, the official r_w_bias and r_r_bias."""
    options: tuple[str, ...] = ("own_biases", "tied_positions")

    def __init__(
        self,
        n_head: int,
        d_head: int,
        *,
        own_biases: bool = True,
        tied_positions: bool = False,
        clamp_len: int = -1,
        same_length: bool = False,
        bidirectional: bool = False,
        **kwargs: typing.Any,
    ):
        super().__init__(n_head, d_head, **kwargs)
        self.keep(locals())

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the projections for inputs [B, T, D]."""
        super().build(hidden_shape)
        for name in self.bias_names if self.own_biases else ():
            setattr(self, name, self.new_weight(name, self.n_head, self.d_head))

    def build_positions(self, d_model: int) -> None:
        """Creates W_kR, unless it is the keys' matrix."""
        tied = self.tied_positions
        self.position_kernel = (
            self.key_kernel if tied else self.new_weight("position_kernel", d_model, self.n_head, self.d_head)
        )

    def window(self, m_len: int) -> int | None:
        """M + 1 with `same_length`."""
        return m_len + 1 if self.same_length else None

    def default_positions(self, k_len: int, hidden: tf.Tensor) -> tf.Tensor:
        """Sinusoids of the distances, [K, D]; [K + T-1, D] if bidirectional."""
        return self._sinusoids(k_len, hidden, self.clamp_len)

    def _sinusoids(self, k_len: int, hidden: tf.Tensor, clamp_len: int) -> tf.Tensor:
        future = hidden.shape[1] - 1 if self.bidirectional else 0
        return sinusoids(key_distances(k_len, clamp_len, future), hidden.shape[-1], hidden.dtype)

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """The same sinusoids for all layers, with one dropout mask."""
        drop = drop or PositionDropout()
        encoding = self._sinusoids(m_len + hidden.shape[1], hidden, clamp_len)
        return [dropout(encoding, drop.rate, drop.seed, drop.shared_axis)] * n_layer

    def project_positions(self, positions: tf.Tensor) -> tf.Tensor:
        """r = W_kR R, [H, K, d], of R [K, D]."""
        return ops.rows_by_head(positions, tf.convert_to_tensor(self.position_kernel))

    def scores(
        self, query: tf.Tensor, key: tf.Tensor, position: tf.Tensor | None, biases: Biases | None = None
    ) -> Scores:
        """Terms (a) and (c), (q + u) . k, and terms (b) and (d), (q + v) . r."""
        u, v = (self._scaled(bias, query) for bias in self._biases(biases)[:2])
        return Scores(query + u, key, query + v, position, causal=not self.bidirectional)

    def _biases(self, given: Biases | None) -> Biases:
        if self.own_biases:
            return tuple(getattr(self, name) for name in self.bias_names)
        if given is None:
            raise ValueError(
                f"{type(self).__name__} {self.name}: with own_biases=False pass biases=(u, v) or (u, v, w)"
            )
        return given

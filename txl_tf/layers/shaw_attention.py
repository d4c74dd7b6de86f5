"""Attention with learned relative keys (Shaw et al. 2018, arXiv 1803.02155), for the paper's ablations (table 6)."""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf.layers.memory_attention import Biases, MemoryAttention, PositionDropout
from txl_tf.layers.positions import key_distances
from txl_tf.ops import Scores


@keras.saving.register_keras_serializable(package="txl_tf")
class ShawAttention(MemoryAttention):
    """Attention whose positions are a learned vector and bias per head and distance: official attn_type 1.

    For query i and key j at distance d the score, divided by sqrt(d_head), is

        q_i . k_j  +  q_i . a_d  +  u . k_j  +  b_d

    Shaw et al. have the first two terms. u and b are from the official PyTorch code (r_w_bias and r_bias; a is r_emb),
    which has this attention, but no layer that uses it. As there, each layer has its own a, u and b, and all distances
    from max_klen - 1 on share the last vector and bias.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D]; `positions` are the distances themselves,
    int [K], by default K-1, .., 0.

    Args:
        n_head, d_head, dropatt, init_std: as for `MemoryAttention`.
        max_klen: number of distances that have their own vector and bias.
    """

    options = ("max_klen",)

    def __init__(self, n_head: int, d_head: int, *, max_klen: int, **kwargs: typing.Any):
        super().__init__(n_head, d_head, **kwargs)
        if not max_klen or max_klen < 1:
            raise ValueError(f"ShawAttention: max_klen must be positive, got {max_klen}")
        self.max_klen = max_klen

    def build_positions(self, d_model: int) -> None:
        """Creates the tables; row d is for distance d (the official tables have the opposite order)."""
        self.content_bias = self._weight("content_bias", self.n_head, self.d_head)
        self.position_table = self._weight("position_table", self.max_klen, self.n_head, self.d_head)
        self.distance_bias = self._weight("distance_bias", self.max_klen, self.n_head, initializer="zeros")

    def default_positions(self, k_len: int, hidden: tf.Tensor) -> tf.Tensor:
        """Distances."""
        return key_distances(k_len)

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """Distances, without dropout.

        The official code uses only the clamp_len nearest rows of the table: the largest distance is clamp_len - 1.
        """
        distances = key_distances(m_len + hidden.shape[1])
        return [tf.minimum(distances, clamp_len - 1) if clamp_len > 0 else distances] * n_layer

    @staticmethod
    def position_operations(k_len: int, scores: int, d_model: int, width: int) -> int:
        """Position scores 3 * 2 B T K H d."""
        return 3 * 2 * scores * width

    def project_positions(self, positions: tf.Tensor) -> tf.Tensor:
        """The vectors of distances [K], each with its bias as the last element: [H, K, d + 1]."""
        rows = tf.minimum(positions, self.max_klen - 1)
        vectors, biases = tf.gather(self.position_table, rows), tf.gather(self.distance_bias, rows)
        return tf.transpose(tf.concat([vectors, tf.cast(biases, vectors.dtype)[..., None]], axis=-1), [1, 0, 2])

    def scores(
        self, query: tf.Tensor, key: tf.Tensor, position: tf.Tensor | None, biases: Biases | None = None
    ) -> Scores:
        """(q + u) . k, and [q, 1] . [a, b], which is q . a + b."""
        one = tf.fill(tf.shape(query[..., :1]), tf.cast(self.d_head**-0.5, query.dtype))
        return Scores(query + self._scaled(self.content_bias, query), key, tf.concat([query, one], axis=-1), position)

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        return super().get_config() | {"max_klen": self.max_klen}

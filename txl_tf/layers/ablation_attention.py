"""Attention with other kinds of positions than the paper's own, for its ablations (table 6).

The official PyTorch code adds absolute positions in place, so they stay in the memory and accumulate from segment to
segment. Here memory holds states without positions, which are added anew for each segment. With pre-LN the official
code computes keys and values from normalised states, but queries from states that are not normalised; here all three
come from normalised states.
"""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf.layers.attention import Biases, MemoryAttention, PositionDropout
from txl_tf.layers.dropout import dropout
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.ops import Scores


class LearnedPositions(MemoryAttention):
    """Learned vectors for distances, int [K], by default K-1, .., 0; all from max_klen - 1 on share the last vector."""

    options = ("max_klen",)

    def __init__(self, n_head: int, d_head: int, *, max_klen: int, **kwargs: typing.Any):
        super().__init__(n_head, d_head, **kwargs)
        if not max_klen or max_klen < 1:
            raise ValueError(f"{type(self).__name__}: max_klen must be positive, got {max_klen}")
        self.max_klen = max_klen

    def rows(self, distances: tf.Tensor) -> tf.Tensor:
        """The tables' rows of distances; row d is for distance d (the official tables have the opposite order)."""
        return tf.minimum(distances, self.max_klen - 1)


@keras.saving.register_keras_serializable(package="txl_tf")
class ShawAttention(LearnedPositions):
    """Attention with learned relative keys (Shaw et al. 2018, arXiv 1803.02155): official attn_type 1.

    For query i and key j at distance d the score, divided by sqrt(d_head), is

        q_i . k_j  +  q_i . a_d  +  u . k_j  +  b_d

    Shaw et al. have the first two terms. u and b are from the official PyTorch code (r_w_bias and r_bias; a is r_emb).
    It has this attention, but no layer that uses it. As there, each layer has its own a, u and b.
    """

    def build_positions(self, d_model: int) -> None:
        """Creates u, a and b."""
        self.content_bias = self.new_weight("content_bias", self.n_head, self.d_head)
        self.position_table = self.new_weight("position_table", self.max_klen, self.n_head, self.d_head)
        self.distance_bias = self.new_weight("distance_bias", self.max_klen, self.n_head, initializer="zeros")

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

    def project_positions(self, positions: tf.Tensor) -> tf.Tensor:
        """The vectors of distances [K], each with its bias as the last element: [H, K, d + 1]."""
        rows = self.rows(positions)
        vectors, biases = tf.gather(self.position_table, rows), tf.gather(self.distance_bias, rows)
        return tf.transpose(tf.concat([vectors, tf.cast(biases, vectors.dtype)[..., None]], axis=-1), [1, 0, 2])

    def scores(
        self, query: tf.Tensor, key: tf.Tensor, position: tf.Tensor | None, biases: Biases | None = None
    ) -> Scores:
        """(q + u) . k, and [q, 1] . [a, b], which is q . a + b."""
        one = tf.fill(tf.shape(query[..., :1]), tf.cast(self.d_head**-0.5, query.dtype))
        return Scores(query + self._scaled(self.content_bias, query), key, tf.concat([query, one], axis=-1), position)


@keras.saving.register_keras_serializable(package="txl_tf")
class AbsoluteAttention(MemoryAttention):
    """Plain attention (Vaswani et al. 2017, arXiv 1706.03762): official attn_type 2.

    `positions` are the encodings to add to memory and segment, [K, D] or [B, K, D], by default none. In a model only
    the first layer gets them.
    """

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """Sinusoids for the first layer, None for the others.

        The official code applies dropout to the sum of embedding and position of the segment. Here memory keeps the
        embedding without the position, so the position is dropped separately, with the embedding's mask.
        """
        k_len, d_model = m_len + hidden.shape[1], hidden.shape[2]
        encoding = sinusoids(key_distances(k_len, clamp_len), d_model, hidden.dtype)
        if drop is not None and drop.rate:
            encoding = tf.broadcast_to(encoding, [tf.shape(hidden)[0], k_len, d_model])
            segment = dropout(encoding[:, m_len:], drop.rate, drop.embedding_seed, drop.shared_axis)
            encoding = tf.concat([encoding[:, :m_len], segment], axis=1)
        return [encoding] + [None] * (n_layer - 1)

    def place(
        self, hidden: tf.Tensor, mems: tf.Tensor | None = None, positions: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Adds the encodings to the segment and the memory."""
        hidden, memory = super().place(hidden, mems, positions)
        m_len = 0 if memory is None else memory.shape[1]
        encoding = self.encode(positions, m_len + hidden.shape[1])
        if encoding is None:
            return hidden, memory
        encoding = tf.cast(encoding, hidden.dtype)
        if memory is not None:
            memory += encoding[..., :m_len, :]
        return hidden + encoding[..., m_len:, :], memory

    def encode(self, positions: tf.Tensor | None, k_len: int) -> tf.Tensor | None:
        """The encodings to add, [K, D] or [B, K, D]; None: none."""
        return positions


@keras.saving.register_keras_serializable(package="txl_tf")
class LearnedAbsoluteAttention(LearnedPositions, AbsoluteAttention):
    """Plain attention with learned vectors in each layer (Al-Rfou et al. 2018, arXiv 1808.04444): attn_type 3."""

    def build_positions(self, d_model: int) -> None:
        """Creates the table [max_klen, D]."""
        self.position_table = self.new_weight("position_table", self.max_klen, d_model)

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """Distances; clamp_len has no effect, as in the official code."""
        return [key_distances(m_len + hidden.shape[1])] * n_layer

    def encode(self, positions: tf.Tensor | None, k_len: int) -> tf.Tensor:
        """The rows of the table, [K, D]."""
        return tf.gather(self.position_table, self.rows(key_distances(k_len) if positions is None else positions))

"""Attention with absolute positions, which are added to its input, for the ablations of the paper (table 6).

A position is counted backwards from the segment's end, as in the official PyTorch code; memory comes before the
segment. The official code adds positions in place, so they stay in the memory and accumulate from segment to segment.
Here memory holds states without positions, and each segment adds them again to memory and segment. With pre-LN the
official code computes keys and values from normalised states, but queries from states that are not normalised; here
all three are computed from normalised states.
"""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf.layers.dropout import dropout
from txl_tf.layers.memory_attention import MemoryAttention, PositionDropout
from txl_tf.layers.positions import key_distances, sinusoids


@keras.saving.register_keras_serializable(package="txl_tf")
class AbsoluteAttention(MemoryAttention):
    """Plain attention (Vaswani et al. 2017, arXiv 1706.03762): official attn_type 2.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D]; `positions` are the encodings to add to
    memory and segment, [K, D] or [B, K, D], by default none. In a model only the first layer gets them.
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
class LearnedAbsoluteAttention(AbsoluteAttention):
    """Plain attention with a learned vector per layer and position (Al-Rfou et al. 2018, arXiv 1808.04444).

    Official attn_type 3. `positions` are int [K], by default K-1, .., 0; all positions from max_klen - 1 on share the
    last vector, as in the official code.

    Args:
        n_head, d_head, dropatt, init_std: as for `MemoryAttention`.
        max_klen: number of positions that have their own vector.
    """

    learns_through_memory = True
    options = ("max_klen",)

    def __init__(self, n_head: int, d_head: int, *, max_klen: int, **kwargs: typing.Any):
        super().__init__(n_head, d_head, **kwargs)
        if not max_klen or max_klen < 1:
            raise ValueError(f"LearnedAbsoluteAttention: max_klen must be positive, got {max_klen}")
        self.max_klen = max_klen

    def build_positions(self, d_model: int) -> None:
        """Creates the table [max_klen, D]; row p is for the p-th position before the segment's last."""
        self.position_table = self._weight("position_table", self.max_klen, d_model)

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """Positions; clamp_len has no effect, as in the official code."""
        return [key_distances(m_len + hidden.shape[1])] * n_layer

    def encode(self, positions: tf.Tensor | None, k_len: int) -> tf.Tensor:
        """The rows of the table, [K, D]."""
        rows = key_distances(k_len) if positions is None else positions
        return tf.gather(self.position_table, tf.minimum(rows, self.max_klen - 1))

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        return super().get_config() | {"max_klen": self.max_klen}

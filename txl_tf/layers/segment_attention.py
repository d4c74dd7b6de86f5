"""XLNet's attention: relative positions in both directions, segments, and two streams that share all weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from txl_tf.layers import platform
from txl_tf.layers.attention import RelMultiHeadAttention, project_by_head
from txl_tf.layers.attention_core import attend, positions_for_lanes, rows_at
from txl_tf.layers.memory_attention import Biases, HiddenShape

SEGMENTS = 8
"""Segment ids are below this."""

Look = Callable[[tf.Tensor], None]
"""A function that is called with attention probabilities [B, H, T, K]."""


@dataclasses.dataclass(frozen=True)
class Streams:
    """The `positions` of `SegmentAttention`: distances, segments and targets of its rows.

    encoding: [K + T-1, D], sinusoids of the distances K-1, .., -(T-1).
    backward: bool [B], the lanes whose text runs backward, so that distances have the opposite sign; None: no lane.
    segments: int [B, K], each key's segment, below SEGMENTS; None: there is one segment.
    targets: int [B, P], the token of the segment that each prediction is for; -1: an unused prediction, whose result is
        zero. None: there is no query stream.
    query_mask: bool [T, K] or broadcastable to [B, H, T, K]: which keys the query stream sees from each token; None:
        all.
    query_only: whether the result has no rows of the content stream.
    last_only: whether the result's only row of the content stream is that of the last token.
    first_part: as for `attend`, in the content stream.
    """

    encoding: tf.Tensor
    backward: tf.Tensor | None = None
    segments: tf.Tensor | None = None
    targets: tf.Tensor | None = None
    query_mask: tf.Tensor | None = None
    query_only: bool = False
    last_only: bool = False
    first_part: int = 0

    def __tf_flatten__(self) -> tuple[tuple, tuple]:
        """For tf.nest: what is no tensor, and the tensors."""
        tensors = self.encoding, self.backward, self.segments, self.targets, self.query_mask
        return (self.query_only, self.last_only, self.first_part), tensors

    @classmethod
    def __tf_unflatten__(cls, other: tuple, tensors: tuple) -> Streams:
        """The Streams of these parts."""
        return cls(*tensors, *other)

    @property
    def predictions(self) -> int:
        """P, the rows of the query stream."""
        return 0 if self.targets is None else self.targets.shape[1]


@keras.saving.register_keras_serializable(package="txl_tf")
class SegmentAttention(RelMultiHeadAttention):
    """Attention of XLNet (Yang et al. 2019): Transformer-XL's, with keys on both sides, segments and two streams.

    Segments: where query i and key j are of different segments, a score has one more term. In the official code it is
    (q_i + w) . s[0] in the same segment and (q_i + w) . s[1] in different ones; terms that both have in common cancel
    in the softmax, so here it is (q_i + w) . (s[1] - s[0]) where the segments differ, and else 0.

    Two streams: the first rows are the content stream h [B, T, D], the following rows the query stream g [B, P, D],
    concatenated in time. Keys, values and positions come from the content stream and the memory only.

    Text that runs backward: let a be W_kR R computed from the sines only, and b from the cosines only. A distance's
    vector is a + b, and that of the negative distance is b - a: one projection is enough for both directions. On a TPU
    the direction is a sign in the lane's queries, since q . r is q . b + q . a or q . b - q . a. The queries are twice
    as wide, with d = 64 as wide as a TPU's registers. Elsewhere each lane has vectors of its own direction.

    Shapes: hidden [B, T + P, D], mems [B, M, D], K = M + T, result [B, T + P, D], [B, P, D] with `query_only`,
    [B, 1 + P, D] with `last_only`;
    `positions` are Streams, by default with sinusoids only.

    Args:
        n_head, d_head, dropatt, own_biases, clamp_len, init_std: as for `RelMultiHeadAttention`; the biases are
            (u, v, w).

    Examples:
        >>> layer = SegmentAttention(n_head=4, d_head=16)
        >>> layer(tf.zeros([2, 16, 64])).shape
        TensorShape([2, 16, 64])
    """

    cacheable = False
    options = ("own_biases",)

    def __init__(self, n_head: int, d_head: int, **kwargs: Any):
        super().__init__(n_head, d_head, **kwargs | {"bidirectional": True})

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the weights for inputs [B, T, D]."""
        super().build(hidden_shape)
        if self.own_biases:
            self.segment_bias = self._weight("segment_bias", self.n_head, self.d_head)  # w, the official r_s_bias
        self.segment_table = self._weight("segment_table", 2, self.n_head, self.d_head)  # s: same, different segment

    def place(
        self, hidden: tf.Tensor, mems: tf.Tensor | None = None, positions: Streams | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """As for `MemoryAttention`; `hidden` also has the rows of the query stream."""
        batch, rows, d_model = hidden.shape if len(hidden.shape) == 3 else (None,) * 3
        shape = hidden.shape
        if positions is not None and rows is not None:
            shape = tf.TensorShape([batch, rows - positions.predictions, d_model])
        self._check(
            shape, None if mems is None else mems.shape, None if positions is None else positions.encoding.shape
        )
        return hidden, None if mems is None else tf.stop_gradient(mems)

    def read(
        self,
        hidden: tf.Tensor,
        memory: tf.Tensor | None,
        positions: Streams | None = None,
        attention_mask: tf.Tensor | None = None,
        biases: Biases | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
        look: Look | None = None,
    ) -> tf.Tensor:
        """As for `MemoryAttention`.

        Args:
            hidden, memory: from `place`.
            positions: Streams.
            attention_mask: of the content stream.
            biases, seed, training: as for `call`.
            look: called with the attention probabilities [B, H, T + P, K], whose rows are those of `hidden`.
        """
        t_len = hidden.shape[1] - (positions.predictions if positions is not None else 0)
        content = hidden[:, :t_len]
        k_len = t_len + (0 if memory is None else memory.shape[1])
        streams = positions or Streams(self.default_positions(k_len, content))
        kernels = self.kernels()
        key, value = self._keys_and_values(memory, content, kernels)
        position = positions_for_lanes(self._project_distances(streams), content, training)
        rate = self.dropatt if training else 0.0

        looked: list[tf.Tensor] = []

        def attended(
            query: tf.Tensor, mask: tf.Tensor | None, first: int, places: tf.Tensor | None = None
        ) -> tf.Tensor:
            mask = rows_at(self._checked_mask(mask, t_len, k_len), places)
            content_query, position_query = self._queries(query, streams.backward, biases)
            rest: dict[str, Any] = {
                "places": places,
                "extra": self._segment_scores(query, streams.segments, t_len, places, biases),
            }
            if look is not None:
                looked.append(self._probabilities(content_query, key, position_query, position, mask, **rest))
            own_seed = None if seed is None else tf.add(seed, [0, first])
            parts = (content_query, key, value, mask, position_query, position, rate, own_seed)
            return attend(*parts, causal=False, first_part=streams.first_part if places is None else 0, **rest)

        rows = 0 if streams.query_only else 1 if streams.last_only else t_len
        query = self.project_query(hidden[:, t_len - rows :], kernels)
        outputs = []
        if rows:
            places = tf.fill([tf.shape(hidden)[0], 1], t_len - 1) if streams.last_only else None
            outputs.append(attended(query[:, :, :rows], attention_mask, 0, places))
            query = query[:, :, rows:]
        if streams.targets is not None:
            used = (streams.targets >= 0)[:, None, :, None]
            weighted = attended(query, streams.query_mask, t_len, places=tf.maximum(streams.targets, 0))
            outputs.append(tf.where(used, weighted, tf.zeros([], query.dtype)))
            if look is not None:
                looked.append(tf.where(used, looked.pop(), tf.zeros([], self.variable_dtype)))
        if look is not None:
            look(tf.concat(looked, axis=2))
        return self.combine(outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2), kernels)

    def _project_distances(self, streams: Streams) -> tf.Tensor:
        """Projected positions: a + b [H, C, d]; if some lanes run backward, [b, a] [H, C, 2d] or [B, H, C, d]."""
        if streams.backward is None:
            return self.project_positions(streams.encoding)
        sine, cosine = (
            project_by_head(encoding, kernel)
            for encoding, kernel in zip(
                tf.split(streams.encoding, 2, axis=1),
                tf.split(tf.convert_to_tensor(self.position_kernel), 2, axis=0),
                strict=True,
            )
        )
        if platform.on_tpu():
            return tf.concat([cosine, sine], axis=-1)
        return tf.where(streams.backward[:, None, None, None], cosine - sine, cosine + sine)

    def _queries(
        self, query: tf.Tensor, backward: tf.Tensor | None, biases: Biases | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What is multiplied with the keys, and with the positions.

        Args:
            query: [B, H, T, d].
            backward: as in Streams.
            biases: as for `call`.
        """
        shared = None if biases is None else biases[:2]
        content_query, position_query = self.content_query(query, shared), self.position_query(query, shared)
        if backward is not None and platform.on_tpu():
            sign = tf.where(backward, tf.constant(-1, query.dtype), tf.constant(1, query.dtype))
            position_query = tf.concat([position_query, position_query * sign[:, None, None, None]], axis=-1)
        return content_query, position_query

    def _segment_scores(
        self,
        query: tf.Tensor,
        segments: tf.Tensor | None,
        t_len: int,
        places: tf.Tensor | None,
        biases: Biases | None,
    ) -> Callable[[int, int, int], tf.Tensor] | None:
        """The term of the scores where query and key are of different segments, as `extra` for `attend`.

        Args:
            query: [B, H, T, d].
            segments: as in Streams.
            t_len: T.
            places: as for `attend`.
            biases: as for `call`.
        """
        if segments is None:
            return None
        bias = self.segment_bias if self.own_biases or biases is None else biases[2]
        table = tf.convert_to_tensor(self.segment_table)
        differs = tf.einsum("bhtd,hd->bht", query + self._scaled(bias, query), table[1] - table[0])
        own = segments[:, -t_len:]
        if places is not None:
            own = tf.gather(own, places, batch_dims=1)
        return functools.partial(_different_segments, differs, own, segments)


def _different_segments(
    differs: tf.Tensor, own: tf.Tensor, segments: tf.Tensor, first: int, last: int, seen: int
) -> tf.Tensor:
    """differs [B, H, T] where the query's segment, own [B, T], is not the key's, segments [B, K]; elsewhere 0.

    A TPU or GPU compares numbers within the operation that adds the term to the scores. A CPU multiplies the keys'
    one-hot segments by a row that is `differs` in all columns except that of the query's own segment.
    """
    differs, own, segments = differs[:, :, first:last, None], own[:, first:last], segments[:, :seen]
    if platform.on_tpu():
        differs = tf.cast(differs, tf.float64 if differs.dtype == tf.float64 else tf.float32)
    if not platform.on_cpu():
        return tf.where(own[:, None, :, None] != segments[:, None, None], differs, tf.zeros([], differs.dtype))
    own, segments = (tf.one_hot(ids, SEGMENTS, dtype=differs.dtype) for ids in (own, segments))
    return tf.einsum("bhts,bks->bhtk", differs * (1 - own[:, None]), segments)

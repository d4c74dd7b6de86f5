"""XLNet's attention: relative positions in both directions, segments, and two streams that share all weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.attention import Biases, HiddenShape, Kernels, RelMultiHeadAttention
from txl_tf.layers.masks import rows_at
from txl_tf.ops import Scores

SEGMENTS = 8
"""Segment ids are below this."""

Rows = Literal["all", "query", "last"]


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
    absent: as in Scores.
    rows: which rows the result has: "all"; "query", none of the content stream; or "last", of the content stream only
        that of the last token.
    """

    encoding: tf.Tensor
    backward: tf.Tensor | None = None
    segments: tf.Tensor | None = None
    targets: tf.Tensor | None = None
    query_mask: tf.Tensor | None = None
    absent: tf.Tensor | None = None
    rows: Rows = "all"

    def __tf_flatten__(self) -> tuple[tuple, tuple]:
        """For tf.nest: the fields that are not tensors, and the tensors."""
        tensors = self.encoding, self.backward, self.segments, self.targets, self.query_mask, self.absent
        return (self.rows,), tensors

    @classmethod
    def __tf_unflatten__(cls, other: tuple, tensors: tuple) -> Streams:
        """The Streams of these parts."""
        return cls(*tensors, *other)

    @property
    def predictions(self) -> int:
        """P, the rows of the query stream."""
        return 0 if self.targets is None else self.targets.shape[1]

    def parts(self, hidden: tf.Tensor, t_len: int, content_mask: tf.Tensor | None) -> list[StreamPart]:
        """The result's rows for hidden [B, T + P, D], stream by stream; content_mask: the content stream's."""
        own = None if self.segments is None else self.segments[:, -t_len:]
        parts = []
        if self.rows == "last":
            last = tf.fill([tf.shape(hidden)[0], 1], t_len - 1)
            parts.append(StreamPart(1, content_mask, _at(own, last), places=last))
        elif self.rows == "all":
            parts.append(StreamPart(t_len, content_mask, own))
        if self.targets is not None:
            tokens, used = tf.maximum(self.targets, 0), self.targets >= 0
            parts.append(StreamPart(self.predictions, self.query_mask, _at(own, tokens), tokens, used, t_len))
        return parts


class StreamPart(NamedTuple):
    """The rows of one stream in the result.

    size: their number, P.
    mask: bool [T, K] or broadcastable to [B, H, T, K], of all tokens; None: all keys are seen.
    segments: int [B, P], as in Streams; None: there is one segment.
    places: int [B, P], the rows' tokens; None: all T in order.
    used: bool [B, P], the rows that are not zero; None: all.
    seed: a number to add to the seed of dropout.
    """

    size: int
    mask: tf.Tensor | None
    segments: tf.Tensor | None
    places: tf.Tensor | None = None
    used: tf.Tensor | None = None
    seed: int = 0

    def without_unused(self, x: tf.Tensor) -> tf.Tensor:
        """x [B, H, P, n], zero in unused rows."""
        return x if self.used is None else tf.where(self.used[:, None, :, None], x, tf.zeros([], x.dtype))


def _at(segments: tf.Tensor | None, places: tf.Tensor) -> tf.Tensor | None:
    """The segments, int [B, T], of the tokens at these places, int [B, P]."""
    return None if segments is None else tf.gather(segments, places, batch_dims=1)


@keras.saving.register_keras_serializable(package="txl_tf")
class SegmentAttention(RelMultiHeadAttention):
    """Attention of XLNet (Yang et al. 2019): Transformer-XL's, with keys on both sides, segments and two streams.

    Segments: a score has one more term. In the official code it is (q_i + w) . s[0] if query i and key j are in the
    same segment, and (q_i + w) . s[1] if not. A term that all keys share cancels in the softmax. So here it is
    (q_i + w) . (s[1] - s[0]) if the segments differ, and otherwise 0.

    Two streams: the first rows are the content stream h [B, T, D], the following rows the query stream g [B, P, D],
    concatenated in time. Keys, values and positions come from the content stream and the memory only.

    Text that runs backward: let a be W_kR R computed from the sines only, and b from the cosines only. The vector of a
    distance is a + b, and that of the negative distance is b - a. So one projection is enough for both directions.

    Shapes: hidden [B, T + P, D], mems [B, M, D], K = M + T, result [B, T + P, D], [B, P, D] with rows="query",
    [B, 1 + P, D] with "last"; `positions` are Streams, by default with sinusoids only.

    Arguments as for `RelMultiHeadAttention`, where the biases are (u, v, w).

    Examples:
        >>> layer = SegmentAttention(n_head=4, d_head=16)
        >>> layer(tf.zeros([2, 16, 64])).shape
        TensorShape([2, 16, 64])
    """

    bias_names = (*RelMultiHeadAttention.bias_names, "segment_bias")
    """u, v and w, the official r_s_bias."""

    def __init__(self, n_head: int, d_head: int, **kwargs: Any):
        super().__init__(n_head, d_head, **kwargs | {"bidirectional": True})
        if self.dropqkv:
            raise ValueError(f"SegmentAttention: dropqkv must be 0, got {self.dropqkv}")

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the weights for inputs [B, T, D]."""
        super().build(hidden_shape)
        self.segment_table = self.new_weight("segment_table", 2, self.n_head, self.d_head)  # s: same, different segment

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

    def residual(self, hidden: tf.Tensor, positions: Streams | None = None) -> tf.Tensor:
        """As for `MemoryAttention`: all rows, those of the query stream, or these and the last token's."""
        if positions is None or positions.rows == "all":
            return hidden
        return hidden[:, -positions.predictions - (positions.rows == "last") :]

    def read(
        self,
        hidden: tf.Tensor,
        memory: tf.Tensor | None,
        positions: Streams | None = None,
        attention_mask: tf.Tensor | None = None,
        biases: Biases | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
        look: Callable[[tf.Tensor], None] | None = None,
    ) -> tf.Tensor:
        """As for `MemoryAttention`, with Streams as positions, and the content stream's mask.

        look: called with the attention probabilities [B, H, T + P, K], whose rows are those of `hidden`.
        """
        t_len = hidden.shape[1] - (0 if positions is None else positions.predictions)
        k_len = t_len + (0 if memory is None else memory.shape[1])
        content = hidden[:, :t_len]
        streams = positions or Streams(self.default_positions(k_len, content))
        parts = streams.parts(hidden, t_len, attention_mask)
        count = sum(part.size for part in parts)
        kernels = self.kernels()
        key, value = self.project_context(content, kernels, memory)
        query = self.project_query(hidden[:, -count:], kernels)
        position = ops.positions(self._project_distances(streams), content, training, streams.backward)
        outputs, looked, first = [], [], 0
        for part in parts:
            rows = query if part.size == count else query[:, :, first : first + part.size]
            mask = rows_at(self._checked_mask(part.mask, t_len, k_len), part.places)
            scores = self._stream_scores(part, rows, key, position, streams, biases)
            if look is not None:
                looked.append(part.without_unused(self._probabilities(scores, mask)))
            drop = ops.Drop(self.dropatt if training else 0.0, None if seed is None else tf.add(seed, [0, part.seed]))
            outputs.append(part.without_unused(ops.attend(scores, value, mask, drop)))
            first += part.size
        if look is not None:
            look(tf.concat(looked, axis=2))
        return self.combine(outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2), kernels)

    def extend(
        self,
        hidden: tf.Tensor,
        ring: ops.KeyValueRing,
        position: tf.Tensor,
        attention_mask: tf.Tensor,
        kernels: Kernels,
        biases: Biases | None = None,
        block: int = 1,
    ) -> tuple[tf.Tensor, ops.KeyValueRing]:
        """Reads a segment from left to right, of one segment id: [B, 2 T, D], and the ring with the content's keys.

        Args:
            hidden: [B, 2 T, D]: the content stream, then for each token the query stream's row for the next token. Both
                rows of a token see the same keys.
            position: projected positions [H, C + 1, d] of the distances C, .., 0.
            ring, attention_mask, kernels, biases, block: as for `MemoryAttention`.
        """
        t_len = hidden.shape[1] // 2
        key, value = self.project_context(hidden[:, :t_len], kernels)
        ring = ops.write(ring, key, value, block)
        outputs = []
        for query, distances in zip(
            tf.split(self.project_query(hidden, kernels), 2, axis=2), (position[:, 1:], position[:, :-1]), strict=True
        ):
            scores = dataclasses.replace(self.scores(query, ring.keys, distances, biases), causal=True)
            outputs.append(ops.attend_ring(scores, ring.values, attention_mask, ring.start))
        return self.combine(tf.concat(outputs, axis=2), kernels), ring

    def _project_distances(self, streams: Streams) -> tf.Tensor | list[tf.Tensor]:
        """The rows for `ops.positions`: a + b [H, C, d]; if some lanes run backward, a and b."""
        if streams.backward is None:
            return self.project_positions(streams.encoding)
        encodings = tf.split(streams.encoding, 2, axis=1)
        kernels = tf.split(tf.convert_to_tensor(self.position_kernel), 2, axis=0)
        return [ops.rows_by_head(encoding, kernel) for encoding, kernel in zip(encodings, kernels, strict=True)]

    def _stream_scores(
        self,
        part: StreamPart,
        query: tf.Tensor,
        key: tf.Tensor,
        position: tf.Tensor,
        streams: Streams,
        biases: Biases | None,
    ) -> Scores:
        """`scores` of a stream's queries [B, H, P, d], and (q + w) . (s[1] - s[0]) where the segments differ.

        That term is a product, too: of a query's row that has it in the columns of all segments but its own, and a
        key's one-hot segment.
        """
        known: dict[str, Any] = {"backward": streams.backward, "absent": streams.absent, "places": part.places}
        scores = dataclasses.replace(self.scores(query, key, position, biases), **known)
        if streams.segments is None:
            return scores
        table = tf.convert_to_tensor(self.segment_table)
        term = tf.einsum("bhtd,hd->bht", query + self._scaled(self._biases(biases)[2], query), table[1] - table[0])
        own, of_keys = (
            tf.one_hot(ids, SEGMENTS, dtype=query.dtype)[:, None] for ids in (part.segments, streams.segments)
        )
        of_keys = tf.broadcast_to(of_keys, tf.concat([tf.shape(key)[:3], [SEGMENTS]], 0))
        query = tf.concat([scores.query, term[..., None] * (1 - own)], axis=-1)
        return dataclasses.replace(scores, query=query, key=tf.concat([scores.key, of_keys], axis=-1))

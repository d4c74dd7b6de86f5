"""Cross entropy over one cluster for the few tokens that belong to it, exact and with static shapes.

The cluster's tokens are read in chunks of C, by a while loop that ends when no token is left. So no token is dropped,
and the cost depends on their actual number. TensorFlow cannot differentiate a loop of unknown length on a TPU; the
gradient is therefore written here, as a second loop that computes each chunk's logits again.

Shapes: N tokens, D = d_model, S ids in the cluster, E their embedding's width.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from txl_tf.ops.gradients import WithGradient, custom_gradient
from txl_tf.ops.plain import Plain, accurate_dtype
from txl_tf.ops.scores import Cluster


def chunk_size(tokens: int | None) -> int:
    """C for N tokens, or for an unknown number of them (None).

    C is N / 16, about the most that the official TPU scripts reserve for a tail: 160 or 176 of wt103_large's 3,072
    tokens, 16 of lm1b_large's 256. The official code drops the tokens beyond that.
    """
    return 64 if tokens is None else max(16, tokens // 16)


def cluster_nll(ops: Plain, hidden: tf.Tensor, labels: tf.Tensor, cluster: Cluster) -> tuple[tf.Tensor, tf.Tensor]:
    """`ops.cluster_nll` in chunks of C tokens, with the products of an implementation."""
    size = chunk_size(hidden.shape[0])
    tokens = _OwnTokens(ops, labels, size if hidden.shape[0] is None else min(size, hidden.shape[0]))

    @custom_gradient
    def run(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, *projection: tf.Tensor) -> WithGradient:
        # Casts are outside the loops, so that they run once.
        projected = tf.cast(projection[0], hidden.dtype) if projection else None
        weights = Cluster(tf.cast(table, hidden.dtype), bias, projected)
        nll_N, lse_N = tokens.losses(hidden, weights)

        def gradient(d_hidden: tf.Tensor, d_nll_N: tf.Tensor) -> tuple[tf.Tensor, ...]:
            zeros = [tf.zeros_like(weight) for weight in (table, bias, *projection)]
            return tokens.gradients(hidden, weights, lse_N, d_nll_N, [d_hidden, *zeros])

        return (tf.identity(hidden), nll_N), gradient

    return run(hidden, *(weight for weight in cluster if weight is not None))


class _Chunk(NamedTuple):
    """C tokens.

    rows, own, label: [C], their numbers among N, whether they are the cluster's, their labels.
    hidden, embedded, logits: [C, D], [C, E] and [C, S].
    """

    rows: tf.Tensor
    own: tf.Tensor
    label: tf.Tensor
    hidden: tf.Tensor
    embedded: tf.Tensor
    logits: tf.Tensor


class _OwnTokens:
    """The cluster's tokens among N, read in chunks of C; labels: int32 [N]; ops: for the products."""

    def __init__(self, ops: Plain, labels: tf.Tensor, chunk_size: int):
        self.ops, self.labels, self.chunk_size = ops, labels, chunk_size
        self.count = tf.reduce_sum(tf.cast(labels >= 0, tf.int32))
        own_first = tf.argsort(tf.cast(labels < 0, tf.int32), stable=True)
        self.own_first = tf.pad(own_first, [[0, chunk_size]])  # the last chunk may reach past the end

    def losses(self, hidden: tf.Tensor, weights: Cluster) -> tuple[tf.Tensor, tf.Tensor]:
        """[N] each: the negative log-likelihoods, and the logarithms of the sums of e^logits; 0 for other tokens."""

        def forward(start: int | tf.Tensor, nll_N: tf.Tensor, lse_N: tf.Tensor) -> tuple[tf.Tensor, ...]:
            chunk = self._chunk(start, hidden, weights)
            lse_C = tf.reduce_logsumexp(chunk.logits, -1)
            nll_C = lse_C - tf.gather(chunk.logits, chunk.label, batch_dims=1)
            nll_N = tf.tensor_scatter_nd_add(nll_N, chunk.rows[:, None], tf.where(chunk.own, nll_C, 0))
            lse_N = tf.tensor_scatter_nd_add(lse_N, chunk.rows[:, None], tf.where(chunk.own, lse_C, 0))
            return start + self.chunk_size, nll_N, lse_N

        zeros_N = tf.zeros_like(self.labels, accurate_dtype(hidden.dtype))
        _, nll_N, lse_N = tf.while_loop(self._more, forward, forward(0, zeros_N, zeros_N))
        return nll_N, lse_N

    def gradients(
        self, hidden: tf.Tensor, weights: Cluster, lse_N: tf.Tensor, d_nll_N: tf.Tensor, sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        """`sums`, of hidden, table, bias and perhaps projection, with all chunks' gradients added."""
        table, bias, projection = weights

        def backward(start: int | tf.Tensor, d_hidden: tf.Tensor, *d_weights: tf.Tensor) -> tuple[tf.Tensor, ...]:
            chunk = self._chunk(start, hidden, weights)
            # The softmax must also be 0 in rows of other tokens, whose logits are arbitrary.
            lse_C = tf.where(chunk.own, tf.gather(lse_N, chunk.rows), float("inf"))
            d_nll_C = tf.where(chunk.own, tf.gather(d_nll_N, chunk.rows), 0)
            onehot_CxS = tf.one_hot(chunk.label, tf.shape(table)[0], dtype=chunk.logits.dtype)
            d_logits_CxS = (tf.exp(chunk.logits - lse_C[:, None]) - onehot_CxS) * d_nll_C[:, None]
            d_logits_CxS = tf.cast(d_logits_CxS, hidden.dtype)

            d_hidden_CxD = d_embedded_CxE = tf.matmul(d_logits_CxS, table)
            d_table = tf.matmul(d_logits_CxS, chunk.embedded, transpose_a=True)
            d_parts = [d_table, tf.reduce_sum(tf.cast(d_logits_CxS, bias.dtype), 0)]
            if projection is not None:
                d_hidden_CxD = tf.matmul(d_embedded_CxE, projection)
                d_parts.append(tf.matmul(d_embedded_CxE, chunk.hidden, transpose_a=True))
            d_hidden = tf.tensor_scatter_nd_add(d_hidden, chunk.rows[:, None], d_hidden_CxD)
            added = [total + tf.cast(part, total.dtype) for total, part in zip(d_weights, d_parts, strict=True)]
            return start + self.chunk_size, d_hidden, *added

        return tf.while_loop(self._more, backward, backward(0, *sums))[1:]

    def _more(self, start: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return start < self.count

    def _chunk(self, start: int | tf.Tensor, hidden: tf.Tensor, weights: Cluster) -> _Chunk:
        """C tokens from `start`."""
        rows_C = tf.slice(self.own_first, [start], [self.chunk_size])
        own_C = start + tf.range(self.chunk_size) < self.count
        label_C = tf.where(own_C, tf.gather(self.labels, rows_C), 0)
        embedded_CxE = hidden_CxD = tf.gather(hidden, rows_C)
        if weights.projection is not None:
            embedded_CxE = self.ops.dot_rows(hidden_CxD, weights.projection)
        logits_CxS = self.ops.logits(embedded_CxE, weights.table, weights.bias)
        return _Chunk(rows_C, own_C, label_C, hidden_CxD, embedded_CxE, logits_CxS)

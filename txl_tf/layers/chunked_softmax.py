"""Cross entropy over one cluster for the few tokens that belong to it, exact and with static shapes.

Shapes: N tokens, D = d_model, S ids in the cluster, E their embedding's width, C = chunk_size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.layers.bfloat16_products import product
from txl_tf.layers.gradients import custom_gradient
from txl_tf.layers.row_products import LayerSlice, add_bias, multiply_rows


class Cluster(NamedTuple):
    """The output weights of a cluster, as tensors; for a single row, table and projection may be a `LayerSlice`."""

    table: tf.Tensor | LayerSlice  # [S, E]
    bias: tf.Tensor  # [S]
    projection: tf.Tensor | LayerSlice | None  # [E, D]; None: E == D


def cluster_logits(hidden: tf.Tensor, cluster: Cluster) -> tf.Tensor:
    """[.., D] -> logits [.., S]: matmuls in the dtype of `hidden`, the result float32 at least."""
    if cluster.projection is not None:
        hidden = _product(hidden, cluster.projection)
    return _logits(hidden, cluster.table, cluster.bias)


def _logits(embedded: tf.Tensor, table: tf.Tensor | LayerSlice, bias: tf.Tensor) -> tf.Tensor:
    logits = _product(embedded, table)
    dtype = _loss_dtype(logits.dtype)
    logits, bias = tf.cast(logits, dtype), tf.cast(bias, dtype)
    return add_bias(logits, bias) if isinstance(table, LayerSlice) else logits + bias


def _product(x: tf.Tensor, rows: tf.Tensor | LayerSlice) -> tf.Tensor:
    """[.., E] -> products with rows [S, E]: [.., S]."""
    if isinstance(rows, LayerSlice):
        return multiply_rows(x, rows)
    return product(x, tf.cast(rows, x.dtype), transpose_b=True)


def _loss_dtype(compute_dtype: tf.DType) -> tf.DType:
    return tf.float64 if compute_dtype == tf.float64 else tf.float32


def default_chunk_size(tokens: int | None) -> int:
    """C for N tokens, or for an unknown number of them (None).

    N / 16, which is about the largest size that the official TPU scripts reserve for a tail: 160 or 176 of
    wt103_large's 3,072 tokens, 16 of lm1b_large's 256. The official code drops the tokens that exceed it.
    """
    return 64 if tokens is None else max(16, tokens // 16)


def chunked_nll(
    hidden: tf.Tensor, labels: tf.Tensor, cluster: Cluster, chunk_size: int | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """-log softmax(logits)[label] for the tokens of this cluster, 0 for all others.

    The cluster's tokens are processed in chunks of C: the first chunk always, further chunks by a while loop that ends
    when no token is left. So the result is exact for any number of tokens, no token is dropped, and the cost depends on
    their actual number. TensorFlow cannot differentiate a loop of unknown length on a TPU; the gradient is therefore
    written here, as a second loop that computes each chunk's logits again. At most one [C, S] of a loop is in memory.

    Args:
        hidden: [N, D].
        labels: int32 [N]: the target's row in the cluster, or -1 for a token of another cluster.
        cluster: `Cluster`.
        chunk_size: C; None: `default_chunk_size`.

    Returns:
        hidden: unchanged, for the next operation that reads it. Its gradient [N, D] then passes through this function,
            which adds the rows of this cluster in place; otherwise a second [N, D], mostly zeros, would be summed.
        nll: [N], in float32 at least.
    """
    chunk_size = chunk_size or default_chunk_size(hidden.shape[0])
    if hidden.shape[0] is not None:
        chunk_size = min(chunk_size, hidden.shape[0])
    count = tf.reduce_sum(tf.cast(labels >= 0, tf.int32))
    own_first = tf.argsort(tf.cast(labels < 0, tf.int32), stable=True)
    own_first = tf.pad(own_first, [[0, chunk_size]])  # the last chunk may reach past the end

    @custom_gradient
    def run(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, *projection: tf.Tensor) -> tuple[Any, Any]:
        # Casts are outside the loops, so that they run once.
        table_SxE = tf.cast(table, hidden.dtype)
        projection_ExD = [tf.cast(p, hidden.dtype) for p in projection]

        def more(start: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            return start < count

        def chunk(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """C tokens from `start`: rows in N, whether in the cluster, labels, and each stage of the logits."""
            rows_C = tf.slice(own_first, [start], [chunk_size])
            own_C = start + tf.range(chunk_size) < count
            label_C = tf.where(own_C, tf.gather(labels, rows_C), 0)
            embedded_CxE = hidden_CxD = tf.gather(hidden, rows_C)
            for p in projection_ExD:
                embedded_CxE = product(hidden_CxD, p, transpose_b=True)
            return rows_C, own_C, label_C, hidden_CxD, embedded_CxE, _logits(embedded_CxE, table_SxE, bias)

        def forward(start: int | tf.Tensor, nll_N: tf.Tensor, lse_N: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rows_C, own_C, label_C, _, _, logits_CxS = chunk(start)
            lse_C = tf.reduce_logsumexp(logits_CxS, -1)
            nll_C = lse_C - tf.gather(logits_CxS, label_C, batch_dims=1)
            nll_N = tf.tensor_scatter_nd_add(nll_N, rows_C[:, None], tf.where(own_C, nll_C, 0))
            lse_N = tf.tensor_scatter_nd_add(lse_N, rows_C[:, None], tf.where(own_C, lse_C, 0))
            return start + chunk_size, nll_N, lse_N

        zeros_N = tf.zeros_like(labels, _loss_dtype(hidden.dtype))
        _, nll_N, lse_N = tf.while_loop(more, forward, forward(0, zeros_N, zeros_N))

        def gradient(d_hidden: tf.Tensor, d_nll_N: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def backward(
                start: int | tf.Tensor,
                d_hidden: tf.Tensor,
                d_table: tf.Tensor,
                d_bias: tf.Tensor,
                *d_projection: tf.Tensor,
            ) -> tuple[tf.Tensor, ...]:
                rows_C, own_C, label_C, hidden_CxD, embedded_CxE, logits_CxS = chunk(start)
                # The softmax must also be 0 in rows of other tokens, whose logits are arbitrary.
                lse_C = tf.where(own_C, tf.gather(lse_N, rows_C), float("inf"))
                d_nll_C = tf.where(own_C, tf.gather(d_nll_N, rows_C), 0)
                onehot_CxS = tf.one_hot(label_C, tf.shape(table)[0], dtype=logits_CxS.dtype)
                d_logits_CxS = (tf.exp(logits_CxS - lse_C[:, None]) - onehot_CxS) * d_nll_C[:, None]
                d_logits_CxS = tf.cast(d_logits_CxS, hidden.dtype)

                d_embedded_CxE = tf.matmul(d_logits_CxS, table_SxE)
                d_table += tf.cast(tf.matmul(d_logits_CxS, embedded_CxE, transpose_a=True), table.dtype)
                d_bias += tf.reduce_sum(tf.cast(d_logits_CxS, bias.dtype), 0)
                d_hidden_CxD = d_embedded_CxE
                for p in projection_ExD:
                    d_hidden_CxD = tf.matmul(d_embedded_CxE, p)
                    d_p = tf.matmul(d_embedded_CxE, hidden_CxD, transpose_a=True)
                    d_projection = (d_projection[0] + tf.cast(d_p, bias.dtype),)
                d_hidden = tf.tensor_scatter_nd_add(d_hidden, rows_C[:, None], d_hidden_CxD)
                return start + chunk_size, d_hidden, d_table, d_bias, *d_projection

            zeros = [tf.zeros_like(weight) for weight in (table, bias, *projection)]
            return tf.while_loop(more, backward, backward(0, d_hidden, *zeros))[1:]

        return (tf.identity(hidden), nll_N), gradient

    return run(hidden, *(weight for weight in cluster if weight is not None))

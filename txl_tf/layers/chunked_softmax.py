"""Cross entropy over one cluster for the few tokens that fall in it, exact and on static shapes.

Shapes: N tokens, D = d_model, S ids in the cluster, E their embedding's width, C = chunk_size.
"""

from typing import NamedTuple

import tensorflow as tf


class Cluster(NamedTuple):
    """The output weights of a cluster, as tensors."""

    table: tf.Tensor  # [S, E]
    bias: tf.Tensor  # [S]
    projection: tf.Tensor | None  # [E, D]; None: E == D


def cluster_logits(hidden, cluster):
    """[.., D] -> logits [.., S]: matmuls in the dtype of `hidden`, the result float32 at least."""
    if cluster.projection is not None:
        hidden = tf.matmul(hidden, tf.cast(cluster.projection, hidden.dtype), transpose_b=True)
    return _logits(hidden, cluster.table, cluster.bias)


def _logits(embedded, table, bias):
    product = tf.matmul(embedded, tf.cast(table, embedded.dtype), transpose_b=True)
    dtype = tf.float64 if product.dtype == tf.float64 else tf.float32
    return tf.cast(product, dtype) + tf.cast(bias, dtype)


def chunked_nll(hidden, labels, cluster, chunk_size):
    """-log softmax(logits)[label] for the tokens of this cluster, 0 for all others.

    The cluster's tokens are taken C at a time by a while loop that ends when none is left. So any number of them
    is exact, nothing is dropped, and the cost follows their true number. TensorFlow cannot differentiate a loop of
    unknown length on a TPU; the gradient is therefore written here, as a second loop that computes each chunk's
    logits again: no more than one [C, S] of them is ever alive.

    Args:
        hidden: [N, D].
        labels: int32 [N]: the target's row in the cluster, or -1 for a token of another cluster.
        cluster: `Cluster`.
        chunk_size: C.

    Returns:
        [N], in the dtype of the bias.
    """
    if hidden.shape[0] is not None:
        chunk_size = min(chunk_size, hidden.shape[0])
    count = tf.reduce_sum(tf.cast(labels >= 0, tf.int32))
    own_first = tf.argsort(tf.cast(labels < 0, tf.int32), stable=True)
    own_first = tf.pad(own_first, [[0, chunk_size]])  # the last chunk may reach past the end

    @tf.custom_gradient
    def nll(hidden, table, bias, *projection):
        # Casts stand outside the loops, to be done once.
        table_c = tf.cast(table, hidden.dtype)
        projection_c = [tf.cast(p, hidden.dtype) for p in projection]

        def chunk(start):
            """The C tokens from `start`: their places, inputs, loss, and its gradient by the logits."""
            rows_C = tf.slice(own_first, [start], [chunk_size])
            own_C = start + tf.range(chunk_size) < count
            hidden_CxD = tf.gather(hidden, rows_C)
            embedded_CxE = hidden_CxD
            for p in projection_c:
                embedded_CxE = tf.matmul(hidden_CxD, p, transpose_b=True)
            logits_CxS = _logits(embedded_CxE, table_c, bias)
            label_C = tf.where(own_C, tf.gather(labels, rows_C), 0)
            # The raw operation gives both the loss and its gradient, softmax - onehot.
            loss_C, d_logits_CxS = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits_CxS, labels=label_C)
            return rows_C, own_C, hidden_CxD, embedded_CxE, loss_C, d_logits_CxS

        def forward(start, nll_N):
            rows_C, own_C, _, _, loss_C, _ = chunk(start)
            loss_C = tf.where(own_C, loss_C, tf.zeros_like(loss_C))
            return start + chunk_size, tf.tensor_scatter_nd_add(nll_N, rows_C[:, None], loss_C)

        def gradient(upstream_N):
            def backward(start, d_hidden, d_table, d_bias, *d_projection):
                rows_C, own_C, hidden_CxD, embedded_CxE, _, d_logits_CxS = chunk(start)
                upstream_C = tf.where(own_C, tf.gather(upstream_N, rows_C), tf.zeros([], upstream_N.dtype))
                d_logits_CxS *= upstream_C[:, None]
                d_bias += tf.reduce_sum(d_logits_CxS, 0)
                d_logits_CxS = tf.cast(d_logits_CxS, hidden.dtype)
                d_table += tf.cast(tf.matmul(d_logits_CxS, embedded_CxE, transpose_a=True), table.dtype)
                d_chunk = tf.matmul(d_logits_CxS, table_c)
                if projection:
                    d_p = tf.cast(tf.matmul(d_chunk, hidden_CxD, transpose_a=True), table.dtype)
                    d_projection = (d_projection[0] + d_p,)
                    d_chunk = tf.matmul(d_chunk, projection_c[0])
                d_hidden = tf.tensor_scatter_nd_add(d_hidden, rows_C[:, None], d_chunk)
                return start + chunk_size, d_hidden, d_table, d_bias, *d_projection

            zeros = [tf.zeros_like(x) for x in (hidden, table, bias, *projection)]
            return tf.while_loop(lambda start, *_: start < count, backward, [0, *zeros])[1:]

        zeros_N = tf.zeros(tf.shape(hidden)[:1], bias.dtype)
        return tf.while_loop(lambda start, _: start < count, forward, [0, zeros_N])[1], gradient

    return nll(hidden, cluster.table, cluster.bias, *([] if cluster.projection is None else [cluster.projection]))

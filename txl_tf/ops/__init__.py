"""The operations of the layers, each by the implementation for the program that is being traced.

`plain.py` has the formulas; the implementations for CPUs, GPUs and TPUs compute the same, up to rounding, and the same
gradients (tests/ops/test_contract.py). `platform.implementation` chooses among them.

Shapes: B batch, T queries or tokens of a segment, M slots of memory, K = M + T keys, H heads, d = d_head, D = d_model.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from txl_tf.ops.platform import implementation
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import NO_DROP, Cluster, Drop, Scores

__all__ = ["Cluster", "Drop", "KeyValueRing", "Scores"]


def attend(scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop = NO_DROP) -> tf.Tensor:
    """softmax(scores + mask), with dropout, times value; the last T keys belong to the queries' tokens.

    Args:
        scores: see Scores.
        value: [B, H, K, d]; the result is [B, H, T, d].
        mask: bool, true where a query may see a key: [T, K] or broadcastable to [B, H, T, K]. A query that sees no key
            attends equally to all keys that are computed and not `scores.absent`.
        drop: the dropout of the probabilities.
    """
    return implementation().attend(scores, value, mask, drop)


def attend_ring(scores: Scores, value: tf.Tensor, mask: tf.Tensor, oldest: tf.Tensor) -> tf.Tensor:
    """As `attend`, to the keys and values of a ring, without gradient.

    oldest: int scalar, the slot of the oldest key. Positions and mask still go from the oldest key to the newest.
    """
    return implementation().attend_ring(scores, value, mask, oldest)


def positions(
    rows: tf.Tensor | Sequence[tf.Tensor], query: tf.Tensor, training: bool = False, backward: tf.Tensor | None = None
) -> tf.Tensor:
    """The `position` of Scores.

    Args:
        rows: projected positions [H, C, d], farthest distance first. With `backward` two such tensors: the projected
            sines and the projected cosines. Their sum is for texts that run forward. The cosines minus the sines, the
            positions of negative distances, are for texts that run backward.
        query: any tensor [B, ..], for B.
        training: whether there is a gradient.
        backward: bool [B], the lanes whose text runs backward; None: no lane.
    """
    return implementation().positions(rows, query, training, backward)


def heads(x: tf.Tensor, matrix: tf.Tensor, n_head: int, memory: tf.Tensor | None = None) -> tf.Tensor:
    """Queries, keys or values of memory [B, M, D] and segment [B, T, D], by a matrix [D, H d]: [B, H, M + T, d]."""
    return implementation().heads(x, matrix, n_head, memory)


def rows_by_head(rows: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Rows [K, D], which all texts share, times a weight [D, H, d]: [H, K, d]."""
    return implementation().rows_by_head(rows, weight)


def dot(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """x [.., D] times a matrix [D, F]: [.., F]."""
    return implementation().dot(x, matrix)


def dense(x: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x [.., D] times a matrix [D, F], plus a bias [F]: [.., F]."""
    return implementation().dense(x, matrix, bias)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis of x [.., D], in the dtype of x.

    It is computed in the dtype of gamma and beta, [D], which is float32 at least. A row without variance becomes beta,
    and has the gradient 0.
    """
    return implementation().layer_norm(x, gamma, beta, epsilon)


def lookup(table: tf.Tensor, rows: tf.Tensor, dtype: str, own: tf.Tensor | None = None) -> tf.Tensor:
    """Rows [..] of a table [V, E]: [.., E], in a dtype.

    own: bool [..]; where it is false, the result is 0 and the row may be any number. None: all are true.
    """
    return implementation().lookup(table, rows, dtype, own)


def cluster_logits(hidden: tf.Tensor, cluster: Cluster) -> tf.Tensor:
    """[.., D] -> logits [.., S]: matmuls in the dtype of `hidden`, the result float32 at least."""
    return implementation().cluster_logits(hidden, cluster)


def cluster_nll(hidden: tf.Tensor, labels: tf.Tensor, cluster: Cluster) -> tuple[tf.Tensor, tf.Tensor]:
    """-log softmax(logits)[label] for the tokens of a cluster, 0 for all others: [N], in float32 at least.

    hidden: [N, D]; labels: int32 [N], the target's row in the cluster, or -1 for a token of another cluster.

    The first result is hidden, for the next operation that reads it. So its gradient [N, D] passes through this
    function, which adds this cluster's rows in place. Otherwise a second [N, D], mostly zeros, would be added.
    """
    return implementation().cluster_nll(hidden, labels, cluster)


def write(ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int = 1) -> KeyValueRing:
    """The ring with the keys and values [B, H, T, d] of a segment in the slots from its start on.

    C, T and the ring's start are multiples of `block`; if T = block, the new slots are next to each other.
    """
    return implementation().write(ring, key, value, block)


def halved_squares(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Half the squared norm of each of V tensors, [V]."""
    return implementation().halved_squares(tensors)

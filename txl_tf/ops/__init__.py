"""The operations of the layers, each by the implementation for the program that is being traced.

`plain.py` has the formulas; the implementations for CPUs, GPUs and TPUs compute the same, up to rounding, and the same
gradients (tests/ops/test_contract.py). Only this module chooses among them.

Shapes: B batch, T queries or tokens of a segment, M slots of memory, K = M + T keys, H heads, d = d_head, D = d_model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from txl_tf.ops import platform
from txl_tf.ops.cpu import Cpu
from txl_tf.ops.gpu import Gpu
from txl_tf.ops.plain import Plain
from txl_tf.ops.platform import Program
from txl_tf.ops.rings import KeyValueRing
from txl_tf.ops.scores import TILE, Cluster, Drop, Scores
from txl_tf.ops.stored import LayerSlice, Matrix
from txl_tf.ops.tpu import Tpu

NO_DROP = Drop()

Made = TypeVar("Made")


@tf.autograph.experimental.do_not_convert
def implementation() -> Plain:
    """The implementation for the program that is being traced; programs with different ones must not share a trace."""
    return _implementation(platform.program())


@functools.cache
def _implementation(program: Program) -> Plain:
    if program.plain:
        return Plain()
    if program.target == "tpu":
        return Tpu()
    return Cpu(program) if program.target == "cpu" else Gpu(program.only_compiled)


def attend(
    scores: Scores,
    value: tf.Tensor | LayerSlice,
    mask: tf.Tensor,
    drop: Drop = NO_DROP,
    oldest: tf.Tensor | None = None,
) -> tf.Tensor:
    """softmax(scores + mask), with dropout, times value.

    Args:
        scores: see Scores.
        value: [B, H, K, d]; the result is [B, H, T, d].
        mask: bool, true where a query may see a key: [T, K] or broadcastable to [B, H, T, K]. A query that sees no key
            attends equally to all keys that are computed and not `scores.absent`.
        drop: the dropout of the probabilities.
        oldest: None: the last T keys belong to the queries' tokens. Otherwise keys and values are a ring's, without
            gradient, and `oldest`, an int scalar, is the slot of its oldest key; positions and mask still go from the
            oldest key to the newest.
    """
    return implementation().attend(scores, value, mask, drop, oldest)


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


def heads(x: tf.Tensor, matrix: Matrix, n_head: int, memory: tf.Tensor | None = None) -> tf.Tensor:
    """Queries, keys or values of memory [B, M, D] and segment [B, T, D], by a matrix [D, H d]: [B, H, M + T, d]."""
    return implementation().heads(x, matrix, n_head, memory)


def rows_by_head(rows: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Rows [K, D], which all texts share, times a kernel [D, H, d]: [H, K, d]."""
    return implementation().rows_by_head(rows, kernel)


def dot(x: tf.Tensor, matrix: Matrix) -> tf.Tensor:
    """x [.., D] times a matrix [D, F]: [.., F]."""
    return implementation().dot(x, matrix)


def dense(x: tf.Tensor, matrix: Matrix, bias: tf.Tensor, kept: bool = False) -> tf.Tensor:
    """x [.., D] times a matrix [D, F], plus a bias [F]: [.., F]. kept: the matrix is a stored copy of a variable."""
    return implementation().dense(x, matrix, bias, kept)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis of x [.., D], in the dtype of x.

    It is computed in the dtype of gamma and beta, [D], which is float32 at least. A row without variance becomes beta,
    and has the gradient 0.
    """
    return implementation().layer_norm(x, gamma, beta, epsilon)


def relu_and_dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None, shared_axis: int | None = None) -> tf.Tensor:
    """dropout(relu(x)) of x [.., T, D]; arguments as for `dropout`."""
    return implementation().relu_and_dropout(x, rate, seed, shared_axis)


def lookup(
    table: tf.Tensor,
    rows: tf.Tensor,
    dtype: str,
    own: tf.Tensor | None = None,
    tail: bool = False,
    tied: bool = True,
) -> tf.Tensor:
    """Rows [..] of a table [V, E]: [.., E], in a dtype.

    Args:
        own: bool [..]; where it is false, the result is 0 and the row may be any number. None: all are true.
        tail: whether the table is a tail's, with narrow rows.
        tied: whether a softmax shares the table, so that its gradient has a second term.
    """
    return implementation().lookup(table, rows, dtype, own, tail, tied)


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


def weight_gradients(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same gradients of a model's weights, as a tape computed them in the graph that is being traced."""
    return implementation().weight_gradients(gradients)


def shared(scalars: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same scalars, for many similar updates that read them."""
    return implementation().shared(scalars)


def carried(slots: tf.Tensor) -> tf.Tensor:
    """A ring's keys or values as the state of a loop over tokens; tf.bitcast gives them back."""
    return implementation().carried(slots)


def for_single_rows(make: Callable[[], Made]) -> Made | None:
    """make(), which keeps weights in the forms of `few_rows`; None: single rows are multiplied with the usual forms."""
    return implementation().for_single_rows(make)


def missing_rows(count: int) -> int:
    """The number of rows to add to a lane of `count` rows."""
    return -count % implementation().row_multiple


def ring_slots(needed: int, single_rows: bool, whole_tiles: bool) -> int:
    """The number of slots of a ring that needs at least `needed`, which is 1 or more.

    single_rows: whether single rows read it; whole_tiles: whether whole segments are written, or in bfloat16.
    """
    multiple = implementation().slot_multiple(single_rows, whole_tiles)
    return -(-needed // multiple) * multiple


def segments_at_once(t_len: int) -> int:
    """How many segments of T tokens make up a block of attention's queries: larger matrices are multiplied faster."""
    return 1 if TILE % t_len else TILE // t_len

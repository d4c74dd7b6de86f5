"""Products of a single row with matrices on a CPU, for generating one text: as fast as memory gives the matrices.

XLA for CPU multiplies one row and a matrix on one core, and converts a matrix that is not float32 to another matrix
first, before the loop if it can. If the matrix is a slice that depends on the loop, however, XLA computes it inside the
product, number by number, and divides the product's rows among the cores. So the matrices of all layers are kept in
one tensor here, and the number of the layer comes from the loop.

Shapes: N layers, matrices [D, F], H heads, C slots, d = d_head.
"""

from __future__ import annotations

import dataclasses
import typing

import tensorflow as tf

WINDOW = 32
"""Slots whose weighted values are added at once. XLA computes longer sums in several steps, and would write all
products to memory between them."""


@dataclasses.dataclass(frozen=True, eq=False)
class LayerSlice:
    """A layer's matrix, [D, F], or its projected positions, [H, C, d], in a tensor of all layers.

    It is no tensor, so that Keras does not cast it.

    stored: [N, F, D] or [N, H, C, d], as `stored` returns it.
    layer: int32 scalar, the number of the layer; computed in the loop.
    """

    stored: tf.Tensor
    layer: tf.Tensor

    def read(self, *index: int) -> tf.Tensor:
        """The layer's numbers, or a part of them: float32 at least."""
        return _from_bits(self.stored[(self.layer, *index)])


Matrix: typing.TypeAlias = "tf.Tensor | LayerSlice"
"""[D, F]."""


def stored(matrices: list[tf.Tensor]) -> tf.Tensor:
    """The matrices [D, F] of all layers as `LayerSlice` holds them: [N, F, D]."""
    return as_bits(tf.stack([tf.transpose(matrix) for matrix in matrices]))


def as_bits(x: tf.Tensor) -> tf.Tensor:
    """A bfloat16 tensor as uint16, which XLA for CPU does not convert to float32 before a loop; others as they are."""
    return tf.bitcast(x, tf.uint16) if x.dtype == tf.bfloat16 else x


def _from_bits(x: tf.Tensor) -> tf.Tensor:
    """The numbers of `as_bits`, in float32 at least."""
    if x.dtype == tf.uint16:
        return tf.bitcast(tf.bitwise.left_shift(tf.cast(x, tf.uint32), tf.constant(16, tf.uint32)), tf.float32)
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def multiply(equation: str, x: tf.Tensor, matrix: Matrix) -> tf.Tensor:
    """tf.einsum(equation, x, matrix) of x [.., D] and a matrix [D, F]; if that is a LayerSlice, x must be one row."""
    if not isinstance(matrix, LayerSlice):
        return tf.einsum(equation, x, matrix)
    rows = matrix.read()
    product = tf.matmul(_written(tf.cast(tf.reshape(x, [1, -1]), rows.dtype)), rows, transpose_b=True)
    return tf.cast(tf.reshape(product, [-1, *x.shape[1:-1], rows.shape[0]]), x.dtype)


def _written(row: tf.Tensor) -> tf.Tensor:
    """The row, written to memory. XLA would compute it again for each row of the matrix; it cannot for running sums."""
    return tf.cumsum(tf.stack([row, tf.zeros_like(row)]), axis=0)[0]


def row_scores(query: tf.Tensor, key: tf.Tensor | LayerSlice) -> tf.Tensor:
    """The products of queries [1, H, 1, d] with keys, [1, H, C, d] or [H, C, d]: [1, H, 1, C], float32 at least."""
    n_head = query.shape[1]
    if isinstance(key, LayerSlice):
        rows = [key.read(head) for head in range(n_head)]
    elif key.dtype == tf.bfloat16:
        bits = tf.reshape(as_bits(key), key.shape[-3:])
        rows = [_from_bits(bits[head]) for head in range(n_head)]
    else:
        return tf.einsum("bhtd,bhkd->bhtk" if key.shape.rank == 4 else "bhtd,hkd->bhtk", query, key)
    query = _written(tf.cast(query, rows[0].dtype))
    return tf.stack([tf.matmul(query[0, head], row, transpose_b=True) for head, row in enumerate(rows)])[None]


def row_values(weight: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """The sum of values [1, H, C, d] with weights [1, H, 1, C]: [1, H, 1, d], in the dtype of weights."""
    n_head, c_len, d_head = value.shape[1:]
    windows = _from_bits(tf.reshape(as_bits(value), [n_head, c_len // WINDOW, WINDOW, d_head]))
    weight = tf.reshape(weight, [n_head, c_len // WINDOW, WINDOW, 1])
    partial = tf.reduce_sum(windows * tf.cast(weight, windows.dtype), axis=2)
    # A matmul of two equal rows: a sum, or the product of one row, would be merged with the sum before it.
    ones = tf.ones([n_head, 2, c_len // WINDOW], partial.dtype)
    return tf.cast(tf.matmul(ones, partial)[None, :, :1], weight.dtype)

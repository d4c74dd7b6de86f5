"""Products of single rows with matrices on a CPU, for generating a few texts: as fast as memory gives the matrices.

XLA for CPU multiplies one row and a matrix on one core, and first converts the matrix to float32. For several rows it
first copies the matrix into another order. But if the matrix is a slice that depends on a loop, XLA reads and converts
it inside the product of one row, and divides the work among the cores. So the matrices of all layers are kept in one
tensor, and the number of the layer comes from a loop. Several rows are multiplied one after the other: for the second
row the matrix, or a block of it if it is large, is already in the caches.

Shapes: N layers, matrices [D, F], H heads, C slots, d = d_head.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.inference.generation.packed import LayerSlice, Stored, as_bits, from_bits
from txl_tf.ops import platform
from txl_tf.ops.cpu import Cpu
from txl_tf.ops.plain import accurate_dtype, added
from txl_tf.ops.rings import KeyValueRing, scattered, written
from txl_tf.ops.scores import Scores

BLOCK = 4 * 2**20
"""Bytes of a single matrix that are multiplied with all rows before the next bytes are read."""
LANES = 16
"""Numbers that a core adds at once, each to a sum of its own. XLA adds up the numbers of a row one after the other."""
RUNS = 16
"""Runs of neighbours that a ring's slots are divided into. Each sum of weighted values has one slot of every run: sums
of neighbours are slower, and for sums of more than 32 numbers XLA would write all products to memory."""


def multiply_rows(x: tf.Tensor, matrix: LayerSlice) -> tf.Tensor:
    """The products of rows x [B, 1, .., 1, D] and a matrix [D, F], in the dtype of x; if B is not known, it is 1."""
    batch, numbers = x.shape[0] or 1, matrix.stored.numbers
    size = max(1, BLOCK // (numbers.shape[-1] * numbers.dtype.size))
    x_rows = _written(tf.cast(tf.reshape(x, [batch, -1]), matrix.dtype))
    if batch > 1 and numbers.shape.rank == 2 and matrix.n_rows() > size:
        out = _products_in_blocks(x_rows, matrix, size)
    else:
        out = _products(x_rows, matrix.read())
    scales = matrix.scales()
    if scales is not None:
        out *= tf.cast(scales, out.dtype)
    return tf.cast(tf.reshape(out, [-1, *x.shape[1:-1], out.shape[-1]]), x.dtype)


def _products(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """x [B, D], rows [F, D]: [B, F]."""
    return tf.concat([tf.matmul(x[i : i + 1], rows, transpose_b=True) for i in range(x.shape[0])], axis=0)


def _products_in_blocks(x: tf.Tensor, matrix: LayerSlice, size: int) -> tf.Tensor:
    """`_products` of x and a single matrix, `size` rows of it at a time."""
    batch, (steps, rest) = x.shape[0], divmod(matrix.n_rows(), size)

    def step(i: tf.Tensor, out: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return i + 1, out.write(i, _products(x, matrix.read_some(i * size, size)))

    first = (tf.constant(0), tf.TensorArray(matrix.dtype, steps, element_shape=[batch, size]))
    blocks = tf.while_loop(lambda i, _: i < steps, step, first)[1].stack()
    out = tf.reshape(tf.transpose(blocks, [1, 0, 2]), [batch, steps * size])
    return tf.concat([out, _products(x, matrix.read_some(steps * size, rest))], axis=1) if rest else out


def add_bias(rows: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """rows [.., F] + bias [F], where the rows may be a result of `multiply_rows`.

    XLA for CPU merges a product of one row with an addition if nothing else reads the product, and then computes it on
    one core. So two additions read it.
    """
    half = rows.shape[-1] // 2
    return tf.concat([rows[..., :half] + bias[:half], rows[..., half:] + bias[half:]], axis=-1)


def _numbers(x: tf.Tensor | LayerSlice) -> tf.Tensor:
    """The numbers that row products multiply: float32 at least."""
    return x.read() if isinstance(x, LayerSlice) else from_bits(as_bits(x))


def _written(rows: tf.Tensor) -> tf.Tensor:
    """The rows, written to memory as running sums, or XLA would compute them again for each row of the matrix."""
    return tf.cumsum(tf.stack([rows, tf.zeros_like(rows)]), axis=0)[0]


def row_scores(query: tf.Tensor, key: tf.Tensor | LayerSlice) -> tf.Tensor:
    """The products of queries [B, H, 1, d] with keys, [B, H, C, d] or [H, C, d]: [B, H, 1, C], float32 at least."""
    rows = _numbers(key)
    n_head, c_len = rows.shape[-3:-1]
    rows, query = _whole_lanes(rows), _whole_lanes(tf.cast(query, rows.dtype))
    query = _written(tf.reshape(query, [-1, n_head, 1, query.shape[-1] // LANES, LANES]))
    partial = tf.reduce_sum(tf.reshape(rows, [-1, n_head, c_len, *query.shape[-2:]]) * query, axis=3)
    score = tf.matmul(tf.ones([1, LANES], partial.dtype), tf.reshape(partial, [-1, LANES]), transpose_b=True)
    return tf.reshape(score, [-1, n_head, 1, c_len])


def _whole_lanes(x: tf.Tensor) -> tf.Tensor:
    """x [.., d] with zeros up to a multiple of LANES. XLA does not write them to memory, but computes with them."""
    missing = -x.shape[-1] % LANES
    return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]]) if missing else x


def row_values(weight: tf.Tensor, value: tf.Tensor | LayerSlice) -> tf.Tensor:
    """The sum of values [B, H, C, d] with weights [B, H, 1, C]: [B, H, 1, d], in the weights' dtype."""
    rows = _numbers(value)
    n_head, c_len, d_head = rows.shape[-3:]
    runs = tf.reshape(rows, [-1, RUNS, c_len // RUNS, d_head])
    weights = tf.cast(tf.reshape(weight, [-1, RUNS, c_len // RUNS, 1]), runs.dtype)
    partial = tf.reduce_sum(runs * weights, axis=1)
    # A matmul of two equal rows: a sum, or the product of one row, would be merged with the sum before it.
    ones = tf.ones([tf.shape(partial)[0], 2, c_len // RUNS], partial.dtype)
    return tf.cast(tf.reshape(tf.matmul(ones, partial)[:, :1], [-1, n_head, 1, d_head]), weight.dtype)


class SingleRows(Cpu):
    """For programs that read a single row of each text: matrices, keys, values and positions may be LayerSlices."""

    def dot(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        return multiply_rows(x, matrix) if isinstance(matrix, LayerSlice) else super().dot(x, matrix)

    def dot_rows(self, x: tf.Tensor, rows: Any) -> tf.Tensor:
        return multiply_rows(x, rows) if isinstance(rows, LayerSlice) else super().dot_rows(x, rows)

    def logits(self, x: tf.Tensor, table: Any, bias: tf.Tensor) -> tf.Tensor:
        if not isinstance(table, LayerSlice):
            return super().logits(x, table, bias)
        logits = self.dot_rows(x, table)
        accurate = accurate_dtype(logits.dtype)
        return add_bias(tf.cast(logits, accurate), tf.cast(bias, accurate))

    def attend_ring(self, scores: Scores, value: Any, mask: tf.Tensor, oldest: tf.Tensor) -> tf.Tensor:
        """A ring has a multiple of RUNS slots."""
        if not isinstance(scores.position, LayerSlice):
            return super().attend_ring(scores, value, mask, oldest)
        query, by_distance = scores.query, row_scores(scores.position_query, scores.position)
        score = row_scores(query, scores.key) + tf.roll(by_distance, oldest, axis=-1)
        score += added(tf.roll(mask, oldest, axis=-1), None, score.dtype)
        weight = tf.exp(score - tf.reduce_max(score, axis=-1, keepdims=True))
        output = row_values(weight, value) / tf.reduce_sum(weight, axis=-1, keepdims=True)
        return tf.cast(output, query.dtype)

    def write(self, ring: KeyValueRing, key: tf.Tensor, value: tf.Tensor, block: int) -> KeyValueRing:
        if not isinstance(ring.keys, LayerSlice):
            return super().write(ring, key, value, block)
        return written(ring, key, value, lambda slots, new: with_token(slots, new, ring.start))


def with_token(slots: LayerSlice, new: tf.Tensor, start: tf.Tensor) -> LayerSlice:
    """A layer's keys or values with those of a token of each text, [B, H, 1, d], in slot `start`; B is known."""
    numbers = slots.stored.numbers
    batch, n_head, c_len = numbers.shape[1:4]
    heads = batch * n_head
    places = tf.reshape((slots.layer * heads + tf.range(heads)) * c_len + start, [-1, 1])
    return LayerSlice(Stored(scattered(numbers, as_bits(new), places, 1)), slots.layer)


def available() -> bool:
    """Whether SingleRows can be used in the program that is being traced."""
    return isinstance(platform.implementation(), Cpu)

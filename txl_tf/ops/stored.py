"""Matrices, positions, keys and values of all layers in one tensor each, of which a loop reads a layer's slice.

Shapes: N layers, matrices [D, F], H heads, C slots, d = d_head.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

import tensorflow as tf

from txl_tf.ops.int8 import quantized


class Stored(typing.NamedTuple):
    """The matrices [D, F] of all layers, or their tensors [.., H, C, d], in one tensor; or a single matrix.

    numbers: [N, F, D] or [N, .., H, C, d]: `as_bits`, or int8. A single matrix is [F, D]; as bits or int8 it is
        [F + 1, D], with one more row, so that XLA does not know where the slice begins that is read.
    scales: of int8, [N, F], or [F] for a single matrix; None: there are none.
    """

    numbers: tf.Tensor
    scales: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class LayerSlice:
    """A layer's matrix, [D, F], its positions, [H, C, d], or its keys or values, [B, H, C, d].

    It is not a tensor, so that Keras does not cast it.

    stored: the tensors of all layers.
    layer: int32 scalar, the number of the layer, from a loop; for a single matrix a 0 from a loop.
    """

    stored: Stored
    layer: tf.Tensor

    def read(self) -> tf.Tensor:
        """The layer's numbers, in `dtype`. int8 numbers are not multiplied by their scales."""
        numbers = self.stored.numbers
        if numbers.shape.rank > 2:
            return from_bits(numbers[self.layer])
        if numbers.dtype.is_floating:
            return numbers
        return self.read_some(0, self.n_rows())

    def read_some(self, first: tf.Tensor | int, count: int) -> tf.Tensor:
        """`count` of the rows of a single matrix [F, D] from the row `first` on."""
        numbers = self.stored.numbers
        return from_bits(tf.slice(numbers, [self.layer + first, 0], [count, numbers.shape[1]]))

    def n_rows(self) -> int:
        """F of a single matrix."""
        numbers = self.stored.numbers
        return numbers.shape[0] if numbers.dtype.is_floating else numbers.shape[0] - 1

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of one layer's positions, keys or values."""
        return self.stored.numbers.shape[1:]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of what `read` returns: float32 at least."""
        return tf.float64 if self.stored.numbers.dtype == tf.float64 else tf.float32

    def scales(self) -> tf.Tensor | None:
        """The scales of the layer's int8 numbers, [F]; None: there are none."""
        scales = self.stored.scales
        return scales if scales is None or self.stored.numbers.shape.rank == 2 else scales[self.layer]


Matrix: typing.TypeAlias = "tf.Tensor | LayerSlice"
"""[D, F]."""


def stored(matrices: Sequence[tf.Tensor], int8: bool = False) -> Stored:
    """The matrices [D, F] of all layers; in int8, or unchanged."""
    if not int8:
        return Stored(as_bits(tf.stack([tf.transpose(matrix) for matrix in matrices])))
    numbers, scales = zip(*map(quantized, matrices), strict=True)
    return Stored(tf.stack([tf.transpose(matrix) for matrix in numbers]), tf.stack(scales))


def stored_alone(rows: tf.Tensor, int8: bool = False) -> Stored:
    """A single matrix [D, F], given transposed, [F, D]; in int8, or unchanged. float32 is not copied."""
    one_more = [[0, 1], [0, 0]]
    if int8:
        numbers, scales = quantized(rows, inputs_axis=1)
        return Stored(tf.pad(numbers, one_more), scales)
    return Stored(as_bits(tf.pad(rows, one_more)) if rows.dtype == tf.bfloat16 else rows)


def as_bits(x: tf.Tensor) -> tf.Tensor:
    """A bfloat16 tensor as uint16, which XLA for CPU does not convert to float32 before a loop; others as they are."""
    return tf.bitcast(x, tf.uint16) if x.dtype == tf.bfloat16 else x


def from_bits(x: tf.Tensor) -> tf.Tensor:
    """The numbers of `as_bits`, or int8 numbers, in float32 at least."""
    if x.dtype == tf.uint16:
        return tf.bitcast(tf.bitwise.left_shift(tf.cast(x, tf.uint32), tf.constant(16, tf.uint32)), tf.float32)
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)

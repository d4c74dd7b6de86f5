"""Weights and rings of all layers in one tensor each, of which a loop reads a layer's slice; packed once.

Shapes: N layers, matrices [D, F], H heads, C slots, d = d_head.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.ops.int8 import quantized
from txl_tf.ops.plain import accurate_dtype


class Stored(typing.NamedTuple):
    """The matrices [D, F] of all layers, or their tensors [.., H, C, d], in one tensor; or a single matrix.

    numbers: [N, F, D] or [N, .., H, C, d]: `as_bits`, or int8. A single matrix is [F, D]; as bits or int8 it is
        [F + 1, D], with one more row, so that a compiler does not know where the slice begins that is read.
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

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Stored, tf.Tensor]]:
        """So that a tf.function takes it as an argument."""
        return (), (self.stored, self.layer)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], parts: tuple[Stored, tf.Tensor]) -> LayerSlice:
        return cls(*parts)

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
        return accurate_dtype(self.stored.numbers.dtype)

    def scales(self) -> tf.Tensor | None:
        """The scales of the layer's int8 numbers, [F]; None: there are none."""
        scales = self.stored.scales
        return scales if scales is None or self.stored.numbers.shape.rank == 2 else scales[self.layer]


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
    """A bfloat16 tensor as uint16, which compilers do not convert to float32 before a loop; others as they are."""
    return tf.bitcast(x, tf.uint16) if x.dtype == tf.bfloat16 else x


def without_bits(x: tf.Tensor, dtype: tf.DType | str) -> tf.Tensor:
    """The tensor of this dtype that `as_bits` was given."""
    return x if x.dtype == dtype else tf.bitcast(x, dtype)


def from_bits(x: tf.Tensor) -> tf.Tensor:
    """The numbers of `as_bits`, or int8 numbers, in float32 at least."""
    if x.dtype == tf.uint16:
        return tf.bitcast(tf.bitwise.left_shift(tf.cast(x, tf.uint32), tf.constant(16, tf.uint32)), tf.float32)
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


class Packed:
    """A nest of tensors that a function makes from a model's weights when they are first used.

    A SavedModel does not hold them: it makes them when it is loaded. After the weights change call `refresh`.
    """

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._made: Any = None
        self._resources: list[_Resource] = []

    def free(self) -> None:
        """Frees the memory until the next use; graphs that were traced before must not run again."""
        for resource in self._resources:
            tf.raw_ops.DestroyResourceOp(resource=resource.resource_handle)
        self._made, self._resources = None, []

    def tensors(self) -> Any:
        """The nest of tensors."""
        if not tf.executing_eagerly():
            parts = iter(self.resources())
            return tf.nest.map_structure(lambda made: None if made is None else next(parts).read(), self._made)
        if self._made is None:
            self._made = self._make()
        return self._made

    def resources(self) -> list[_Resource]:
        """The tensors as graphs read them, which a SavedModel must track."""
        with tf.init_scope():
            tensors = _leaves(self.tensors())
            self._resources = self._resources or [_Resource(self._make, i, each) for i, each in enumerate(tensors)]
        return self._resources

    def refresh(self) -> None:
        """Makes the tensors again, if they have been made."""
        if self._made is not None:
            self._made = self._make()
        for resource, tensor in zip(self._resources, _leaves(self._made), strict=False):
            resource.assign(tensor)


class _Resource(tf.saved_model.experimental.TrackableResource):
    """A tensor of a nest that a function makes, the one of this number.

    Nothing destroys it when it is collected: a program may hold only the signatures of a SavedModel that it loaded.
    """

    def __init__(self, make: Callable[[], Any], number: int, tensor: tf.Tensor):
        super().__init__()
        self._make, self._number, self._shared_name = make, number, f"packed_{uuid.uuid4()}"
        self._spec = tf.TensorSpec.from_tensor(tensor)
        self.assign(tensor)

    def read(self) -> tf.Tensor:
        tensor = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._spec.dtype)
        return tf.ensure_shape(tensor, self._spec.shape)

    def assign(self, tensor: tf.Tensor) -> None:
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=tensor)

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.VarHandleOp(dtype=self._spec.dtype, shape=self._spec.shape, shared_name=self._shared_name)

    def _initialize(self) -> None:
        self.assign(_leaves(self._make())[self._number])


def _leaves(nest: Any) -> list[tf.Tensor]:
    """The tensors of a nest of tensors and None."""
    return [leaf for leaf in tf.nest.flatten(nest) if leaf is not None]

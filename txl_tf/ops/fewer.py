"""Operations with fewer kernels on a GPU, `--ops=fewer`: compiled for cards, but not run on one yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops import platform
from txl_tf.ops.gpu import Gpu
from txl_tf.ops.gradients import WithGradient, custom_gradient
from txl_tf.ops.plain import inverse_deviation

COPIED = 2**23
"""Bytes of an input of a matmul or a sum up to which copying it takes about as long as a kernel's start."""


class FewerKernels(Gpu):
    """For a GPU and programs with many small kernels."""

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
        """Small ones already divided by their sum: one kernel, since nothing else reads the sum; but more memory."""
        if not (self.only_compiled and is_small(score)):
            return super().exponentials(score, hide, dtype)
        weight = tf.cast(tf.nn.softmax(tf.cast(score, hide.dtype) + hide), score.dtype)
        return weight, tf.ones([], hide.dtype), weight

    def layer_norm(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
        """Small inputs with the mean subtracted first, and a gradient of its own: fewer kernels, but more bytes."""
        if not (self.only_compiled and is_small(x)):
            return super().layer_norm(x, gamma, beta, epsilon)

        @custom_gradient
        def run(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> WithGradient:
            wide = tf.cast(x, gamma.dtype)
            centred = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
            scale = inverse_deviation(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True), epsilon)
            normal = centred * scale

            def gradient(d_out: tf.Tensor) -> tuple[tf.Tensor, ...]:
                d_out = tf.cast(d_out, gamma.dtype)
                d_normal = d_out * gamma
                d_normal -= tf.reduce_mean(d_normal, axis=-1, keepdims=True)
                slope = tf.reduce_mean(d_normal * normal, axis=-1, keepdims=True)
                rows = list(range(x.shape.rank - 1))
                sums = (tf.reduce_sum(each, axis=rows) for each in (d_out * normal, d_out))
                return tf.cast((d_normal - normal * slope) * scale, x.dtype), *sums

            return tf.cast(normal * gamma + beta, x.dtype), gradient

        return run(x, gamma, beta)

    def halved_squares(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """One sum for all tensors of a shape, since each sum is a kernel or two, and weights are many."""
        if not self.only_compiled:
            return super().halved_squares(tensors)
        places: dict[tuple[int, ...], list[int]] = {}
        for i, tensor in enumerate(tensors):
            places.setdefault(tuple(tensor.shape), []).append(i)
        rows = [tf.stack([tf.reshape(tensors[i], [-1]) for i in alike]) for alike in places.values()]
        numbers = tf.concat([tf.reduce_sum(tf.square(each), axis=1) / 2 for each in rows], axis=0)
        return tf.gather(numbers, np.argsort(np.concatenate(list(places.values()))))

    def sum_over_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """As a matmul, which `together` finds."""
        return tf.matmul(*(tf.reshape(rows, [-1, rows.shape[-1]]) for rows in (x, y)), transpose_a=True)


def _asked() -> bool:
    """Whether the program that is being traced is one of XLA's for a GPU with fewer kernels."""
    kind = platform.implementation()
    return isinstance(kind, FewerKernels) and kind.only_compiled


def weight_gradients(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same gradients of a model's weights, as a tape computed them in the graph that is being traced.

    Small matmuls and sums are computed together, since XLA makes one to four kernels of each, several for every weight.
    """
    return together(gradients) if _asked() else list(gradients)


def shared(scalars: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same scalars, for many similar updates that read them, from a vector that XLA must compute first.

    XLA puts the updates of weights of one shape into one kernel if they read the same array, but not if they share only
    scalars.
    """
    if not _asked():
        return list(scalars)
    (vector,) = gen_xla_ops.xla_optimization_barrier([tf.stack(scalars)])
    return tf.unstack(vector)


def together(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same tensors of a graph. Equal small matmuls and sums behind these tensors are computed once.

    The others then have no readers, and XLA removes them.
    """
    alike: dict[tuple, dict[Any, tf.Operation]] = {}
    for op in _small_ends(tensors):
        ways = tuple(op.get_attr(name) for name in _ENDS[op.type])
        axes = [tf.get_static_value(each) for each in op.inputs if each.dtype.is_integer]
        form = ways, str([(each.shape, each.dtype) for each in op.inputs]), str(axes)
        alike.setdefault(form, {})[op.outputs[0].ref()] = op
    known: dict[Any, tf.Tensor] = {}
    for (ways, *_), ends in alike.items():
        if len(ends) > 1:
            known |= zip(ends, tf.unstack(_computed(list(ends.values()), ways), len(ends)), strict=True)

    def again(tensor: tf.Tensor) -> tf.Tensor:
        op = tensor.op
        if tensor.ref() not in known and op.type in _PASSED:
            inputs, attributes = [again(each) for each in op.inputs], dict(op.node_def.attr)
            known[tensor.ref()] = op.graph.create_op(op.type, inputs, [tensor.dtype], attrs=attributes).outputs[0]
        return known.get(tensor.ref(), tensor)

    return [again(tensor) for tensor in tensors]


_ENDS = {"MatMul": ("transpose_a", "transpose_b"), "Sum": ("keep_dims",)}
"""The operations that are computed at once, and their attributes that say how."""

_PASSED = {"AddN", "Cast", "Mul", "Reshape"}
"""The operations between a gradient and the matmuls and sums that it comes from."""


def _small_ends(tensors: Iterable[tf.Tensor]) -> Iterator[tf.Operation]:
    """The first matmuls and sums behind the tensors, if their inputs are small."""
    for tensor in tensors:
        if tensor.op.type in _PASSED:
            yield from _small_ends(tensor.op.inputs)
        elif tensor.op.type in _ENDS and all(is_small(each) for each in tensor.op.inputs):
            yield tensor.op


def is_small(tensor: tf.Tensor) -> bool:
    """Whether the tensor has at most COPIED bytes; if it is the axes of a sum, whether they are known."""
    if not tensor.dtype.is_floating:
        return tf.get_static_value(tensor) is not None
    count = tensor.shape.num_elements()
    return count is not None and count * tensor.dtype.size <= COPIED


def _computed(ops: Sequence[tf.Operation], ways: Sequence[bool]) -> tf.Tensor:
    """The results of alike matmuls or sums, stacked."""
    first, second = (tf.stack(each) for each in zip(*(op.inputs for op in ops), strict=True))
    if ops[0].type == "MatMul":
        return tf.matmul(first, second, *ways)
    axes = tf.get_static_value(ops[0].inputs[1]) % ops[0].inputs[0].shape.rank
    return tf.reduce_sum(first, axes + 1, *ways)

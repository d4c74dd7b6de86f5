"""Sums over replicas of which each replica gets one shard, and shards gathered again, inside `strategy.run`.

A tensor is divided along one axis into equal slices, one for each replica, in the replicas' order. On a TPU each
direction is one operation, which moves half the bytes of a whole sum for every replica. On other devices every replica
gets the whole sum and takes its shard: the same numbers, but no fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops.platform import program
from txl_tf.ops.scores import TILE


def part_axis(shape: Sequence[int], replicas: int) -> int | None:
    """The axis along which a weight is divided into one shard for each replica; None: it stays whole.

    Weights of rank 1, such as biases, stay whole, since they are small; so do weights that cannot be divided equally.
    """
    if replicas == 1 or len(shape) < 2:
        return None
    # If possible the outermost axis in a TPU's memory, so that a shard is contiguous. That is the first axis, unless
    # rows are not whole registers: then the compiler makes the first axis the innermost.
    axes = list(range(len(shape)))
    if shape[-1] % TILE:
        axes = [*axes[1:], 0]
    return next((axis for axis in axes if shape[axis] % replicas == 0), None)


def own_part(replica: Any, tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """This replica's shard of a tensor; the size of the axis is a multiple of the number of replicas."""
    size = tensor.shape[axis] // replica.num_replicas_in_sync
    begin, sizes = [0] * tensor.shape.rank, tensor.shape.as_list()
    begin[axis], sizes[axis] = replica.replica_id_in_sync_group * size, size
    return tf.slice(tensor, begin, sizes)


def reduce_scatter(replica: Any, tensors: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
    """This replica's shards of the tensors' sums over replicas, in the tensors' dtypes.

    A TPU sums bfloat16 in bfloat16; other devices sum it in float32 and round the sum.

    Args:
        tensors: the same shapes on all replicas.
        axes: for each tensor the axis of its shards.
    """
    if program().target == "tpu":
        everyone = [list(range(replica.num_replicas_in_sync))]
        return [
            gen_xla_ops.xla_reduce_scatter(tensor, everyone, scatter_dimension=axis, reduce_op="Add")
            for tensor, axis in zip(tensors, axes, strict=True)
        ]
    sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, [_sendable(tensor) for tensor in tensors]) if tensors else []
    parts = [own_part(replica, total, axis) for total, axis in zip(sums, axes, strict=True)]
    return [tf.cast(part, tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]


def all_gather(replica: Any, parts: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
    """The whole tensors, from all replicas' shards; arguments as for `reduce_scatter`."""
    count = replica.num_replicas_in_sync
    if program().target == "tpu":
        return [_gather_on_tpu(part, axis, count) for part, axis in zip(parts, axes, strict=True)]
    joined: dict[int, tf.Tensor] = {}
    for axis in dict.fromkeys(axes):  # one exchange for each axis
        places = [i for i, its in enumerate(axes) if its == axis]
        sent = [_sendable(parts[i]) for i in places]
        joined |= dict(zip(places, replica.all_gather(sent, axis=axis), strict=True))
    wholes = [tf.ensure_shape(joined[i], _whole_shape(part, axes[i], count)) for i, part in enumerate(parts)]
    return [tf.cast(whole, part.dtype) for whole, part in zip(wholes, parts, strict=True)]


def _sendable(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor for TensorFlow's exchange on devices other than TPUs, which has no bfloat16.

    Between workers the exchange needs a tensor's device. The value of a variable does not name it, but its copy does.
    """
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tf.identity(tensor)


def _whole_shape(part: tf.Tensor, axis: int, replicas: int) -> list[int]:
    shape = part.shape.as_list()
    shape[axis] *= replicas
    return shape


_TYPES = {tf.float32: "f32", tf.float64: "f64", tf.bfloat16: "bf16"}
_STABLEHLO_VERSION = 9  # of the format of XlaCallModule


def _gather_on_tpu(part: tf.Tensor, axis: int, replicas: int) -> tf.Tensor:
    """The shards of all replicas, gathered by XLA's all-gather.

    TensorFlow has no operation for it. TPUStrategy's `ReplicaContext.all_gather` sums tensors that are 0 outside the
    replica's shard. That moves twice the bytes, and the TPU compiler does not see through it.
    """
    whole = _whole_shape(part, axis, replicas)
    before, after = (
        f"tensor<{'x'.join(map(str, shape))}x{_TYPES[part.dtype]}>" for shape in (part.shape.as_list(), whole)
    )
    module = f"""module @all_gather {{
      func.func public @main(%part: {before}) -> {after} {{
        %whole = "stablehlo.all_gather"(%part) {{
          all_gather_dim = {axis} : i64,
          replica_groups = dense<{[list(range(replicas))]}> : tensor<1x{replicas}xi64>
        }} : ({before}) -> {after}
        return %whole : {after}
      }}
    }}"""
    (joined,) = gen_xla_ops.xla_call_module(
        [part],
        version=_STABLEHLO_VERSION,
        module=module,
        Sout=[tf.TensorShape(whole)],
        Tout=[part.dtype],
        platforms=["TPU"],
        disabled_checks=["platform"],  # evidence/compilers/aot_compile.py lowers it on a machine without a TPU
    )
    return joined

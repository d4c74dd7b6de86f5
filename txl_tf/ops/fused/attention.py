"""Attention by the kernels of kernels.py, as an operation of TensorFlow.

`--ops=fused` asks for them. They were compiled for cards, but have not run on one yet.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.errors import InputError
from txl_tf.ops.attention import merge_heads
from txl_tf.ops.fewer import FewerKernels, is_small
from txl_tf.ops.gradients import ATTENTION, WithGradient, custom_gradient
from txl_tf.ops.scores import Drop, Scores


class Fused(FewerKernels):
    """For a GPU whose attention never writes the scores; InputError if JAX, which lowers its kernels, is missing."""

    def __init__(self, only_compiled: bool):
        super().__init__(only_compiled)
        if importlib.util.find_spec("jax") is None:
            raise InputError("--ops=fused needs JAX: run python -m pip install 'txl_tf[gpu]'")

    def attend(self, scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop) -> tf.Tensor:
        """By the fused kernels, if they suit."""
        if self.only_compiled and suits(scores, mask, drop):
            return attend(scores, value, mask, drop)
        return super().attend(scores, value, mask, drop)

    def positions(self, rows: Any, query: tf.Tensor, training: bool, backward: tf.Tensor | None) -> tf.Tensor:
        return super().positions(rows, query, training and not self.only_compiled, backward)

    def context_gradients(self, d_heads: tf.Tensor, matrix: tf.Tensor, lengths: list[int]) -> list[tf.Tensor]:
        """Small ones by one product, which is then cut: to cut its input would be a kernel."""
        if not (self.only_compiled and is_small(d_heads)):
            return super().context_gradients(d_heads, matrix, lengths)
        return tf.split(self.dot_columns(merge_heads(d_heads), matrix), lengths, axis=1)


def suits(scores: Scores, mask: tf.Tensor, drop: Drop) -> bool:
    """Whether there are kernels for these terms: those of a Transformer-XL, in a batch of known size."""
    position = scores.position
    if position is None or scores.places is not None or scores.absent is not None:
        return False
    masks = mask.shape.rank == 2 or (mask.shape.rank == 4 and mask.shape[1] == 1)
    shapes = masks and position.shape.rank == 3 and scores.query.shape.is_fully_defined()
    seeds = not drop.rate or (drop.seed is not None and drop.seed.shape.rank == 2)
    return shapes and seeds and scores.query.dtype != tf.float64


def attend(scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop) -> tf.Tensor:
    """As `ops.attend`."""
    from txl_tf.ops.fused import kernels  # only here is JAX needed

    batch, heads, t_len, width = scores.query.shape
    assert scores.position is not None  # as it `suits`
    k_len, positions = scores.key.shape[2], scores.position.shape[1]
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    masks = 1 if mask.shape.rank == 2 else batch
    sizes = kernels.Sizes(batch, heads, t_len, k_len, positions, width, masks, scores.causal, drop.rate, tf32)
    seen = tf.broadcast_to(tf.cast(mask if mask.shape.rank == 2 else mask[:, 0], tf.int8), [masks, t_len, k_len])
    seed = tf.bitcast(drop.seed, tf.uint32) if drop.rate else tf.zeros([batch, 2], tf.uint32)

    @custom_gradient
    def run(
        query: tf.Tensor, position_query: tf.Tensor, key: tf.Tensor, position: tf.Tensor, value: tf.Tensor
    ) -> WithGradient:
        inputs = [*map(_heads_and_rows, (query, position_query, key, position, value)), seen, seed]
        output, log_sum = call(kernels.output, sizes, inputs)

        def gradient(d_output: tf.Tensor) -> list[tf.Tensor]:
            with tf.name_scope(ATTENTION):
                known = [*inputs, output, log_sum, _heads_and_rows(d_output)]
                d_query, d_position_query = call(kernels.of_queries, sizes, known)
                d_key, d_value = call(kernels.of_keys, sizes, known)
                (d_parts,) = call(kernels.of_positions, sizes, known)
                d_position = tf.cast(tf.reduce_sum(d_parts, axis=0), position.dtype)
                return [*map(_heads_and_rows, (d_query, d_position_query, d_key, d_position, d_value))]

        return _heads_and_rows(output), gradient

    return run(scores.query, scores.position_query, scores.key, scores.position, value)


def call(kernel: Callable[..., None], sizes: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The results of a kernel of kernels.py."""
    from txl_tf.ops.fused import kernels

    forms = tuple((tuple(x.shape), x.dtype.name) for x in inputs)
    configuration, results = kernels.lowered(kernel, sizes, forms)
    return gen_xla_ops.xla_custom_call_v2(
        operands=inputs,
        call_target_name=kernels.TARGET,
        backend_config=configuration,
        has_side_effect=False,
        result_dtypes=[dtype for _, dtype in results],
        result_shapes=[shape for shape, _ in results],
    )


def _heads_and_rows(x: tf.Tensor) -> tf.Tensor:
    """[.., H, rows, d] <-> [.., rows, H, d]."""
    return tf.einsum("...hrd->...rhd", x)

"""Each implementation of each operation computes what the plain formula does, and has its gradients.

Inputs are rounded to the dtype first. The plain formula computes them in float64, so differences are the rounding of
the implementation alone; they are relative to the largest number of the exact result.
"""

import functools
import itertools
import typing
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.masks import visible_keys
from txl_tf.ops import Cluster, Drop, KeyValueRing, Scores
from txl_tf.ops.cpu import Cpu
from txl_tf.ops.few_rows import FewRows
from txl_tf.ops.fewer import FewerKernels
from txl_tf.ops.gpu import Gpu
from txl_tf.ops.plain import Plain
from txl_tf.ops.platform import Program
from txl_tf.ops.stored import LayerSlice, Stored, as_bits, stored
from txl_tf.ops.tpu import Tpu

B, H, D = 2, 3, 16
SEED = tf.constant([5, 6])
NO_DROP = Drop()

IMPLEMENTATIONS = {
    "cpu": (Cpu(Program("cpu", False, False)), False),
    "cpu-saved": (Cpu(Program("cpu", True, False)), True),
    "cpu-xla": (Cpu(Program("cpu", True, True)), True),
    "gpu": (Gpu(False), False),
    "gpu-xla": (Gpu(True), True),
    "gpu-fewer": (FewerKernels(True), True),
    "tpu": (Tpu(), True),
}
"""Each implementation, and whether XLA compiles it here."""

BOUND = {"float64": 2**-36, "float32": 64 * 2**-24, "bfloat16": 24 * 2**-8}
"""Largest error, relative to the largest number: that of one rounding, times the roundings on a result's way."""


class Case(typing.NamedTuple):
    """An operation: its inputs' shapes, and the call. The first `wanted` inputs have gradients; None: all."""

    shapes: list[list[int]]
    call: Callable[..., typing.Any]
    wanted: int | None = None


def attention(t_len, k_len, **changes):
    """The shapes of query, key, value, position query and positions."""
    shape = {"query": [B, H, t_len, D], "key": [B, H, k_len, D], "value": [B, H, k_len, D]}
    shape |= {"position_query": [B, H, t_len, D], "position": [H, k_len, D]}
    return list((shape | changes).values())


def causal(t_len, m_len, window=None, drop=NO_DROP, training=True):
    mask = visible_keys(t_len, m_len, window, tf.constant([m_len, m_len // 2]))

    def call(ops, query, key, value, position_query, position):
        position = ops.positions(position, query, training, None)
        return ops.attend(Scores(query, key, position_query, position), value, mask, drop)

    return Case(attention(t_len, m_len + t_len), call)


def both_ways(t_len, m_len, places=None, drop=NO_DROP, absent=None):
    """XLNet's scores: keys on both sides, directions; all rows, or those at some places."""
    k_len, draw = m_len + t_len, np.random.default_rng(1)
    backward, rows = tf.constant([True, False]), t_len
    if places is not None:
        places, rows = tf.constant(places), len(places[0])
    mask = tf.constant(draw.random([B, 1, rows, k_len]) < 0.7)
    if absent:
        absent = tf.constant(np.arange(k_len) < np.array([[0], [m_len]]))
        mask &= ~absent[:, None, None] & tf.constant(np.arange(rows) != 1)[:, None]  # row 1 sees nothing

    def call(ops, query, key, value, position_query, sine, cosine):
        position = ops.positions([sine, cosine], query, True, backward)
        scores = Scores(query, key, position_query, position, backward, causal=False, places=places, absent=absent)
        return ops.attend(scores, value, mask, drop)

    rows_of_positions = [H, k_len + t_len - 1, D]
    return Case([*attention(rows, k_len)[:4], rows_of_positions, rows_of_positions], call)


def ring(t_len, slots, oldest):
    mask = visible_keys(t_len, slots - t_len)

    def call(ops, query, key, value, position_query, position):
        return ops.attend_ring(Scores(query, key, position_query, position), value, mask, tf.constant(oldest))

    return Case(attention(t_len, slots), call, wanted=0)


def heads(m_len):
    shapes = [[B, 5, D], [D, H * 4], *([[B, m_len, D]] if m_len else [])]
    return Case(shapes, lambda ops, x, matrix, *memory: ops.heads(x, matrix, H, *memory))


def cluster_nll(ops, hidden, table, bias, projection):
    labels = tf.constant([0, -1, 5, 39, -1, 7, 7, 2] * 5)
    return ops.cluster_nll(hidden, labels, Cluster(table, bias, projection))


def lookup(own):
    rows = tf.constant([[0, 3, 3, 9], [8, 1, 0, 2]])
    own = tf.constant([[True, True, False, True], [False, True, True, True]]) if own else None

    def call(ops, table):
        return ops.lookup(table, rows, table.dtype.name, own)

    return Case([[10, D]], call)


def write(t_len, slots, start, block):
    def call(ops, keys, values, key, value):
        return ops.write(KeyValueRing(keys, values, tf.constant(start)), key, value, block)

    return Case([[B, H, slots, D]] * 2 + [[B, H, t_len, D]] * 2, call, wanted=0)


CASES = {
    "attend": causal(5, 3),
    "attend without memory": causal(5, 0),
    "attend in blocks": causal(140, 20),
    "attend in whole tiles": causal(128, 128),
    "attend in a window": causal(140, 20, window=21),
    "attend, evaluated": causal(9, 7, training=False),
    "attend with dropout": causal(140, 20, drop=Drop(0.3, SEED)),
    "attend with a seed for each lane": causal(6, 3, drop=Drop(0.3, tf.constant([[1, 2], [3, 4]]))),
    "attend both ways": both_ways(9, 4),
    "attend both ways in tiles, with dropout": both_ways(130, 6, drop=Drop(0.3, SEED)),
    "attend at places": both_ways(130, 6, places=[[0, 129, 5, 5], [64, 1, 128, 127]], drop=Drop(0.3, SEED)),
    "attend with absent keys": both_ways(130, 6, absent=True),
    "attend to a ring": ring(1, 32, 5),
    "attend to a ring, a segment": ring(4, 32, 8),
    "attend to a ring of tiles": ring(128, 256, 128),
    "heads": heads(0),
    "heads with memory": heads(6),
    "rows by head": Case([[7, D], [D, H, 4]], lambda ops, rows, kernel: ops.rows_by_head(rows, kernel)),
    "dot": Case([[B, 5, D], [D, 12]], lambda ops, x, matrix: ops.dot(x, matrix)),
    "dense": Case([[B, 5, D], [D, 12], [12]], lambda ops, x, matrix, bias: ops.dense(x, matrix, bias)),
    "layer norm": Case([[B, 5, D], [D], [D]], lambda ops, x, gamma, beta: layer_norm(ops, x, gamma, beta)),
    "layer norm of long segments": Case([[B, 130, D], [D], [D]], lambda ops, *inputs: layer_norm(ops, *inputs)),
    "lookup": lookup(False),
    "lookup of a cluster": lookup(True),
    "logits": Case(
        [[B, 5, D], [40, 8], [40], [8, D]], lambda ops, x, *weights: ops.cluster_logits(x, Cluster(*weights))
    ),
    "cluster nll": Case([[40, D], [40, 8], [40], [8, D]], cluster_nll),
    "halved squares": Case([[64, 256], [7], [64, 256]], lambda ops, *given: ops.halved_squares(given)),
    "write a token": write(1, 256, 255, 1),
    "write a token, any slots": write(1, 33, 32, 1),
    "write a segment": write(4, 32, 28, 4),
    "write a segment, round the end": write(4, 32, 30, 1),
    "write tiles": write(128, 256, 128, 128),
}


def layer_norm(ops, x, gamma, beta):
    accurate = tf.float64 if x.dtype == tf.float64 else tf.float32
    return ops.layer_norm(x, tf.cast(gamma, accurate), tf.cast(beta, accurate), 1e-5)


def results(ops, case, inputs, compiled):
    """All results of a call, and the gradients of the inputs in one direction."""
    wanted = inputs[: len(inputs) if case.wanted is None else case.wanted]

    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = [out for out in tf.nest.flatten(case.call(ops, *inputs)) if out.dtype.is_floating]
            slope = 0.0
            for out in found:
                direction = np.random.default_rng(2).normal(size=out.shape)
                slope += tf.reduce_sum(tf.cast(out, tf.float64) * tf.cast(tf.cast(direction, out.dtype), tf.float64))
        return found, tape.gradient(slope, list(inputs[: len(wanted)])) if wanted else []

    found, gradients = tf.function(run, jit_compile=compiled, autograph=False)(*inputs)
    return [tf.cast(x, tf.float64).numpy() for x in (*found, *map(tf.convert_to_tensor, gradients))]


def drawn(case, dtype):
    draw = np.random.default_rng(0)
    return [tf.cast(draw.normal(size=shape), dtype) for shape in case.shapes]


@functools.cache
def exact_results(name, dtype):
    return results(Plain(), CASES[name], [tf.cast(x, tf.float64) for x in drawn(CASES[name], dtype)], compiled=False)


def each():
    """All implementations, dtypes and cases; what is compiled for float32 is slow, and says little beside float64."""
    for (kind, (_, compiled)), dtype, name in itertools.product(IMPLEMENTATIONS.items(), BOUND, CASES):
        marks = [pytest.mark.xla] if compiled else []
        marks += [pytest.mark.slow] if (compiled and dtype == "float32") or kind == "cpu-saved" else []
        yield pytest.param(kind, dtype, name, marks=marks)


@pytest.mark.parametrize(("kind", "dtype", "name"), each())
def test_it_computes_the_formula_and_its_gradients(kind, dtype, name):
    implementation, compiled = IMPLEMENTATIONS[kind]
    found = results(implementation, CASES[name], drawn(CASES[name], dtype), compiled)
    for got, wanted in zip(found, exact_results(name, dtype), strict=True):
        assert np.abs(got - wanted).max() <= BOUND[dtype] * np.abs(wanted).max()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", BOUND)
def test_single_rows_on_a_cpu(dtype, batch):
    """Matrices, keys, values and positions of a layer among those of all."""
    draw, cpu, plain = np.random.default_rng(0), FewRows(Program("cpu", False, False)), Plain()

    def numbers(*shape):
        x = tf.cast(draw.normal(size=shape), dtype)
        return x, tf.cast(x, tf.float64)

    layer = tf.constant(1)
    matrices, exact_matrices = numbers(2, D, 12)
    x, exact_x = numbers(batch, 1, D)
    bias, exact_bias = numbers(12)
    matrix = LayerSlice(stored(tf.unstack(matrices)), layer)
    pairs = [(cpu.dense(x, matrix, bias), plain.dense(exact_x, exact_matrices[1], exact_bias))]

    query, exact_query = numbers(batch, H, 1, D)
    position_query, exact_position_query = numbers(batch, H, 1, D)
    (keys, exact_keys), (values, exact_values) = (numbers(2, batch, H, 32, D) for _ in range(2))
    positions, exact_positions = numbers(2, H, 32, D)
    key, value, position = (LayerSlice(Stored(as_bits(kept)), layer) for kept in (keys, values, positions))
    mask, oldest = visible_keys(1, 31, window=20), tf.constant(5)
    exact_scores = Scores(exact_query, exact_keys[1], exact_position_query, exact_positions[1])
    pairs.append(
        (
            cpu.attend_ring(Scores(query, key, position_query, position), value, mask, oldest),
            plain.attend_ring(exact_scores, exact_values[1], mask, oldest),
        )
    )
    for got, wanted in pairs:
        difference = np.abs(tf.cast(got, tf.float64) - wanted).max()
        assert difference <= BOUND[dtype] * np.abs(wanted).max()

"""The cases of the operations' contract: inputs, calls, the exact results, and how much an implementation may differ.

tests/ops/test_contract.py tries every implementation on a CPU with them, tpu/first_run.py the operations on a TPU.
Inputs are rounded to the dtype first. The plain formula computes them in float64, so differences are the rounding of
the implementation alone; they are relative to the largest number of the exact result.
"""

import functools
import typing
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from txl_tf.layers.masks import visible_keys
from txl_tf.ops import Cluster, Drop, KeyValueRing, Scores
from txl_tf.ops.plain import Plain

B, H, D = 2, 3, 16
SEED = tf.constant([5, 6])
NO_DROP = Drop()

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


def results(name, ops, *inputs):
    """All results of a case, and the gradients of its inputs in one direction: a list of tensors."""
    call, wanted = CASES[name].call, inputs[: CASES[name].wanted]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = [out for out in tf.nest.flatten(call(ops, *inputs)) if out.dtype.is_floating]
    directions = [tf.cast(np.random.default_rng(2).normal(size=out.shape), out.dtype) for out in found]
    gradients = tape.gradient(found, wanted, directions) if wanted else []
    return [*found, *map(tf.convert_to_tensor, gradients)]


def drawn(name, dtype):
    """The inputs of a case."""
    draw = np.random.default_rng(0)
    return [tf.cast(draw.normal(size=shape), dtype) for shape in CASES[name].shapes]


PLAIN = Plain()
formula = tf.function(results, autograph=False)  # one function, or each dtype's inputs would trace a case anew


@functools.cache
def exact_results(name, dtype):
    """Those of the formula in float64, for the same inputs."""
    inputs = [tf.cast(x, tf.float64) for x in drawn(name, dtype)]
    return [x.numpy() for x in formula(name, PLAIN, *inputs)]


def error(found, exact):
    """The largest difference of tensors from the exact ones, relative to the largest number of each."""
    pairs = zip(found, exact, strict=True)
    return max(np.abs(tf.cast(got, tf.float64).numpy() - wanted).max() / np.abs(wanted).max() for got, wanted in pairs)

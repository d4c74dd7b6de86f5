"""Blocks, turned tiles and the hand-written gradient against the plain formula and TensorFlow's own gradients."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.masks import rows_at, visible_keys
from txl_tf.ops import Drop, Scores, cpu, gpu, tpu_attention
from txl_tf.ops.plain import added
from txl_tf.ops.platform import Program
from txl_tf.ops.scores import NO_DROP, TILE, keep_mask
from txl_tf.ops.shift import relative_shift
from txl_tf.ops.tpu import Tpu
from txl_tf.ops.tpu_attention import rotated_scores, shifted_scores

B, H, D = 2, 3, 4
SEED = tf.constant([5, 6])


def plain(query, key, value, mask, position_query, position, rate, first_rows):
    """Everything at once, differentiated by TensorFlow; each block's dropout mask is the layer's own."""
    score = tf.einsum("bhtd,bhkd->bhtk", query, key)
    score += relative_shift(tf.einsum("bhtd,hkd->bhtk", position_query, position))
    probability = tf.nn.softmax(tf.where(mask, score, -1e30))
    if rate:
        t_len, k_len = score.shape[2:]
        kept = []
        for first in first_rows:
            last = min(first + TILE, t_len)
            seen = k_len - t_len + last
            block = keep_mask([B, H, last - first, seen], rate, tf.add(SEED, [0, first]))
            kept.append(tf.pad(block, [[0, 0]] * 3 + [[0, k_len - seen]]))
        probability = tf.where(tf.concat(kept, 2), probability / (1 - rate), 0)
    return tf.einsum("bhtk,bhkd->bhtd", probability, value)


KINDS = {
    "kernels": cpu.Cpu(Program("cpu", False, False)),
    "XLA": cpu.Cpu(Program("cpu", True, False)),
    "GPU": gpu.Gpu(False),
    "TPU": Tpu(),
}


@pytest.mark.parametrize("t_len, m_len", [(3, 5), (TILE, 0), (TILE + 2, 7), (2 * TILE, TILE), (gpu.ROWS + 2, 7)])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_equal_the_whole_with_all_gradients(rng, t_len, m_len, rate, kind):
    """A TPU has its own way to join the blocks' gradients, a GPU larger blocks, XLA for CPU its own products."""
    k_len = m_len + t_len
    shapes = [[B, H, t_len, D], [B, H, k_len, D], [B, H, k_len, D], [B, H, t_len, D], [H, k_len, D]]
    query, key, value, position_query, position = inputs = [tf.constant(rng.normal(size=shape)) for shape in shapes]
    mask = visible_keys(t_len, m_len, valid=tf.constant([m_len, 0]))
    direction = rng.normal(size=shapes[0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        positions = KINDS[kind].positions(position, query, kind in ("GPU", "XLA"), None)
        scores = Scores(query, key, position_query, positions)
        got = KINDS[kind].attend(scores, value, mask, Drop(rate, SEED))
        want = plain(query, key, value, mask, position_query, position, rate, range(0, t_len, TILE))
        slopes = [tf.reduce_sum(output * direction) for output in (got, want)]
    np.testing.assert_allclose(got, want, atol=1e-12)
    for mine, autodiff in zip(tape.gradient(slopes[0], inputs), tape.gradient(slopes[1], inputs), strict=True):
        np.testing.assert_allclose(mine, autodiff, atol=1e-10)


@pytest.mark.xla
def test_a_compiled_gradient_is_that_of_the_kernels(rng):
    shapes = [[B, H, 3, D], [B, H, 5, D], [B, H, 5, D], [B, H, 3, D], [B, H, 5, D]]
    inputs = [tf.constant(rng.normal(size=shape)) for shape in shapes]
    direction, programs = rng.normal(size=shapes[0]), []

    def gradients(query, key, value, position_query, position):
        programs.append(ops.platform.program())
        with tf.GradientTape() as tape:
            tape.watch(inputs := [query, key, value, position_query, position])
            output = ops.attend(Scores(query, key, position_query, position), value, visible_keys(3, 2))
        return tape.gradient(output, inputs, direction)

    compiled, graph = (tf.function(gradients, jit_compile=jit)(*inputs) for jit in (True, False))
    assert [program.compiled for program in programs] == [True, False]
    for one, other in zip(compiled, graph, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("t_len", [2, 100, TILE])
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("tiles", [1, 2])
def test_turning_tiles_by_matmul_is_the_relative_shift(rng, t_len, extra, tiles):
    """A TPU's way in bfloat16, bit for bit, and its gradient; `extra`: with rows that wrapped keys meet."""
    k_len = tiles * TILE
    rows = k_len + extra * (t_len - 1)
    query = tf.constant(rng.integers(-3, 4, size=[B, H, t_len, D]), tf.bfloat16)
    position = tf.constant(rng.integers(-3, 4, size=[H, rows, D]), tf.bfloat16)
    index = np.arange(k_len) + t_len - 1 - np.arange(t_len)[:, None]  # position's row for query i and key j
    exists = index < rows
    direction = tf.where(exists, tf.constant(rng.integers(-3, 4, size=[B, H, t_len, k_len]), tf.float32), 0)
    results = []
    for dtype in (tf.bfloat16, tf.float64):
        q, p = (tf.cast(x, dtype) for x in (query, position))
        with tf.GradientTape() as tape:
            tape.watch([q, p])
            score = shifted_scores(q, p, k_len)
            slope = tf.reduce_sum(tf.cast(score, tf.float32) * direction)
        results.append([tf.where(exists, score, tf.zeros([], score.dtype)), *tape.gradient(slope, [q, p])])
    for turned, shifted in zip(*results, strict=True):
        np.testing.assert_allclose(tf.cast(turned, tf.float64), shifted, rtol=2**-7, atol=0)
    all_pairs = tf.einsum("bhtd,hkd->bhtk", query, position)
    looked_up = tf.experimental.numpy.take_along_axis(all_pairs, np.where(exists, index, 0)[None, None], axis=3)
    np.testing.assert_array_equal(results[0][0], tf.where(exists, tf.cast(looked_up, tf.float32), 0))


def two_blocks():
    """The output of two blocks in bfloat16, as a TPU computes it, and its gradients."""
    rng = np.random.default_rng(0)
    t_len, k_len = 2 * TILE, 3 * TILE
    shapes = [[B, H, t_len, D], [B, H, k_len, D], [B, H, k_len, D], [B, H, t_len, D], [H, k_len, D]]
    inputs = [tf.constant(rng.integers(-2, 3, size=shape), tf.bfloat16) for shape in shapes]
    direction = tf.constant(rng.integers(-2, 3, size=[B, H, t_len, D]), tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        query, key, value, position_query, position = inputs
        scores = Scores(query, key, position_query, position)
        output = Tpu().attend(scores, value, visible_keys(t_len, k_len - t_len), NO_DROP)
    return [tf.cast(x, tf.float32) for x in (output, *tape.gradient(output, inputs, direction))]


def test_blocks_with_few_keys_see_more_of_them_on_a_tpu_to_no_effect(monkeypatch):
    """The second block's keys, which the mask hides from the first: output and gradients as without them."""
    results = []
    for fewest_tiles in (1, 5):
        monkeypatch.setattr(tpu_attention, "FEWEST_TILES", fewest_tiles)
        results.append(two_blocks())
    for few, more in zip(*results, strict=True):
        np.testing.assert_allclose(more, few, rtol=0.02, atol=0.02)


def test_scores_are_float32_on_a_tpu_if_a_block_fits_into_fast_memory_or_all_of_them_do_not(monkeypatch):
    """Between the two they are bfloat16, and the results less exact."""
    block_fits = two_blocks()
    monkeypatch.setattr(tpu_attention, "WIDEST", 0)
    all_fit = two_blocks()
    monkeypatch.setattr(tpu_attention, "FAST_MEMORY", 0)
    nothing_fits = two_blocks()
    for wide, narrow, large in zip(block_fits, all_fit, nothing_fits, strict=True):
        np.testing.assert_array_equal(large, wide)
        np.testing.assert_allclose(narrow, wide, rtol=0.02, atol=0.02 * np.abs(wide).max())
    assert np.any(all_fit[0] != block_fits[0])


@pytest.mark.parametrize("dtype, rounding", [(tf.bfloat16, 2**-7), (tf.float32, 1e-5)])
def test_long_rows_have_the_gradient_of_the_formula_on_a_tpu(rng, dtype, rounding):
    """The numbers kept for the gradient have the values' dtype: twice the rounding of bfloat16, none in float32."""
    k_len = tpu_attention.MOST_WIDE_KEYS + TILE
    score = tf.constant(rng.normal(size=[B, H, 5, k_len]), tf.float32)
    value = tf.cast(rng.normal(size=[B, H, k_len, D]), dtype)
    direction = tf.cast(rng.normal(size=[B, H, 5, D]), dtype)
    keep = tf.constant(rng.random([B, H, 5, k_len]) < 0.8)
    mask = tf.constant(rng.random([5, k_len]) < 0.7)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([score, value])
        output = Tpu().weighted_values(score, value, added(mask, None, tf.float32), 0.2, lambda shape: keep)
        exact_value = tf.cast(value, tf.float64)
        probability = tf.nn.softmax(tf.where(mask, tf.cast(score, tf.float64), -1e30))
        want = tf.einsum("bhtk,bhkd->bhtd", tf.where(keep, probability / 0.8, 0), exact_value)
        slopes = [tf.reduce_sum(tf.cast(x, tf.float64) * tf.cast(direction, tf.float64)) for x in (output, want)]
    for mine, exact in zip(*(tape.gradient(slope, [score, value]) for slope in slopes), strict=True):
        mine, exact = (np.array(tf.cast(x, tf.float64)) for x in (mine, exact))
        assert np.linalg.norm(mine - exact) < rounding * np.linalg.norm(exact)


def test_a_row_that_sees_nothing_is_finite(rng):
    query, key, value = (tf.constant(rng.normal(size=[B, H, 2, D])) for _ in range(3))
    with tf.GradientTape() as tape:
        tape.watch(query)
        output = ops.attend(Scores(query, key), value, tf.zeros([2, 2], bool))
    assert np.isfinite(output).all() and np.isfinite(tape.gradient(output, query)).all()


@pytest.mark.parametrize("t_len, m_len", [(5, 3), (TILE + 2, 4)])
@pytest.mark.parametrize("lane_seeds", [True, False])
def test_some_rows_are_those_of_all_rows_with_dropout(rng, t_len, m_len, lane_seeds):
    """Any number of rows at any places, one of them twice: output and gradients, bit for bit the same dropout."""
    k_len = m_len + t_len
    places = tf.constant([[0, t_len - 1, 2, 2, t_len // 2], [1, 0, t_len - 2, 3, t_len - 1]])
    shapes = [[B, H, t_len, D], [B, H, k_len, D], [B, H, k_len, D], [B, H, t_len, D], [B, H, k_len + t_len - 1, D]]
    inputs = [tf.constant(rng.normal(size=shape)) for shape in shapes]
    mask = tf.constant(rng.random([1, 1, t_len, k_len]) < 0.6)
    direction = rng.normal(size=[B, H, places.shape[1], D])
    drop = Drop(0.4, tf.constant([[5, 6], [7, 8]]) if lane_seeds else SEED)
    results = []
    for some in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            query, key, value, position_query, position = inputs
            if some:
                query, position_query = (rows_at(x, places) for x in (query, position_query))
            scores = Scores(query, key, position_query, position, causal=False)
            scores = dataclasses.replace(scores, places=places if some else None)
            output = ops.attend(scores, value, rows_at(mask, places) if some else mask, drop)
            output = output if some else tf.gather(output, places, axis=2, batch_dims=1)
        results.append([output, *tape.gradient(output, inputs, direction)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("t_len", [TILE, 3 * TILE + 5])
def test_rotated_rows_at_any_places_are_the_shift_of_single_rows(rng, t_len):
    """A TPU's way, for rows that move by several tiles, in float64, and its gradient."""
    k_len = 4 * TILE
    places = tf.constant(rng.integers(0, t_len, size=[B, 7]), tf.int32)
    inputs = [tf.constant(rng.normal(size=shape)) for shape in ([B, H, 7, D], [H, k_len + t_len - 1, D])]
    direction = rng.normal(size=[B, H, 7, k_len])
    results = []
    for method in (rotated_scores, plain_rows):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            score = method(*inputs, k_len, places)
        results.append([score, *tape.gradient(score, inputs, direction)])
    for rotated, shifted in zip(*results, strict=True):
        np.testing.assert_allclose(rotated, shifted, rtol=0, atol=1e-12)


def plain_rows(query, position, k_len, places):
    """Each query times its own K positions, looked up."""
    index = np.arange(k_len) + position.shape[-2] - k_len - places.numpy()[..., None]
    return tf.einsum("bhpd,hbpkd->bhpk", query, tf.gather(position, index, axis=1))

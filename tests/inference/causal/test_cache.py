"""The cache against the model with mems."""

import dataclasses
import functools
import time

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model

from txl_tf.inference.generation.few_rows import RUNS
from txl_tf.inference.generation.readers import FewTexts, ManyTexts
from txl_tf.models.transformer_xl.cached import CachedDecoder
from txl_tf.models.transformer_xl.config import EvalConfig, Reach
from txl_tf.objectives.causal_lm import CausalScorer
from txl_tf.ops import platform

ON_CPU = platform.program().target == "cpu"

SEGMENTS = (4, 4, 1, 1, 3, 4, 2, 1, 4, 4, 4, 4)  # 36 tokens: rings of 13 slots wrap more than twice, also mid-segment
REACHES = [
    Reach(9),
    Reach(9, clamp_len=5),
    Reach(9, same_length=True),
    Reach(9, same_length=True, same_length_window="pytorch", mem_init="empty"),
    Reach(9, clamp_len=3, mem_init="empty"),
    Reach(9, clamp_len=2, same_length=True),
    Reach(0),
]


def in_a_graph(model, reach):
    """The model with mems, (segment, mems) -> (hidden, mems), traced once for each length of a segment."""
    return tf.function(lambda segment, mems: model(segment, mems, reach=reach), autograph=False)


@functools.cache
def read_both(model, reach, jit_compile=False, segments=SEGMENTS, at_once=1):
    """Hidden states [B, sum(segments), D] by the model with mems, and by the cache, which reads `at_once` segments."""
    tokens = np.random.default_rng(1).integers(0, 256, [2, sum(segments)]).astype(np.int32)
    whole = len(set(segments)) == 1
    decoder = CachedDecoder(model, reach, at_once * max(segments), whole_segments=whole, segments=at_once)
    read = tf.function(decoder, jit_compile=jit_compile, reduce_retracing=False, autograph=False)
    step = in_a_graph(model, reach)
    mems, cache = model.initial_mems(2, reach), decoder.initial_cache(2)
    expected, found = [], []
    parts = np.split(tokens, np.cumsum(segments)[:-1], axis=1)
    for segment in parts:
        hidden, mems = step(tf.constant(segment), mems)
        expected.append(hidden)
    for first in range(0, len(parts), at_once):
        hidden, cache = read(tf.constant(np.concatenate(parts[first : first + at_once], axis=1)), cache)
        found.append(hidden)
    return np.concatenate(expected, axis=1), np.concatenate(found, axis=1)


@pytest.fixture(scope="module")
def exact_model():
    return random_model(dataclasses.replace(CONFIG, dtype="float64", untie_r=True))


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_the_cache_equals_the_mems(exact_model, reach):
    expected, found = read_both(exact_model, reach)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


FORMS = [{"untie_r": True}, {}, {"pre_lnorm": True, "activation": "gelu"}]
EXACT = [(REACHES[1], "float64", False, 1), (REACHES[3], "float64", False, 3)]
ROUNDED = [
    (REACHES[1], "float32", False, 2),
    (REACHES[3], "mixed_bfloat16", False, 3),
    (REACHES[1], "float32", True, 2),
    (REACHES[3], "float32", False, 1),
    (REACHES[1], "mixed_bfloat16", False, 1),
    (REACHES[3], "float32", True, 1),
]


@pytest.mark.parametrize(
    ("form", "reach", "dtype", "int8", "texts"),
    [
        *((form, *case) for form in FORMS for case in EXACT),
        *((FORMS[0], *case) for case in ROUNDED[:3]),
        *(pytest.param(FORMS[0], *case, marks=pytest.mark.slow) for case in ROUNDED[3:]),
        *(pytest.param(form, *case, marks=pytest.mark.slow) for form in FORMS[1:] for case in ROUNDED),
    ],
    ids=str,
)
def test_a_few_texts_token_by_token(form, reach, dtype, int8, texts):
    """In a ring of 32 slots, which goes round once; the matrices in the form for one row, whatever the dtype.

    In int8 the result is that of the model with the rounded weights.
    """
    model = random_model(dataclasses.replace(CONFIG, dtype=dtype, **form))
    if int8:
        model.round_to_int8()
    decoder = CachedDecoder(model, reach, max_segment=20, multiple=RUNS)
    assert decoder.slots == 32
    tokens = np.random.default_rng(1).integers(0, 256, [texts, 40]).astype(np.int32)
    mems, reader = model.initial_mems(texts, reach), FewTexts(decoder, int8)
    weights, cache = reader.weights(reader.packed()), reader.begin(decoder.initial_cache(texts))
    step, read = in_a_graph(model, reach), tf.function(functools.partial(reader.read, weights), autograph=False)
    expected, found = [], []
    for i, token in enumerate(map(tf.constant, np.split(tokens, 40, axis=1))):
        hidden, mems = step(token, mems)
        expected.append(tf.cast(hidden, tf.float64))
        hidden, cache = read(tf.constant(i), token, cache)
        if i == 20:
            cache = reader.begin(reader.end(cache))
        found.append(tf.cast(hidden, tf.float64))
    largest = np.abs(np.array(found) - expected)
    if "pre_lnorm" in form:  # no norm comes last
        largest /= np.abs(expected).mean() if dtype == "mixed_bfloat16" else np.abs(expected).max()
    if dtype == "mixed_bfloat16":
        assert largest.mean() < 0.05
    else:
        assert largest.max() < (1e-11 if dtype == "float64" else 2e-5)


def test_several_texts_token_by_token_in_bfloat16():
    """With the positions in the form for one query of each text."""
    model = random_model(dataclasses.replace(CONFIG, dtype="mixed_bfloat16", untie_r=True))
    decoder = CachedDecoder(model, REACHES[1], max_segment=1, multiple=RUNS)
    tokens = np.random.default_rng(1).integers(0, 256, [40, 3, 1]).astype(np.int32)
    mems, reader = model.initial_mems(3, REACHES[1]), ManyTexts(decoder, rows=True)
    weights, cache = reader.weights(), reader.begin(decoder.initial_cache(3))
    step, read = in_a_graph(model, REACHES[1]), tf.function(functools.partial(reader.read, weights), autograph=False)
    differences = []
    for i, token in enumerate(map(tf.constant, tokens)):
        expected, mems = step(token, mems)
        found, cache = read(tf.constant(i), token, cache)
        differences.append(np.abs(tf.cast(found - expected, tf.float32)))
    assert np.mean(differences) < 0.05


def test_whole_segments_are_written_in_blocks(exact_model):
    expected, found = read_both(exact_model, Reach(12, clamp_len=5), segments=(8,) * 6)  # 20 slots in blocks of 4
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_several_segments_at_once_are_read_as_one_after_another(exact_model, reach):
    """Three of 4 tokens, in a ring of 128 slots, which goes round once; each sees as far back as by itself."""
    expected, found = read_both(exact_model, reach, segments=(4,) * 39, at_once=3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("mem_init", ["zeros", "empty"])
def test_the_cache_equals_the_mems_with_norms_first(mem_init):
    """Under pre-LN the zero vectors of an empty memory have keys and values that are not zero."""
    model = random_model(dataclasses.replace(CONFIG, dtype="float64", pre_lnorm=True, activation="gelu"))
    expected, found = read_both(model, Reach(9, mem_init=mem_init))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_a_layer_is_traced_once_and_again_for_a_tpu(exact_model):
    """All layers call one function of the program, and another one for a TPU, since its layer norms differ."""
    decoder = CachedDecoder(exact_model, Reach(9), max_segment=4)
    cache = decoder.initial_cache(1)

    def operations():
        read = tf.function(lambda tokens, cache: decoder(tokens, cache))
        graph = read.get_concrete_function(tf.constant([[1, 2, 3, 4]]), cache).graph.as_graph_def()
        assert len(graph.library.function) == 1
        return {node.op for node in graph.library.function[0].node_def}

    on_cpu = operations()
    with platform.traced_for("tpu"):
        assert operations() != on_cpu
    assert operations() == on_cpu


@pytest.mark.xla
def test_in_bfloat16_rings_are_whole_tiles(on_device):
    """127 tokens at once, to go round the ring of 128 slots soon; the model with mems shifts, the cache turns tiles."""
    on_device("tpu")
    model = random_model(dataclasses.replace(CONFIG, dtype="mixed_bfloat16"))
    expected, found = read_both(model, Reach(9), segments=(100, 4, 19, 4, 4, 1, 3))
    assert CachedDecoder(model, Reach(9), max_segment=100).slots == 128
    expected, found = expected.astype(np.float64), found.astype(np.float64)  # NumPy's mean of bfloat16 is in bfloat16
    assert np.abs(found - expected).mean() < 0.1 * np.abs(expected).mean()


@pytest.mark.xla
@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16"])
def test_a_tpu_writes_whole_tiles_of_a_ring_in_place(monkeypatch, on_device, dtype):
    """Twice around a ring of two tiles; sums of probabilities are products, and bfloat16 scores are rotated."""
    on_device("tpu")
    model = random_model(dataclasses.replace(CONFIG, dtype=dtype, n_layer=1))
    with monkeypatch.context() as patch:
        patch.setattr(tf, "tensor_scatter_nd_update", None)
        expected, found = read_both(model, Reach(128, clamp_len=40), jit_compile=True, segments=(128,) * 4)
    expected, found = expected.astype(np.float64), found.astype(np.float64)  # NumPy's mean of bfloat16 is in bfloat16
    difference = np.abs(found - expected)
    assert difference.max() < 1e-10 if dtype == "float64" else difference.mean() < 0.05 * np.abs(expected).mean()


def test_every_reach_gives_something_else(exact_model):
    """So the test above would notice if the cache ignored one of the settings."""
    results = [read_both(exact_model, reach)[1] for reach in REACHES]
    for i, one in enumerate(results):
        for other in results[:i]:
            assert np.abs(one - other).max() > 1e-4


@pytest.mark.xla
def test_float32_under_xla_differs_by_rounding_only():
    expected, found = read_both(random_model(CONFIG), Reach(9, clamp_len=5, mem_init="empty"), jit_compile=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_bfloat16_stays_close():
    model = random_model(dataclasses.replace(CONFIG, dtype="mixed_bfloat16"))
    expected, found = read_both(model, Reach(9))
    assert found.dtype == expected.dtype == tf.bfloat16.as_numpy_dtype
    assert np.abs(found.astype(np.float32) - expected.astype(np.float32)).mean() < 0.05


def test_pre_lnorm_starts_from_the_norms_beta():
    model = random_model(dataclasses.replace(CONFIG, dtype="float64", pre_lnorm=True))
    expected, found = read_both(model, Reach(9))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.xla
def test_xla_compiles_a_segment_once_wherever_the_ring_begins():
    """With a slice that began at the ring's start, XLA made a program for each start."""
    decoder = CachedDecoder(random_model(CONFIG), Reach(60), max_segment=4, whole_segments=True)
    read, cache, seconds = tf.function(decoder, jit_compile=True), decoder.initial_cache(2), []
    for _ in range(16):
        start = time.perf_counter()
        _, cache = read(tf.zeros([2, 4], tf.int32), cache)
        cache.keys[0].numpy()
        seconds.append(time.perf_counter() - start)
    assert np.median(seconds[1:]) < 0.1 * seconds[0]


CLUSTERED = dataclasses.replace(CONFIG, cutoffs=(20, 60), div_val=2)
INPUTS, TARGETS = tf.constant([[1, 2, 3]]), tf.constant([[2, 40, 255]])


def scorer(model):
    return CausalScorer(model, EvalConfig(tgt_len=3), Reach(9))


def nll(scorer):
    return scorer((INPUTS, TARGETS), scorer.initial_state(1)).nll


@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16"])
def test_refresh_follows_the_weights(dtype):
    """In bfloat16 the scorer keeps the weights that it has cast."""
    model = random_model(dataclasses.replace(CLUSTERED, dtype=dtype))
    cached = scorer(model)
    for variable in model.trainable_variables:
        variable.assign(variable * 1.5)
    expected = nll(scorer(model))
    assert np.abs(nll(cached) - expected).max() > 1e-3
    cached.refresh()
    np.testing.assert_array_equal(nll(cached), expected)


@pytest.mark.parametrize("int8", [False, True])
def test_packed_weights_stay_until_they_are_refreshed_or_freed(int8):
    model = random_model(dataclasses.replace(CLUSTERED, dtype="float64"))
    decoder = CachedDecoder(model, Reach(9), max_segment=4, multiple=RUNS)
    reader = FewTexts(decoder, int8)
    before = tf.nest.map_structure(np.array, reader.packed())
    for variable in model.trainable_variables:
        variable.assign(variable * 1.5)
    decoder.positions.refresh()
    tf.nest.map_structure(np.testing.assert_array_equal, reader.packed(), before)
    for part in reader.parts():
        part.refresh()
    kind = "scales" if int8 else "numbers"
    for _ in range(2):
        after = reader.packed()
        for old, new in zip(before.matrices, after.matrices, strict=True):
            np.testing.assert_allclose(getattr(new, kind), 1.5 * getattr(old, kind), rtol=1e-12)
        np.testing.assert_allclose(after.positions.numbers, 1.5 * before.positions.numbers, rtol=1e-12)
        handles = [resource.resource_handle for part in reader.parts() for resource in part.resources()]
        for part in reader.parts():
            part.free()
    with pytest.raises(tf.errors.FailedPreconditionError):
        tf.raw_ops.ReadVariableOp(resource=handles[0], dtype=after.matrices[0].numbers.dtype)


@pytest.mark.parametrize(
    ("dtype", "int8", "texts"), [("float64", False, 1), ("float32", False, 3), ("float32", True, 2)]
)
def test_a_softmax_with_clusters_is_that_of_the_model(dtype, int8, texts):
    """In int8 it is that of the model with the rounded weights."""
    model = random_model(dataclasses.replace(CLUSTERED, dtype=dtype))
    if int8:
        model.round_to_int8()
    decoder = CachedDecoder(model, Reach(9), max_segment=4, multiple=RUNS)
    hidden = tf.cast(np.random.default_rng(0).normal(size=[texts, model.config.d_model]), dtype)
    reader = FewTexts(decoder, int8)
    found = reader.log_prob(reader.weights(reader.packed()), tf.constant(5), hidden)
    np.testing.assert_allclose(found, model.log_prob(hidden), rtol={"float64": 1e-12, "float32": 1e-5}[dtype])


@pytest.mark.skipif(not ON_CPU, reason="only a CPU keeps tables for single rows")
@pytest.mark.parametrize("int8", [False, True])
def test_a_softmax_with_clusters_in_bfloat16_is_that_of_the_model(int8):
    """Two tables with projections and the entries of their clusters, kept for one row and for several.

    Single rows are compared in float32: a CPU without instructions for bfloat16 rounds several rows' sums to it.
    """
    model = random_model(dataclasses.replace(CLUSTERED, dtype="mixed_bfloat16"))
    if int8:
        model.round_to_int8()
    exact = random_model(dataclasses.replace(CLUSTERED, dtype="float32"))
    exact.set_weights(model.get_weights())
    decoder = CachedDecoder(model, Reach(9), max_segment=4, multiple=RUNS)
    many, few = ManyTexts(decoder, rows=True), FewTexts(decoder, int8)
    assert int8 == (few.packed().clusters[0].table.numbers.dtype == tf.int8)
    hidden = tf.cast(np.random.default_rng(0).normal(size=[3, model.config.d_model]), tf.bfloat16)
    step = tf.constant(5)
    np.testing.assert_array_equal(many.log_prob(many.weights(), step, hidden), model.log_prob(hidden))
    found = few.log_prob(few.weights(few.packed()), step, hidden)
    for row, of_row in zip(found, exact.log_prob(tf.cast(hidden, tf.float32)), strict=True):
        np.testing.assert_allclose(row, of_row, atol=2**-8 * np.abs(of_row).max())


def test_kept_weights_are_those_that_each_call_would_make():
    model = random_model(dataclasses.replace(CLUSTERED, dtype="mixed_bfloat16"))
    decoder = CachedDecoder(model, Reach(9), max_segment=3, whole_segments=True)
    hidden, _ = decoder(INPUTS, decoder.initial_cache(1))
    np.testing.assert_array_equal(nll(scorer(model)), model.nll(hidden, TARGETS))

"""AdaptiveEmbedding against the definition, token by token in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.ops import platform

V, D = 60, 8
CUTOFFS = (10, 25, 40)
LAYOUTS = {
    "plain": {},
    "plain, projected": {"d_embed": 4},
    "one table": {"cutoffs": CUTOFFS},
    "one table, projected": {"cutoffs": CUTOFFS, "d_embed": 16},
    "tables (lm1b)": {"cutoffs": CUTOFFS, "div_val": 2, "proj_same_dim": False},
    "tables (wt103)": {"cutoffs": CUTOFFS, "div_val": 2},
    "tables, first projected down": {"cutoffs": CUTOFFS, "div_val": 2, "d_embed": 16, "proj_same_dim": False},
}
TOKENS = {
    "every id twice": np.random.default_rng(0).permutation(np.repeat(np.arange(V), 2)).reshape(4, -1),
    "all in the head": np.arange(12).reshape(3, 4) % 10,
    "all in the last tail": np.arange(40, 60).reshape(1, -1),
    "first and last of each cluster": np.array([[0, 9, 10, 24, 25, 39, 40, 59]]),
}


def build(layout, dtype="float64"):
    embedding = AdaptiveEmbedding(V, D, dtype=dtype, **layout)
    embedding.build()
    rng = np.random.default_rng(1)
    embedding.set_weights([rng.normal(size=w.shape) for w in embedding.weights])
    return embedding


def reference(embedding, tokens, upstream):
    """Output and gradients, in the order of `embedding.weights`: tables, then projections."""
    tables = [np.array(table) for table in embedding.tables]
    projections = [np.eye(D) if p is None else np.array(p) for p in embedding.projections]
    d_tables, d_projections = [0 * table for table in tables], [0 * p for p in projections]
    starts = (0, *CUTOFFS) if len(tables) > 1 else (0,)
    out = np.zeros((*tokens.shape, D))
    for place in np.ndindex(tokens.shape):
        i = int(np.searchsorted(starts, tokens[place], side="right")) - 1
        row = tokens[place] - starts[i]
        out[place] = tables[i][row] @ projections[i] * np.sqrt(D)
        d_tables[i][row] += projections[i] @ upstream[place] * np.sqrt(D)
        d_projections[i] += np.outer(tables[i][row], upstream[place]) * np.sqrt(D)
    return out, d_tables + [d for d, p in zip(d_projections, embedding.projections, strict=True) if p is not None]


def outputs(embedding, tokens, upstream):
    variables = [weight.value for weight in embedding.weights]
    with tf.GradientTape() as tape:
        out = embedding(tokens)
    return out, [tf.convert_to_tensor(grad) for grad in tape.gradient(out, variables, upstream)]


@pytest.mark.parametrize("mode", ["eager", pytest.param("XLA", marks=pytest.mark.xla)])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_the_definition(layout, mode):
    embedding = build(layout)
    run = outputs if mode == "eager" else tf.function(outputs, jit_compile=True, autograph=False)
    for tokens in TOKENS.values() if mode == "eager" else [TOKENS["every id twice"]]:
        upstream = np.random.default_rng(2).normal(size=(*tokens.shape, D))
        expected, expected_grads = reference(embedding, tokens, upstream)
        out, grads = run(embedding, tf.constant(tokens), tf.constant(upstream))
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)
        assert len(grads) == len(expected_grads)
        for grad, expected_grad in zip(grads, expected_grads, strict=True):
            np.testing.assert_allclose(grad, expected_grad, rtol=0, atol=1e-12)


def test_shapes_of_tables_and_projections():
    def shapes(layout):
        embedding = build(layout)
        projections = [p if p is None else tuple(p.shape) for p in embedding.projections]
        return [tuple(table.shape) for table in embedding.tables], projections

    assert shapes(LAYOUTS["plain"]) == ([(60, 8)], [None])
    assert shapes(LAYOUTS["one table, projected"]) == ([(60, 16)], [(16, 8)])
    tables = [(10, 8), (15, 4), (15, 2), (20, 1)]
    assert shapes(LAYOUTS["tables (lm1b)"]) == (tables, [None, (4, 8), (2, 8), (1, 8)])
    assert shapes(LAYOUTS["tables (wt103)"]) == (tables, [(8, 8), (4, 8), (2, 8), (1, 8)])
    first_down = LAYOUTS["tables, first projected down"]
    assert shapes(first_down)[1] == [(16, 8), None, (4, 8), (2, 8)]


def test_mixed_bfloat16_has_float32_weights():
    embedding = build(LAYOUTS["tables (wt103)"], "mixed_bfloat16")
    tokens = TOKENS["every id twice"]
    out, grads = outputs(embedding, tokens, tf.ones([*tokens.shape, D], tf.bfloat16))
    assert out.dtype == tf.bfloat16 and {grad.dtype for grad in grads} == {tf.float32}
    exact = reference(embedding, tokens, np.ones([*tokens.shape, D]))[0]
    np.testing.assert_allclose(tf.cast(out, tf.float32), exact, rtol=0.02, atol=0.2)


def test_rows_taken_by_matmul_on_a_tpu_are_the_gathered_ones():
    """Bit for bit in bfloat16, foreign tokens left out; and the gradient."""
    embedding = build(LAYOUTS["tables (wt103)"], "mixed_bfloat16")
    for tokens in TOKENS.values():
        upstream = tf.constant(np.random.default_rng(2).integers(-3, 4, size=(*tokens.shape, D)), tf.bfloat16)
        gathered, gathered_grads = outputs(embedding, tokens, upstream)
        with platform.traced_for("tpu"):
            graph = tf.function(outputs).get_concrete_function(embedding, tokens, upstream).graph
            taken, taken_grads = outputs(embedding, tokens, upstream)
        assert [op.type for op in graph.get_operations()].count("OneHot") == len(CUTOFFS) + 1  # its head is narrow, too
        np.testing.assert_array_equal(taken, gathered)
        for mine, theirs in zip(taken_grads, gathered_grads, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2**-6, atol=1e-6)


def test_is_a_keras_layer(tmp_path):
    embedding = build(LAYOUTS["tables (wt103)"], "float32")
    tokens = keras.Input([None], dtype="int32")
    model = keras.Model(tokens, embedding(tokens))
    assert model.output_shape == (None, None, D)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(TOKENS["every id twice"]), embedding(TOKENS["every id twice"]))
    assert AdaptiveEmbedding.from_config(embedding.get_config()).get_config() == embedding.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cutoffs": (20, 10)}, "cutoffs must rise strictly between 0 and vocab_size=60, not [20, 10]"),
        ({"cutoffs": (10, 10)}, "cutoffs must rise strictly between 0 and vocab_size=60, not [10, 10]"),
        ({"cutoffs": (0, 10)}, "cutoffs must rise strictly between 0 and vocab_size=60, not [0, 10]"),
        ({"cutoffs": (10, 60)}, "cutoffs must rise strictly between 0 and vocab_size=60, not [10, 60]"),
        (
            {"cutoffs": (10, 20, 30, 40), "div_val": 2},
            "d_embed=8 must be at least div_val**len(cutoffs) = 2**4 = 16, or the last cluster has width 0",
        ),
        ({"d_embed": 0}, "d_embed must be at least 1, not 0"),
        ({"div_val": 0}, "div_val must be at least 1, not 0"),
    ],
)
def test_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError) as caught:
        AdaptiveEmbedding(V, D, **arguments)
    assert str(caught.value) == message

"""AdaptiveSoftmax against the definition, token by token in NumPy, and against its own dense log-probabilities."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.layers.softmax import AdaptiveSoftmax

V, D, N, CHUNK = 60, 8, 24, 4
CUTOFFS = (10, 25, 40)

# Every way to make and tie the weights: (arguments of both layers, arguments of the softmax).
LAYOUTS = {
    "plain": ({}, {}),
    "plain, projected": ({"d_embed": 4}, {}),
    "plain, untied": ({"d_embed": 4}, {"tie_weight": False}),
    "one table": ({"cutoffs": CUTOFFS}, {}),
    "one table, projected": ({"cutoffs": CUTOFFS, "d_embed": 4}, {}),
    "one table, projection shared": ({"cutoffs": CUTOFFS, "d_embed": 4}, {"proj_share_all_but_first": True}),
    "tables (lm1b)": ({"cutoffs": CUTOFFS, "div_val": 2, "proj_same_dim": False}, {}),
    "tables, shared (wt103)": ({"cutoffs": CUTOFFS, "div_val": 2}, {"proj_share_all_but_first": True}),
    "tables, first projected down": ({"cutoffs": CUTOFFS, "div_val": 2, "d_embed": 16, "proj_same_dim": False}, {}),
    "tables, untied": ({"cutoffs": CUTOFFS, "div_val": 2}, {"tie_weight": False}),
    "tables untied, projections shared": (
        {"cutoffs": CUTOFFS, "div_val": 2},
        {"tie_weight": False, "proj_share_all_but_first": True},
    ),
}
WT103 = LAYOUTS["tables, shared (wt103)"]


def ids(*counts, nothing=0):
    """N targets with these counts per cluster, `nothing` times -1 and the rest in the head, in scattered order."""
    starts, ends = (0, *CUTOFFS), (*CUTOFFS, V)
    rng = np.random.default_rng(sum(counts))
    counts = (N - nothing - sum(counts), *counts)
    found = [rng.integers(*ends, size=n) for *ends, n in zip(starts, ends, counts, strict=True)]
    return rng.permutation(np.concatenate([*found, np.full(nothing, -1)])).astype("int32")


TOKENS = {
    "all in the head": ids(0, 0, 0),
    "all in the first tail": ids(N, 0, 0),
    "all in the last tail": ids(0, 0, N),
    "the same rarest token": np.full(N, V - 1, "int32"),
    "every cluster": ids(6, 5, 3),
    "one tail empty": ids(7, 0, 9),
    "no head token": ids(8, 8, 8),
    "one less, exactly, one more than a chunk": ids(CHUNK - 1, CHUNK, CHUNK + 1),
    "two chunks": ids(2 * CHUNK, 2 * CHUNK + 1, 2 * CHUNK - 1),
    "single tokens": ids(1, 1, 1),
    "some not scored": ids(4, 5, 3, nothing=7),
    "first and last of each cluster": np.resize([0, 9, 10, 24, 25, 39, 40, 59], N).astype("int32"),
    "none scored": np.full(N, -1, "int32"),
}


def layers(layout, dtype="float64", seed=0):
    """The two layers with random weights everywhere, biases included."""
    shared, own = layout
    embedding = AdaptiveEmbedding(V, D, dtype=dtype, **shared)
    softmax = AdaptiveSoftmax(V, D, dtype=dtype, chunk_size=CHUNK, **shared, **own)
    rng = np.random.default_rng(seed)
    for layer in (embedding, softmax):
        layer.build()
        layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    return embedding, softmax


def output_weights(embedding, softmax):
    """The variables of the softmax by name, tied ones included."""
    tables = (embedding if softmax.tie_weight else softmax).tables
    named = {f"table {i}": table for i, table in enumerate(tables)}
    for i, tied in enumerate(softmax.tie_projs):
        projection = embedding.projections[min(i, len(tables) - 1)] if tied else softmax.projections[i]
        if projection is not None:
            named[f"projection {i}"] = projection
    named |= {f"bias {i}": bias for i, bias in enumerate(softmax.biases)}
    if softmax.cutoffs:
        named |= {"cluster table": softmax.cluster_table, "cluster bias": softmax.cluster_bias}
    return named


def reference(hidden, targets, upstream, named, cutoffs):
    """Loss and gradients, from the definition: one token at a time, in NumPy.

    `named` are arrays; the gradient by every one of them is returned under its name, by the hidden states as "hidden".
    """
    starts, ends = (0, *cutoffs), (*cutoffs, V)
    grads = {name: np.zeros_like(value) for name, value in named.items()} | {"hidden": np.zeros_like(hidden)}
    loss = np.zeros(len(targets))

    def step(n, i, label):
        """One softmax: cluster i for token n; adds its loss and gradients."""
        one_table = "table 1" not in named
        name, rows = ("table 0", slice(starts[i], ends[i])) if one_table else (f"table {i}", slice(None))
        table, bias = named[name][rows], named[f"bias {i}"]
        if i == 0 and cutoffs:
            table, bias = np.vstack([table, named["cluster table"]]), np.append(bias, named["cluster bias"])
        projection = named.get(f"projection {i}", np.eye(D))
        y = projection @ hidden[n]
        z = table @ y + bias
        p = np.exp(z - z.max())
        p /= p.sum()
        loss[n] -= np.log(p[label])
        dz = upstream[n] * (p - (np.arange(len(p)) == label))
        own = ends[i] - starts[i]
        grads[name][rows] += np.outer(dz[:own], y)
        grads[f"bias {i}"] += dz[:own]
        if i == 0 and cutoffs:
            grads["cluster table"] += np.outer(dz[own:], y)
            grads["cluster bias"] += dz[own:]
        if f"projection {i}" in named:
            grads[f"projection {i}"] += np.outer(table.T @ dz, hidden[n])
        grads["hidden"][n] += projection.T @ table.T @ dz

    for n, target in enumerate(targets):
        if target < 0:
            continue
        i = int(np.searchsorted(cutoffs, target, side="right"))
        step(n, 0, target if i == 0 else ends[0] + i - 1)
        if i > 0:
            step(n, i, target - starts[i])
    return loss, grads


def by_variable(grads, named):
    """Adds up the reference's gradients of names that stand for one (tied) variable."""
    total = {}
    for name, variable in named.items():
        total[id(variable)] = total.get(id(variable), 0) + grads[name]
    return {name: total[id(variable)] for name, variable in named.items()}


def loss_and_gradients(embedding, softmax, hidden, targets, upstream, named):
    """What the layer says, the gradients of named variables as dense tensors."""
    variables = [variable.value for variable in named.values()]
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        nll = softmax.nll(hidden, targets, embedding)
    *grads, d_hidden = tape.gradient(nll, [*variables, hidden], upstream)
    return nll, dict(zip(named, map(tf.convert_to_tensor, grads), strict=True)) | {"hidden": d_hidden}


def inputs(seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)), rng.normal(size=N)


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max(np.abs(np.asarray(found[name]) - expected[name]).max() for name in expected)


def assert_exact(layout, targets, run=loss_and_gradients):
    embedding, softmax = layout if isinstance(layout[0], AdaptiveEmbedding) else layers(layout)
    named = output_weights(embedding, softmax)
    hidden, upstream = inputs()
    arrays = {name: variable.numpy() for name, variable in named.items()}
    loss, grads = reference(hidden, targets, upstream, arrays, softmax.cutoffs)
    grads = by_variable(grads, named) | {"hidden": grads["hidden"]}
    found_loss, found = run(embedding, softmax, tf.constant(hidden), tf.constant(targets), tf.constant(upstream), named)
    np.testing.assert_allclose(found_loss, loss, rtol=0, atol=1e-12)
    assert largest_difference(found, grads) < 1e-12
    skipped = np.asarray(targets) == -1
    assert not np.asarray(found_loss)[skipped].any() and not np.asarray(found["hidden"])[skipped].any()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("tokens", ["every cluster", "some not scored"])
def test_every_layout_equals_the_definition(layout, tokens):
    assert_exact(layout, TOKENS[tokens])


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS.keys())
def test_any_tokens_equal_the_definition(tokens):
    assert_exact(WT103, tokens)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_compiled_equals_the_definition(jit_compile):
    compiled = {}

    def run(embedding, softmax, hidden, targets, upstream, named):
        if not compiled:
            compiled["f"] = tf.function(
                lambda hidden, targets, upstream: loss_and_gradients(
                    embedding, softmax, hidden, targets, upstream, named
                ),
                jit_compile=jit_compile,
            )
        return compiled["f"](hidden, targets, upstream)

    built = layers(WT103)
    for targets in TOKENS.values():
        assert_exact(built, targets, run)
    assert compiled["f"].experimental_get_tracing_count() == 1

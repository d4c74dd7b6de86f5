"""AdaptiveSoftmax against the definition, token by token in NumPy, and against its own dense log-probabilities."""

import math
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.layers.softmax import AdaptiveSoftmax
from txl_tf.ops import chunked_nll

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


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunked_nll, "chunk_size", lambda tokens: CHUNK)


def layers(layout, dtype="float64", seed=0):
    """The two layers with random weights everywhere, biases included."""
    shared, own = layout
    embedding = AdaptiveEmbedding(V, D, dtype=dtype, **shared)
    softmax = AdaptiveSoftmax(V, D, dtype=dtype, **shared, **own)
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
    """The layer's loss, and the gradients of named variables as dense tensors."""
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


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.xla)], ids=["graph", "XLA"])
def test_compiled_equals_the_definition(jit_compile):
    compiled = {}

    def run(embedding, softmax, hidden, targets, upstream, named):
        if not compiled:
            compiled["f"] = tf.function(
                lambda *tensors: loss_and_gradients(embedding, softmax, *tensors, named),
                jit_compile=jit_compile,
                autograph=False,
            )
        return compiled["f"](hidden, targets, upstream)

    built = layers(WT103)
    for targets in TOKENS.values():
        assert_exact(built, targets, run)
    assert compiled["f"].experimental_get_tracing_count() == 1


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_log_prob_is_a_distribution_and_agrees_with_nll(layout):
    """log_prob is dense and left to automatic differentiation: a second witness for loss and gradients."""
    embedding, softmax = layers(layout)
    named = output_weights(embedding, softmax)
    hidden, upstream = (tf.constant(x) for x in inputs())
    targets = np.abs(TOKENS["some not scored"])  # -1 becomes 1
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        log_prob = softmax(hidden, embedding=embedding)
        dense_loss = -tf.gather(log_prob, targets, batch_dims=1)
    variables = [variable.value for variable in named.values()]
    *grads, d_hidden = tape.gradient(dense_loss, [*variables, hidden], upstream)
    assert log_prob.shape == (N, V)
    np.testing.assert_allclose(np.exp(log_prob).sum(-1), 1, rtol=1e-13)

    loss, found = loss_and_gradients(embedding, softmax, hidden, targets, upstream, named)
    np.testing.assert_allclose(loss, dense_loss, rtol=0, atol=1e-12)
    dense = dict(zip(named, map(tf.convert_to_tensor, grads), strict=True)) | {"hidden": d_hidden}
    assert largest_difference(found, {name: grad.numpy() for name, grad in dense.items()}) < 1e-12


@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_any_chunk_size_is_the_same(monkeypatch, chunk_size):
    monkeypatch.setattr(chunked_nll, "chunk_size", lambda tokens: chunk_size)
    embedding, softmax = layers(WT103)
    assert_exact((embedding, softmax), TOKENS["every cluster"])


def test_float32_overflows_nowhere():
    """Logits of thousands: also where a chunk's spare rows hold foreign tokens."""
    embedding, softmax = layers(WT103, "float32")
    named = output_weights(embedding, softmax)
    hidden = tf.constant(inputs()[0] * 1000, tf.float32)
    loss, grads = loss_and_gradients(embedding, softmax, hidden, TOKENS["single tokens"], tf.ones([N]), named)
    assert all(np.isfinite(x).all() for x in (loss, *grads.values()))


def test_mixed_bfloat16_keeps_the_loss_in_float32():
    hidden, _ = inputs()
    exact = layers(WT103)
    rounded = layers(WT103, "mixed_bfloat16")
    named = output_weights(*rounded)
    targets = TOKENS["every cluster"]
    loss, grads = loss_and_gradients(*rounded, tf.constant(hidden, tf.bfloat16), targets, tf.ones([N]), named)
    assert loss.dtype == tf.float32 and {grads[name].dtype for name in named} == {tf.float32}
    np.testing.assert_allclose(loss, exact[1].nll(hidden, targets, exact[0]), rtol=0.02, atol=0.05)
    log_prob = rounded[1](tf.constant(hidden, tf.bfloat16), embedding=rounded[0])
    np.testing.assert_allclose(np.exp(log_prob).sum(-1), 1, rtol=1e-5)


def test_leading_dimensions_may_be_many_or_unknown():
    embedding, softmax = layers(WT103)
    hidden, _ = inputs()
    targets = TOKENS["every cluster"]
    flat = softmax.nll(hidden, targets, embedding)
    unknown = tf.function(
        lambda hidden, targets: softmax.nll(hidden, targets, embedding),
        input_signature=[tf.TensorSpec([None, None, D], tf.float64), tf.TensorSpec([None, None], tf.int64)],
    )
    for shape in ((4, N // 4), (1, N)):
        folded = (tf.reshape(hidden, [*shape, D]), tf.reshape(tf.cast(targets, tf.int64), shape))
        for nll in (softmax.nll(*folded, embedding), unknown(*folded)):
            np.testing.assert_allclose(nll, tf.reshape(flat, shape), rtol=0, atol=1e-14)
    assert softmax(tf.reshape(hidden, [4, N // 4, D]), embedding=embedding).shape == (4, N // 4, V)


def test_trains_in_a_host_loop_on_replicas(two_replicas):
    """Gradient steps in tf.range around strategy.run equal the same steps taken eagerly."""
    hidden, _ = inputs()
    batches = np.stack([TOKENS["every cluster"], TOKENS["one tail empty"], TOKENS["all in the last tail"]])

    def descend(embedding, softmax, targets):
        variables = [weight.value for layer in (embedding, softmax) for weight in layer.trainable_weights]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(softmax.nll(hidden + 0 * embedding(np.arange(N)), targets, embedding))
        grads = tape.gradient(loss, variables, unconnected_gradients="zero")
        return loss, [(variable, tf.convert_to_tensor(grad)) for variable, grad in zip(variables, grads, strict=True)]

    eager = layers(WT103)
    expected = []
    for targets in batches:
        loss, pairs = descend(*eager, targets)
        expected.append(float(loss))
        for variable, grad in pairs:
            variable.assign_sub(0.1 * grad)

    strategy = two_replicas
    with strategy.scope():
        replicated = layers(WT103)

    @tf.autograph.experimental.do_not_convert
    def step(targets):
        context = tf.distribute.get_replica_context()
        loss, pairs = descend(*replicated, targets)
        for variable, grad in pairs:
            variable.assign_sub(0.1 * context.all_reduce("MEAN", grad))
        return loss

    @tf.function
    def loop(batches):
        losses = tf.TensorArray(tf.float64, 3)
        for i in tf.range(3):
            loss = strategy.run(step, args=(batches[i],))
            losses = losses.write(i, strategy.reduce("MEAN", loss, axis=None))
        return losses.stack()

    np.testing.assert_allclose(loop(tf.constant(batches)), expected, rtol=1e-12)


def shapes_of(layer):
    """The shapes of all weights, none of them made."""
    shapes = {}

    def record(*, name, shape, **_):
        shapes[name] = shape
        return name

    with mock.patch.object(layer, "add_weight", record):
        layer.build()
    return shapes


# Per model: arguments of both layers and of the softmax; parameters of the embedding (tables + projections) and the
# softmax (biases + cluster entries + projections); the two together: the published total less decoder layers and
# attention biases; the softmax's own projections.
OFFICIAL = {
    "wt103_large": (
        {"vocab_size": 267735, "d_model": 1024, "cutoffs": (20000, 40000, 200000), "div_val": 4},
        {"proj_share_all_but_first": True},
        [36_923_760 + 1024 * (1024 + 256 + 64 + 16), 267_735 + 3 * 1025 + 1024 * 1024],
        285_205_322 - 18 * 13_640_704 - 2 * 18 * 1024,
        {"projection_0"},
    ),
    "lm1b_large": (
        {
            "vocab_size": 793471,
            "d_model": 1280,
            "cutoffs": (60000, 100000, 640000),
            "div_val": 4,
            "proj_same_dim": False,
        },
        {},
        [135_869_420 + 1280 * (320 + 80 + 20), 793_471 + 3 * 1281 + 1280 * (320 + 80 + 20)],
        838_078_062 - 24 * 29_178_112 - 2 * 24 * 1280,
        {"projection_1", "projection_2", "projection_3"},
    ),
}


@pytest.mark.parametrize(("shared", "own", "counts", "total", "projections"), OFFICIAL.values(), ids=OFFICIAL.keys())
def test_weights_of_the_official_models(shared, own, counts, total, projections):
    shapes = [shapes_of(AdaptiveEmbedding(**shared)), shapes_of(AdaptiveSoftmax(**shared, **own))]
    assert [sum(map(math.prod, layer.values())) for layer in shapes] == counts
    assert sum(counts) == total
    biases = {"bias_0", "bias_1", "bias_2", "bias_3"}
    assert shapes[1].keys() == biases | projections | {"cluster_table", "cluster_bias"}


def test_initial_weights():
    keras.utils.set_random_seed(1)
    softmax = AdaptiveSoftmax(
        20000, 64, cutoffs=(5000, 10000), div_val=2, tie_weight=False, init_std=0.5, proj_init_std=0.1
    )
    softmax.build()
    assert [round(float(np.std(table)), 2) for table in softmax.tables] == [0.5, 0.5, 0.5]
    assert [round(float(np.std(projection)), 2) for projection in softmax.projections] == [0.1, 0.1, 0.1]
    assert not any(np.any(weight) for weight in (*softmax.biases, softmax.cluster_table, softmax.cluster_bias))


def test_is_a_keras_layer(tmp_path):
    """Alone in a functional model: saved, loaded, the same."""
    _, softmax = layers(LAYOUTS["tables, untied"], "float32")
    inputs_ = keras.Input([None, D])
    model = keras.Model(inputs_, softmax(inputs_))
    assert model.output_shape == (None, None, V)
    model.save(tmp_path / "model.keras")
    hidden = np.ones([2, 3, D], "float32")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras")(hidden), model(hidden))

    _, softmax = layers(WT103)
    assert AdaptiveSoftmax.from_config(softmax.get_config()).get_config() == softmax.get_config()


def test_tied_weights_are_the_embeddings_alone():
    """Passing the embedding in, symbolically or not, makes it no part of the softmax."""
    embedding, softmax = layers(WT103)
    softmax(keras.Input([N, D]), embedding=embedding)
    softmax.nll(inputs()[0], TOKENS["every cluster"], embedding)
    assert len(softmax.weights) == 4 + 2 + 1
    assert not {id(weight) for weight in softmax.weights} & {id(weight) for weight in embedding.weights}


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"^weights are tied to an AdaptiveEmbedding .*: pass it$"):
        layers(WT103)[1].nll(inputs()[0], TOKENS["every cluster"])
    with pytest.raises(ValueError, match=r"^hidden must end in d_model=8, not \(2, 4\)$"):
        layers(WT103)[1].nll(np.zeros([2, 4]), [1, 2], layers(WT103)[0])

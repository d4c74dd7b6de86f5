import dataclasses
import math

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.model import TransformerXL

CONFIG = reference.SMALL
B, T = 2, 4


def make_model(**changes):
    keras.utils.set_random_seed(3)
    return TransformerXL(dataclasses.replace(CONFIG, **changes))


def tokens(rng, length=T):
    return tf.constant(rng.integers(0, CONFIG.vocab_size, [B, length]), tf.int32)


def largest_difference(a, b):
    return np.abs(np.asarray(a) - np.asarray(b)).max()


@pytest.mark.parametrize("untie_r", [False, True])
@pytest.mark.parametrize("mem_len", [0, 3, 6])
@pytest.mark.parametrize(
    "reach",
    [
        {},
        {"clamp_len": 3},
        {"same_length": True},
        {"same_length": True, "same_length_window": "pytorch", "mem_init": "empty"},
        {"mem_init": "empty", "clamp_len": 2},
    ],
)
def test_segments_equal_the_numpy_reference(rng, untie_r, mem_len, reach):
    if mem_len == 0 and reach.get("same_length_window") == "pytorch":
        pytest.skip("a window of no keys at all")
    model = make_model(untie_r=untie_r, mem_len=mem_len, **reach)
    weights = reference.model_weights(model)
    mems = model.initial_mems(B)
    memory = [[np.zeros([mem_len, CONFIG.d_model])] * CONFIG.n_layer for _ in range(B)]
    for segment in range(3):
        inputs = tokens(rng)
        hidden, mems = model(inputs, mems)
        log_prob = model.log_prob(hidden)
        for b in range(B):
            length = segment * T if model.config.mem_init == "empty" else None
            want, memory[b] = reference.transformer_xl(weights, inputs[b], memory[b], model.config.reach, length)
            np.testing.assert_allclose(log_prob[b], want, rtol=0, atol=1e-8)
            for mine, theirs in zip(mems.hidden, memory[b], strict=True):
                np.testing.assert_allclose(mine[b], theirs, atol=1e-6)


@pytest.mark.parametrize("pre_lnorm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_norm_first_and_activations_equal_the_numpy_reference(rng, pre_lnorm, activation):
    model = make_model(pre_lnorm=pre_lnorm, activation=activation)
    for layer in model.decoder_layers:  # or the norms would be those of no weights at all
        for norm in (layer.attention_norm, layer.feed_forward_norm):
            norm.gamma.assign(rng.normal(1, 0.3, norm.gamma.shape))
            norm.beta.assign(rng.normal(0, 0.3, norm.beta.shape))
    weights = reference.model_weights(model)
    mems, memory = model.initial_mems(B), [[np.zeros([6, CONFIG.d_model])] * CONFIG.n_layer for _ in range(B)]
    for _ in range(2):
        inputs = tokens(rng)
        hidden, mems = model(inputs, mems)
        log_prob = model.log_prob(hidden)
        for b in range(B):
            want, memory[b] = reference.transformer_xl(
                weights,
                inputs[b],
                memory[b],
                CONFIG.reach,
                pre_lnorm=pre_lnorm,
                activation={"relu": reference.relu, "gelu": reference.gelu}[activation],
            )
            np.testing.assert_allclose(log_prob[b], want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pre_lnorm", [False, True])
def test_norms_learn_from_the_memory_too(rng, pre_lnorm):
    """No gradient flows into memory, but what pre-LN does to it belongs to this segment: against differences."""
    model = make_model(pre_lnorm=pre_lnorm, n_layer=1)
    _, mems = model(tokens(rng))
    inputs, norm = tokens(rng), model.decoder_layers[0].attention_norm

    def loss():
        return tf.reduce_sum(model(inputs, mems)[0] ** 3)

    with tf.GradientTape() as tape:
        value = loss()
    gradient = tape.gradient(value, norm.beta.value)
    step, saved = rng.normal(size=norm.beta.shape), norm.beta.numpy()
    norm.beta.assign(saved + 1e-6 * step)
    above = loss()
    norm.beta.assign(saved - 1e-6 * step)
    np.testing.assert_allclose(tf.reduce_sum(gradient * step), (above - loss()) / 2e-6, rtol=1e-5)


def test_memory_start_matters(rng):
    inputs = tokens(rng)
    zeros, _ = make_model(mem_init="zeros")(inputs)
    empty, _ = make_model(mem_init="empty")(inputs)
    alone, _ = make_model(mem_len=0)(inputs)
    assert largest_difference(zeros, empty) > 1e-2
    np.testing.assert_allclose(empty, alone, atol=1e-12)


def test_segments_with_mems_equal_one_long_pass(rng):
    model = make_model(mem_len=2 * T, mem_init="empty")
    inputs = tokens(rng, 3 * T)
    pieces, mems = [], None
    for piece in tf.split(inputs, 3, axis=1):
        hidden, mems = model(piece, mems)
        pieces.append(hidden)
    whole, _ = model(inputs)
    np.testing.assert_allclose(tf.concat(pieces, axis=1), whole, atol=1e-6)


@pytest.mark.parametrize("pieces", [1, 3, 12])
def test_with_same_length_the_segmentation_does_not_matter(rng, pieces):
    """A window of M + 1 keys is covered by the memory wherever the text is cut, zeros at the start included."""
    model = make_model(mem_len=5, same_length=True)
    inputs = tokens(rng, 12)
    outputs, mems = [], None
    for piece in tf.split(inputs, pieces, axis=1):
        hidden, mems = model(piece, mems)
        outputs.append(hidden)
    whole, _ = model(inputs)
    np.testing.assert_allclose(tf.concat(outputs, axis=1), whole, atol=1e-6)


def test_evaluation_may_reach_farther_than_training(rng):
    model = make_model()
    reach = dataclasses.replace(CONFIG.reach, mem_len=9, clamp_len=5, same_length=True)
    longer = make_model(mem_len=9, clamp_len=5, same_length=True)
    inputs = tokens(rng)
    mems = model.initial_mems(B, reach)
    for _ in range(3):
        got, mems = model(inputs, mems, reach=reach)
    mems = None
    for _ in range(3):
        want, mems = longer(inputs, mems)
    np.testing.assert_array_equal(got, want)


def test_mems_carry_no_gradient(rng):
    """Neither back into the segment before, nor out of what is handed to the segment after."""
    model = make_model()
    _, mems = model(tokens(rng))
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(mems.hidden)
        hidden, new_mems = model(tokens(rng), mems)
        loss, kept = tf.reduce_sum(hidden**2), tf.add_n([tf.reduce_sum(memory**2) for memory in new_mems.hidden])
    assert tape.gradient(loss, mems.hidden) == (None, None)
    assert tape.gradient(kept, variables) == [None] * len(variables)
    assert all(gradient is not None for gradient in tape.gradient(loss, variables)[:-1])


def test_every_position_depends_on_just_its_past(rng):
    """The Jacobian of the softmax's input with respect to the embeddings is nonzero exactly where j <= i."""
    model = make_model()
    inputs = tokens(rng)
    embedded = tf.Variable(model.embedding(inputs))
    model.embedding.call = lambda ids: tf.convert_to_tensor(embedded)
    with tf.GradientTape() as tape:
        hidden, _ = model(inputs)
    jacobian = np.abs(tape.jacobian(hidden, embedded)).max(axis=(2, 5))  # [B, T, B, T]
    want = np.einsum("bc,ij->bicj", np.eye(B), np.tril(np.ones([T, T]))) > 0
    np.testing.assert_array_equal(jacobian > 1e-12, want)


def test_memory_shifts_by_a_segment(rng):
    model = make_model()
    _, first = model(tokens(rng))
    _, second = model(tokens(rng), first)
    for old, new in zip(first.hidden, second.hidden, strict=True):
        np.testing.assert_array_equal(new[:, : CONFIG.mem_len - T], old[:, T:])
    assert second.length.numpy().tolist() == [6, 6]


def test_dropout_differs_between_seeds_and_is_off_in_evaluation(rng):
    model = make_model(dropout=0.3, dropatt=0.3)
    inputs = tokens(rng)
    plain, _ = model(inputs)
    np.testing.assert_array_equal(plain, model(inputs)[0])
    once, again, other = (model(inputs, seed=tf.constant([0, n]), training=True)[0] for n in (1, 1, 2))
    np.testing.assert_array_equal(once, again)
    assert largest_difference(once, other) > 1e-2
    assert largest_difference(once, plain) > 1e-2


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({"dropout": 0.3}, False),
        ({"dropout": 0.3, "dropout_type": "variational"}, True),
        ({"dropemb": 0.5}, True),
    ],
)
def test_variational_masks_are_alike_over_time(rng, changes, alike):
    """A text of one word, read without attention: only dropout could tell its positions apart."""
    model = make_model(**changes)
    for layer in model.decoder_layers:
        layer.attention.output_kernel.assign(tf.zeros_like(layer.attention.output_kernel))
    hidden = [model(tf.fill([B, T], 5), seed=tf.constant([0, n]), training=True)[0].numpy() for n in range(8)]
    assert (max(largest_difference(states, states[:, :1]) for states in hidden) < 1e-12) == alike
    assert max(largest_difference(hidden[0], states) for states in hidden) > 1e-2  # but not over steps


def test_adaptive_input_and_softmax_make_a_distribution(rng):
    model = make_model(cutoffs=(3, 6), div_val=2, untie_r=True)
    inputs, targets = tokens(rng), tokens(rng)
    hidden, _ = model(inputs)
    log_prob = model.log_prob(hidden)
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(log_prob), axis=-1), np.ones([B, T]), rtol=1e-12)
    np.testing.assert_allclose(model.nll(hidden, targets), -tf.gather(log_prob, targets, batch_dims=2), rtol=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts_of_presets(name, monkeypatch):
    counted = []

    def count_only(layer, name=None, shape=None, **kwargs):  # up to 838 million weights: counted, not made
        counted.append(math.prod(shape))

    monkeypatch.setattr(keras.layers.Layer, "add_weight", count_only)
    TransformerXL(PRESETS[name].config.model)
    assert sum(counted) == PRESETS[name].parameters


def test_model_is_rebuilt_from_its_config(rng):
    model = TransformerXL(CONFIG, name="other")
    twin = TransformerXL.from_config(model.get_config())
    assert twin.name == "other"
    twin.set_weights(model.get_weights())
    inputs = tokens(rng)
    np.testing.assert_array_equal(twin(inputs)[0], model(inputs)[0])


@pytest.mark.xla
def test_xla_gives_the_same(rng):
    model = make_model(dtype="float32")
    inputs = tokens(rng)
    eager = model(inputs)
    compiled = tf.function(model, jit_compile=True)(inputs)
    np.testing.assert_allclose(compiled[0], eager[0], atol=1e-5)
    np.testing.assert_allclose(compiled[1].hidden[1], eager[1].hidden[1], atol=1e-5)

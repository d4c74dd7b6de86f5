"""Layers that are traced once compute what each computes by itself, as it does where TensorFlow runs eagerly."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
import random_xlnet
import reference
import tensorflow as tf

from txl_tf import ops
from txl_tf.hashing import split_seed
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.dropout import Seeds
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops import platform

B, T, LAYERS = 2, 4, 3  # a first, a middle and a last one: only the first gets positions, XLNet's last is query_only
SEEDS = Seeds(tf.constant([5, 6]), tf.constant([[1, 2], [3, 4]]))


def transformer_xl(**changes):
    keras.utils.set_random_seed(3)
    settings = {"n_layer": LAYERS, "dropout": 0.2, "dropatt": 0.1, "max_klen": 32} | changes
    return TransformerXL(dataclasses.replace(reference.SMALL, **settings))


def read_transformer_xl(model, tokens, training):
    mems = model.initial_mems(B)
    hidden = 0.0
    for segment in (tokens, tokens[:, ::-1]):
        more, mems = model(segment, mems, seed=SEEDS, training=training)
        hidden += more
    return model.nll(hidden, tokens)


def xlnet(**changes):
    settings = {"n_layer": LAYERS, "dropout": 0.2, "dropatt": 0.1, "dtype": "float64"} | changes
    return random_xlnet.random_xlnet(vocab_size=11, **settings)


def read_xlnet(model, tokens, training):
    """Both streams, segments, directions and memory."""
    visible = tf.constant(np.tril(np.ones([T, T], bool), -1)[None])
    inputs = {"visible": visible, "targets": tf.constant([[0, 2], [3, -1]]), "backward": tf.constant([True, False])}
    content, _, mems = model(
        tokens, model.initial_mems(B), segments=tokens % 2, seed=SEEDS, training=training, **inputs
    )
    _, query, _ = model(tokens, mems, query_only=True, seed=SEEDS, training=training, **inputs)
    return tf.reduce_sum(content**2) + model.nll(query, tokens[:, :2])


CASES = {
    "untied": (transformer_xl, read_transformer_xl, {"untie_r": True}),
    "pre_lnorm": (transformer_xl, read_transformer_xl, {"pre_lnorm": True, "mem_init": "empty"}),
    "shaw": (transformer_xl, read_transformer_xl, {"attn_type": "shaw"}),
    "vaswani": (transformer_xl, read_transformer_xl, {"attn_type": "vaswani"}),
    "alrfou": (transformer_xl, read_transformer_xl, {"attn_type": "alrfou"}),
    "remat": (transformer_xl, read_transformer_xl, {"remat": True}),
    "xlnet": (xlnet, read_xlnet, {}),
    "xlnet, untied": (xlnet, read_xlnet, {"untie_r": True}),
}
SLOW = {("alrfou", True), ("xlnet, untied", True)} | {(case, False) for case in {*CASES} - {"pre_lnorm", "xlnet"}}
"""Further variants of what the other cases show, in training and not."""


def loss_and_gradients(model, read, tokens, training):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(read(model, tokens, training))
    return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables) if g is not None]


@pytest.mark.parametrize(
    ("case", "training"),
    [
        pytest.param(*variant, marks=pytest.mark.slow if variant in SLOW else ())
        for variant in itertools.product(CASES, (True, False))
    ],
)
def test_loss_and_gradients_are_those_of_layers_by_themselves(rng, case, training):
    make, read, changes = CASES[case]
    model = make(**changes)

    tokens = tf.constant(rng.integers(0, 11, [B, T]), tf.int32)
    loss, gradients = loss_and_gradients(model, read, tokens, training)
    traced = tf.function(lambda tokens: loss_and_gradients(model, read, tokens, training), autograph=False)
    traced_loss, traced_gradients = traced(tokens)
    np.testing.assert_allclose(traced_loss, loss, rtol=1e-12)
    nonzero = [gradient for gradient in traced_gradients if gradient.numpy().any()]
    expected = [gradient for gradient in gradients if gradient.numpy().any()]
    assert len(nonzero) == len(expected) > LAYERS
    for found, gradient in zip(nonzero, expected, strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("case", "forms"),
    [("untied", 1), ("vaswani", 2), ("xlnet", 3)],
)
def test_training_traces_each_form_of_layer_once(rng, monkeypatch, case, forms):
    make, read, changes = CASES[case]
    model, calls, call = make(**changes), [], DecoderLayer.call
    monkeypatch.setattr(DecoderLayer, "call", lambda *args, **kwargs: calls.append(1) or call(*args, **kwargs))
    train = tf.function(lambda tokens: read(model, tokens, training=True), autograph=False)
    train(tf.constant(rng.integers(0, 11, [B, T]), tf.int32))
    assert len(calls) == forms


@pytest.mark.parametrize("case", ["untied", "shaw", "xlnet"])
def test_what_is_for_a_gpu_computes_the_same_and_so_do_the_formulas(rng, case):
    make, read, changes = CASES[case]
    model, tokens = make(**changes), tf.constant(rng.integers(0, 11, [B, T]), tf.int32)
    loss, gradients = loss_and_gradients(model, read, tokens, training=True)
    for other_ops in (platform.traced_for("gpu"), platform.plain()):
        with other_ops:
            found, found_gradients = loss_and_gradients(model, read, tokens, training=True)
        np.testing.assert_allclose(found, loss, rtol=1e-12)
        for one, other in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", [[7, 8], [[7, 8], [9, -10]]])
def test_seeds_of_layers_are_the_seeds_of_split_seed(seed):
    expected, found = split_seed(tf.constant(seed), 5), ops.layer_seeds(tf.constant(seed), 5)
    np.testing.assert_array_equal(tf.stack(found), tf.stack(expected))

"""Whole models compute the same loss and gradients by every implementation of the operations."""

import dataclasses

import keras
import numpy as np
import pytest
import random_xlnet
import reference
import tensorflow as tf

from txl_tf.layers.dropout import Seeds
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.models.xlnet.model import Text
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
    targets, backward = tf.constant([[0, 2], [3, -1]]), tf.constant([True, False])
    inputs = {"targets": targets, "seed": SEEDS, "training": training}
    content, _, mems = model(tokens, model.initial_mems(B), text=Text(tokens % 2, visible, backward=backward), **inputs)
    _, query, _ = model(tokens, mems, text=Text(visible=visible, backward=backward), rows="query", **inputs)
    return tf.reduce_sum(content**2) + model.nll(query, tokens[:, :2])


CASES = {
    "untied": (transformer_xl, read_transformer_xl, {"untie_r": True}),
    "shaw": (transformer_xl, read_transformer_xl, {"attn_type": "shaw"}),
    "xlnet": (xlnet, read_xlnet, {}),
}


def loss_and_gradients(model, read, tokens, training):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(read(model, tokens, training))
    return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables) if g is not None]


@pytest.mark.parametrize("case", CASES)
def test_what_is_for_a_gpu_computes_the_same_and_so_do_the_formulas(rng, case):
    make, read, changes = CASES[case]
    model, tokens = make(**changes), tf.constant(rng.integers(0, 11, [B, T]), tf.int32)
    loss, gradients = loss_and_gradients(model, read, tokens, training=True)
    for other_ops in (platform.traced_for("gpu"), platform.using("plain")):
        with other_ops:
            found, found_gradients = loss_and_gradients(model, read, tokens, training=True)
        np.testing.assert_allclose(found, loss, rtol=1e-12)
        for one, other in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)

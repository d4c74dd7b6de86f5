"""Texts of several segments, read with memory by an XLNet with a head."""

import dataclasses
import itertools

import numpy as np
import pytest
import random_xlnet
import tensorflow as tf
from xlnet_models import recorded_states

from txl_tf.layers.dropout import step_seeds
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.models.xlnet.model import Text
from txl_tf.models.xlnet.with_head import XLNetWithLogits
from txl_tf.settings.run import from_dict

T, M = 5, 7


def make_model(**settings):
    values = dataclasses.asdict(random_xlnet.CONFIG) | {"vocab_size": 31, "dtype": "float64", "mem_init": "empty"}
    model = XLNetWithLogits(
        from_dict(XLNetLogitsConfig, values | {"reuse_len": 0, "mem_len": M, "n_class": 3} | settings, "test")
    )
    draw = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(size=variable.shape) * 0.3 + ("gamma" in variable.path))
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def texts():
    """Texts of 2 to 15 tokens in 15 columns; the last token has a segment of its own."""
    lengths = [2, 5, 6, 10, 11, 15]
    padding = np.array([[place < 15 - n for place in range(15)] for n in lengths])
    tokens = np.where(padding, 0, np.random.default_rng(3).integers(1, 31, padding.shape)).astype(np.int32)
    segments = np.where(padding, 4, np.where(np.arange(15) == 14, 2, 0)).astype(np.int32)
    return tokens, segments, padding


def one_by_one(model, tokens, segments):
    """A text without padding, segment after segment, with memory of real tokens alone: the logits [C]."""
    first = len(tokens) % T or T
    cuts = [0, *range(first, len(tokens) + 1, T)]
    memory = [np.zeros([1, 0, model.config.d_model])] * model.config.n_layer
    for start, end in itertools.pairwise(cuts):
        known = memory[0].shape[1]
        mems = Mems(tuple(map(tf.constant, memory)), tf.constant([known])) if known else None
        with recorded_states() as states:
            hidden, _, _ = model.body(
                tf.constant([tokens[start:end]]), mems, text=Text(tf.constant([segments[start:end]]))
            )
        inputs = states[:-1]
        memory = [np.concatenate([old, new], axis=1)[:, -M:] for old, new in zip(memory, inputs, strict=True)]
    return model.head(hidden)[0].numpy()


def test_each_text_is_read_as_without_padding(model, texts):
    tokens, segments, padding = texts
    found = model(*map(tf.constant, texts[:1]), segments=segments, padding=padding, segment_len=T)
    for row, logits in enumerate(found.numpy()):
        real = ~padding[row]
        np.testing.assert_allclose(logits, one_by_one(model, tokens[row][real], segments[row][real]), atol=1e-12)
    # Texts of at most two segments need no third.
    short = [array[:4, 5:] for array in texts]
    np.testing.assert_allclose(
        model(tf.constant(short[0]), segments=short[1], padding=short[2], segment_len=T), found[:4], atol=1e-12
    )


def test_the_gradient_ends_at_the_last_segment(model, texts):
    """Tokens that only occur further back have no gradient, but they matter."""
    tokens, segments, padding = (array[-1:].copy() for array in texts)
    tokens[0] = np.arange(1, 16)
    with tf.GradientTape() as tape:
        logits = model(tf.constant(tokens), segments=segments, padding=padding, segment_len=T)
    table = model.body.embedding.variables[0].value
    gradient = np.abs(tf.convert_to_tensor(tape.gradient(logits, table)).numpy()).max(axis=1)
    assert (gradient[11:16] > 0).all() and (gradient[:11] == 0).all()
    tokens[0, 7] = 30
    assert np.abs(model(tf.constant(tokens), segments=segments, padding=padding, segment_len=T) - logits).max() > 1e-6


def test_dropout_follows_from_the_seed_of_a_text(texts):
    model = make_model(dropout=0.3, dropatt=0.3, summary_dropout=0.3)
    tokens, segments, padding = map(tf.constant, texts)

    def read(first, count):
        rows = slice(first, first + count)
        seeds = step_seeds(tf.constant([1, 0]), tf.constant(2), first + tf.range(count))
        return model(
            tokens[rows], segments=segments[rows], padding=padding[rows], seed=seeds, training=True, segment_len=T
        )

    whole = read(0, 6)
    np.testing.assert_allclose(tf.concat([read(0, 2), read(2, 4)], 0), whole, atol=1e-12)
    assert np.abs(whole - model(tokens, segments=segments, padding=padding, segment_len=T)).max() > 1e-3


def test_what_cannot_be_read_in_segments(texts):
    tokens, segments, padding = texts
    for settings, length in (({"mem_init": "zeros"}, T), ({"reuse_len": 2}, T), ({}, 4)):
        with pytest.raises(ValueError, match="are not whole segments of"):
            make_model(**settings)(tf.constant(tokens), segments=segments, padding=padding, segment_len=length)

import dataclasses
import functools

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.hashing import random_bits
from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.layers.dropout import TIME, dropout, split_seed, token_dropout
from txl_tf.layers.dropout_rates import Rates
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.models.transformer_xl.model import TransformerXL

SEED = tf.constant([3, 4])


@pytest.mark.parametrize("shape", [[64, 50], [8, 64, 50]])
def test_one_mask_for_all_positions_of_a_row(shape):
    dropped = dropout(tf.ones(shape), 0.4, SEED, TIME).numpy()
    assert np.isin(dropped, np.float32([0, 1 / 0.6])).all()
    assert (dropped == dropped[..., :1, :]).all()
    assert 0.2 < (dropped == 0).mean() < 0.6
    if len(shape) == 3:
        assert (dropped[0] != dropped[1]).any()  # rows of the batch have their own
    plain = dropout(tf.ones(shape), 0.4, SEED).numpy()
    assert (plain != plain[..., :1, :]).any()


def test_words_are_dropped_everywhere_or_nowhere(rng):
    tokens = rng.integers(0, 40, [8, 100])
    embedded = rng.normal(size=[8, 100, 6]).astype("float32")
    scale = token_dropout(tf.constant(embedded), tf.constant(tokens), 40, 0.3, SEED).numpy() / embedded
    np.testing.assert_allclose(scale, np.broadcast_to(scale[..., :1], scale.shape), rtol=1e-5)
    by_word = [np.unique(np.round(scale[tokens == word], 4)) for word in range(40)]
    assert all(len(values) == 1 for values in by_word)
    assert {float(values[0]) for values in by_word} == {0.0, np.round(np.float32(1 / 0.7), 4)}
    repeated = token_dropout(tf.constant(embedded), tf.constant(tokens), 40, 0.3, SEED).numpy() / embedded
    np.testing.assert_array_equal(repeated, scale)
    other = token_dropout(tf.constant(embedded), tf.constant(tokens), 40, 0.3, SEED + 1).numpy() / embedded
    assert (other != scale).any()


def test_mean_is_kept():
    tokens = tf.range(20_000)[None]
    assert abs(tf.reduce_mean(token_dropout(tf.ones([1, 20_000, 1]), tokens, 20_000, 0.3, SEED)) - 1) < 0.02
    assert abs(tf.reduce_mean(dropout(tf.ones([20_000, 4, 1]), 0.3, SEED, TIME)) - 1) < 0.02


def test_feed_forward_equals_numpy_with_its_own_masks(rng):
    """Both masks, seen through weights that pass them on one by one, are constant in time."""
    layer = FeedForward(6, dropout=0.5, variational=True, dtype="float64")
    layer.build((None, None, 6))
    layer.inner.kernel.assign(np.eye(6))
    layer.outer.kernel.assign(np.eye(6))
    hidden = np.abs(rng.normal(size=[40, 7, 6])) + 1
    scale = layer(hidden, seed=SEED, training=True) / hidden
    np.testing.assert_allclose(scale, np.broadcast_to(scale[:, :1], scale.shape), rtol=1e-12)
    assert set(np.unique(np.round(scale, 6))) == {0.0, 4.0}
    assert 0.6 < np.mean(scale == 0) < 0.9  # 1 - 1/4


def test_bits_are_those_of_the_formula():
    """Python's own integers, modulo 2^32."""
    seed = (123456789, -5)

    def fold(bits, distance):
        return bits ^ bits >> distance

    def expected(index):
        bits = (index * 0x9E3779B9 + seed[0]) % 2**32
        bits = (fold(bits, 16) ^ seed[1] * 0x85EBCA6B % 2**32) * 0x21F0AAAD % 2**32
        bits = fold(bits, 15) * 0x735A2D97 % 2**32
        return fold(bits, 15)

    bits = random_bits([3, 70], tf.constant(seed)).numpy()
    np.testing.assert_array_equal(bits, np.reshape([expected(index) for index in range(210)], [3, 70]))


def test_bits_look_random():
    """Every bit is set half of the time, whatever its neighbours; masks of two seeds, even shifted, are independent."""
    n = 2**16
    streams = [random_bits([n], tf.constant(seed)).numpy() for seed in ([3, 4], [4, 4], [3, 5], [3 - 0x61C88647, 5])]
    noise = 5 * 0.5 / n**0.5  # five standard deviations
    for bits in streams:
        one_by_one = (bits[:, None] >> np.arange(32, dtype="uint32") & 1).astype(bool)
        assert abs(one_by_one.mean(0) - 0.5).max() < noise
        for lag in (1, 2, 64, 512, 2048):
            assert abs((one_by_one[lag:] != one_by_one[:-lag]).mean(0) - 0.5).max() < 2 * noise
    masks = [bits < 0.1 * 2**32 for bits in streams]
    for mask in masks:
        assert abs(mask.mean() - 0.1) < 5 * (0.09 / n) ** 0.5
        np.testing.assert_allclose(mask.reshape(256, 256).mean(0).std(), (0.09 / 256) ** 0.5, rtol=0.2)
        np.testing.assert_allclose(mask.reshape(256, 256).mean(1).std(), (0.09 / 256) ** 0.5, rtol=0.2)
    # By its first word alone, the last seed's sequence would be the first's, one step on.
    for one, other, shift in ((0, 1, 0), (0, 2, 0), (1, 2, 0), (0, 3, 0), (0, 3, 1)):
        together = (masks[one][shift:] & masks[other][: n - shift]).mean()
        assert abs(together - 0.01) < 5 * (0.0099 / n) ** 0.5


def test_seeds_made_of_one_are_all_different():
    """Also of neighbouring seeds, and of those seeds' own: as many as a deep model's layers make."""
    parents = [tf.constant([step, replica]) for step in range(20) for replica in range(4)]
    children = [child for parent in parents for child in split_seed(parent, 30)]
    seeds = {tuple(seed.numpy()) for seed in [*parents, *children, *split_seed(children[0], 30)]}
    assert len(seeds) == 20 * 4 * 31 + 30
    words = np.array(sorted(seeds)).ravel()
    assert len(set(words)) > 0.99 * (len(words) - 20 * 4 * 2)
    assert split_seed(None, 3) == [None] * 3


def test_split_seeds_are_random_bits_of_their_seed():
    """Runs that go on with a later version have the same masks."""
    for seeds in (tf.constant([3, -4]), tf.constant([[3, -4], [5, 6]])):
        bits = random_bits([*seeds.shape[:-1], 7, 2], seeds)
        np.testing.assert_array_equal(tf.stack(split_seed(seeds, 7), axis=-2), tf.bitcast(bits, tf.int32))


@pytest.mark.xla
def test_compiled_masks_are_the_same():
    x = tf.ones([37, 53])
    compiled = tf.function(lambda: dropout(x, 0.3, SEED), jit_compile=True)()
    np.testing.assert_array_equal(compiled, dropout(x, 0.3, SEED))


@pytest.mark.parametrize("variational", [False, True])
def test_queries_keys_and_values_are_dropped_as_in_numpy(rng, variational):
    """The result is plain attention on projections times masks of their own, which all positions may share."""
    layer = RelMultiHeadAttention(2, 3, dropqkv=0.4, variational=variational, dtype="float64")
    layer.build((None, None, 6))
    seen, project = [], layer.project

    def watched(*arguments):
        seen.append(project(*arguments))
        return seen[-1]

    layer.project = watched
    hidden, mems = rng.normal(size=[2, 5, 6]), rng.normal(size=[2, 4, 6])
    seeds = tf.constant([[1, 2], [3, 4]])
    dropped = layer(hidden, mems, seed=seeds, training=True)
    shared = TIME if variational else None
    masked = [dropout(x, 0.4, seed, shared) for x, seed in zip(seen[0], split_seed(seeds, 4)[1:], strict=True)]
    for x, y in zip(seen[0], masked, strict=True):
        scale = np.round(y / x, 6)
        assert set(np.unique(scale)) == {0.0, round(1 / 0.6, 6)}
        kept = scale > 0
        assert (kept == kept[:, :, :1]).all() == variational
    layer.project = lambda *arguments: masked
    np.testing.assert_allclose(dropped, layer(hidden, mems), atol=1e-12)
    layer.project = project
    np.testing.assert_array_equal(layer(hidden, mems, seed=seeds), layer(hidden, mems))  # only in training


@functools.cache
def hidden(dropout_sites, dropout=0.0):
    """The hidden states of a model with these rates, in training."""
    tokens = tf.constant(np.random.default_rng(0).integers(0, reference.SMALL.vocab_size, [2, 4]), tf.int32)
    keras.utils.set_random_seed(3)
    model = TransformerXL(dataclasses.replace(reference.SMALL, dropout=dropout, dropout_sites=dropout_sites))
    return model(tokens, seed=SEED, training=True)[0].numpy()


@pytest.mark.parametrize("site", Rates._fields)
def test_each_site_of_the_model_has_its_own_rate(site):
    """A site's rate changes the result, and the other sites' seeds and masks stay as they are."""
    assert np.abs(hidden(f"{site}:0.4") - hidden("")).max() > 1e-3
    others = ",".join(f"{name}:0.4" for name in Rates._fields if name not in (site, "qkv"))
    if site != "qkv":
        np.testing.assert_array_equal(hidden(others, 0.0), hidden(f"{site}:0", 0.4))

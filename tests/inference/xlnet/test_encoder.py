"""Texts to vectors with an XLNet."""

import numpy as np
import pytest
import tensorflow as tf
from random_xlnet import random_xlnet, with_prefix

from txl_tf.data.vocabularies import ByteVocabulary, XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.models.xlnet.model import Text

TEXTS = ["the River", ("the River 1,000,", "naive and the"), "", ("x", "the " * 40), "the"]


@pytest.fixture(scope="module")
def encoder():
    vocabulary = with_prefix(XLNetVocabulary)
    return Encoder(random_xlnet(vocab_size=vocabulary.vocab_size), vocabulary, jit_compile=False)


def test_texts_are_laid_out_as_officially_and_read_by_the_model(encoder):
    """Each text alone, without padding, through the model itself."""
    vocabulary, found = encoder.vocabulary, encoder(TEXTS)
    sep, cls = vocabulary.special.sep, vocabulary.special.cls
    for i, text in enumerate(TEXTS):
        a, b = (text, "") if isinstance(text, str) else text
        ids, segments = [*vocabulary.encode(a), sep], [0] * (len(vocabulary.encode(a)) + 1)
        if b:
            ids, segments = [*ids, *vocabulary.encode(b), sep], segments + [1] * (len(vocabulary.encode(b)) + 1)
        ids, segments = [*ids, cls], [*segments, 2]
        assert found.ids[i].tolist() == ids
        assert found.pieces[i][-2:] == ["<sep>", "<cls>"] and len(found.pieces[i]) == len(ids)
        hidden, _, _ = encoder.model(tf.constant([ids]), text=Text(tf.constant([segments])))
        np.testing.assert_allclose(found.hidden[i], hidden[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found.pooled[i], hidden[0, -1], rtol=0, atol=1e-5)
    first, mean = (encoder(TEXTS, pool=pool).pooled for pool in ("first", "mean"))
    for i, states in enumerate(found.hidden):
        np.testing.assert_allclose(first[i], states[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(mean[i], states.mean(axis=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings", [{"padding": "left"}, {"batch_size": 1}, {"batch_size": 2, "padding": "left"}])
def test_neither_padding_nor_the_batch_changes_a_vector(encoder, settings):
    for pool in ("last", "first", "mean"):
        expected, found = encoder(TEXTS, pool=pool), encoder(TEXTS, pool=pool, **settings)
        np.testing.assert_allclose(found.pooled, expected.pooled, rtol=0, atol=1e-5)
        for one, other in zip(found.hidden, expected.hidden, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_one_text_or_one_pair_or_none(encoder):
    everything = encoder(TEXTS)
    for i in (0, 1):
        np.testing.assert_allclose(encoder(TEXTS[i]).pooled, everything.pooled[i : i + 1], rtol=0, atol=1e-5)
    assert encoder([]).pooled.shape == (0, 16) and encoder([]).hidden == []


def test_xla_changes_nothing(encoder):
    compiled = Encoder(encoder.model, encoder.vocabulary)
    np.testing.assert_allclose(compiled(TEXTS[:2]).pooled, encoder(TEXTS[:2]).pooled, rtol=0, atol=1e-4)


def test_wrong_requests(encoder):
    for settings, reason in [({"pool": "max"}, "pool='max'"), ({"padding": "x"}, "padding"), ({"batch_size": 0}, "0")]:
        with pytest.raises(InputError, match=reason):
            encoder(TEXTS, **settings)
    with pytest.raises(InputError, match="has no separator token"):
        Encoder(random_xlnet(), ByteVocabulary())

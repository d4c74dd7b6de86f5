"""Filling blanks and scoring texts with an XLNet, against brute force."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from random_xlnet import random_xlnet, with_prefix

from txl_tf.data.vocabularies import ByteVocabulary, CharVocabulary, SubwordVocabulary, WordVocabulary, XLNetVocabulary
from txl_tf.data.vocabularies.subword_training import train
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.blanks import ANY, GLUED, PADDING, SPACED, allowed_tokens, encode_parts, split_at_blanks
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.models.xlnet.model import Text

LETTERS = "abcde ."
V = len(LETTERS)
TEXT, BLANKS = "ab____cd____e", (2, 5)
ORDERS = {"left_to_right": (0, 1), "right_to_left": (1, 0), "1,0": (1, 0)}


@pytest.fixture(scope="module")
def letters():
    """A FillIn over seven letters, in float64."""
    model = random_xlnet(vocab_size=V, dtype="float64")
    return FillIn(model, CharVocabulary(LETTERS), jit_compile=False)


@functools.cache
def in_a_graph(model):
    """(row [1, T], visible [1, T, T], place) -> log p [V] of the token at the place, traced once for each T."""

    @tf.function(autograph=False)
    def log_prob(row, visible, place):
        _, query, _ = model(row, text=Text(visible=visible), targets=place[None, None])
        return model.log_prob(query)[0, 0]

    return log_prob


def one_by_one(model, ids, known, place):
    """log p [V] of the token at a place given the known ones, with nothing but those in the model's input."""
    kept = [i for i in range(len(ids)) if known[i] or i == place]
    row = np.where(np.arange(len(ids)) == place, 0, ids)
    visible = np.zeros([1, len(ids), len(ids)], bool)
    visible[0][:, [i for i in kept if i != place]] = True
    return in_a_graph(model)(tf.constant(row[None], tf.int32), tf.constant(visible), tf.constant(place)).numpy()


def brute_force(model, ids, places, order):
    """{filling: log-probability} of all fillings of two places; order: their numbers, or "confident"."""
    ids, found = np.array(ids), {}
    known = ~np.isin(np.arange(len(ids)), places)
    if order == "confident":
        first = max(range(2), key=lambda i: one_by_one(model, ids, known, places[i]).max())
        order = (first, 1 - first)
    first, second = (places[i] for i in order)
    log_first = one_by_one(model, ids, known, first)
    for token in range(V):
        row = np.where(np.arange(len(ids)) == first, token, ids)
        log_second = one_by_one(model, row, known | (np.arange(len(ids)) == first), second)
        for other in range(V):
            filling = (token, other) if first < second else (other, token)
            found[filling] = log_first[token] + log_second[other]
    return found


@pytest.mark.parametrize("order", [*ORDERS, "confident"])
def test_fillings_and_their_probabilities_are_those_of_brute_force(letters, order):
    ids = letters.vocabulary.encode("abacdae")
    expected = brute_force(letters.model, ids, BLANKS, ORDERS.get(order, order))
    found = letters.fill(TEXT, order=order, beam_size=V * V, free=True)
    assert np.sum(np.exp([filling.total for filling in found])) == pytest.approx(1, abs=1e-9)
    ranked = sorted(expected, key=lambda filling: -expected[filling])
    assert [tuple(filling.ids) for filling in found] == ranked
    for filling in found:
        assert filling.total == pytest.approx(expected[tuple(filling.ids)], abs=1e-9)
        assert filling.total == pytest.approx(filling.log_probs.sum(), abs=1e-9)
    first, second = (LETTERS[token] for token in ranked[0])
    assert found[0].text == f"ab{first}cd{second}e"
    assert found[0].marked() == f"ab[{first}]cd[{second}]e"
    best = letters.fill(TEXT, order=order, beam_size=V * V, top=3, free=True)
    assert [filling.text for filling in best] == [filling.text for filling in found[:3]]


def test_orders_differ_and_a_narrow_beam_is_greedy(letters):
    ids = letters.vocabulary.encode("abacdae")
    totals = [letters.fill(TEXT, order=order, beam_size=V * V, free=True)[0].total for order in list(ORDERS)[:2]]
    assert totals[0] != pytest.approx(totals[1], abs=1e-6)
    known = ~np.isin(np.arange(7), BLANKS)
    first = one_by_one(letters.model, ids, known, 2).argmax()
    row = np.where(np.arange(7) == 2, first, ids)
    second = one_by_one(letters.model, row, known | (np.arange(7) == 2), 5).argmax()
    (greedy,) = letters.fill(TEXT, beam_size=1, free=True)
    assert greedy.ids.tolist() == [first, second]


def test_many_texts_are_as_each_alone(letters):
    """Lengths and numbers of blanks differ, in every kind of order; more than eight blanks are read in two passes."""
    texts = [TEXT, "a____*10 b", "____"]
    for order in ("left_to_right", "right_to_left", "confident"):
        together = letters.fill(texts, order=order, beam_size=3)
        for text, found in zip(texts, together, strict=True):
            alone = letters.fill(text, order=order, beam_size=3)
            assert [filling.text for filling in found] == [filling.text for filling in alone]
            np.testing.assert_allclose([f.total for f in found], [f.total for f in alone], atol=1e-9)
    assert len(together[1][0].ids) == 10
    assert letters.fill([]) == []


@pytest.mark.parametrize("order", ["left_to_right", "confident"])
def test_what_stands_at_a_blank_has_no_effect(letters, order):
    """Neither its id nor padding's: nothing moves, whatever the placeholders are."""
    filler, ids = letters.filler, letters.vocabulary.encode("abacdae")
    known = np.zeros([1, 64], bool)
    known[0, :7] = ~np.isin(np.arange(7), BLANKS)
    targets = tf.constant([[2, 5]] if order == "confident" else [[2]])
    rng, found = np.random.default_rng(0), []
    for _ in range(3):
        row = rng.integers(0, V, 64)
        row[:7] = np.where(known[0, :7], ids, row[:7])
        found.append(filler.predict(tf.constant(row[None], tf.int32), tf.constant(known), targets).numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_pseudo_log_likelihood_is_each_token_given_all_others(letters):
    text = "abacdae. b" * 2
    ids = letters.vocabulary.encode(text)
    everything = np.ones(len(ids), bool)
    expected = [
        one_by_one(letters.model, ids, everything & (np.arange(len(ids)) != i), i)[token] for i, token in enumerate(ids)
    ]
    score = letters.score(text)
    assert score.ids.tolist() == ids.tolist()
    np.testing.assert_allclose(score.log_probs, expected, atol=1e-9)
    assert score.total == pytest.approx(sum(expected), abs=1e-8)
    assert [one.total for one in letters.score([text, "a", ""])][:1] == pytest.approx([score.total])
    assert letters.score("").total == 0


def test_a_context_is_read_in_front(letters):
    end = LETTERS[letters.vocabulary.start_token]
    beside = letters.fill("b.a" + end + TEXT, beam_size=3)
    found = letters.fill(TEXT, beam_size=3, context="b.a")
    assert [filling.ids.tolist() for filling in found] == [filling.ids.tolist() for filling in beside]
    np.testing.assert_allclose([f.total for f in found], [f.total for f in beside], atol=1e-9)
    assert found[0].text.startswith("ab")
    whole = letters.score("b.a" + end + "abc")
    np.testing.assert_allclose(letters.score("abc", context="b.a").log_probs, whole.log_probs[4:], atol=1e-9)


def test_xla_changes_nothing():
    model = random_xlnet()
    found = [FillIn(model, ByteVocabulary(), jit_compile=compiled).fill("a ____ b") for compiled in (False, True)]
    assert [filling.ids.tolist() for filling in found[0]] == [filling.ids.tolist() for filling in found[1]]
    np.testing.assert_allclose([f.total for f in found[0]], [f.total for f in found[1]], atol=1e-4)


def encoded(vocabulary, text, marker="____"):
    parts, counts = split_at_blanks(tf.constant([text]), marker)
    return encode_parts(vocabulary, parts, counts)[0].to_list()[0]


def names(vocabulary, ids):
    return [token if token < 0 else vocabulary.pieces[token] for token in ids]


def test_blanks_of_bytes_and_words():
    assert encoded(ByteVocabulary(), "a ____*2.____") == [97, 32, ANY, ANY, 46, ANY]
    assert encoded(ByteVocabulary(), "*3?x*2?", "?") == [42, 51, ANY, 120, 42, 50, ANY]
    words = WordVocabulary(["the", "end", "is", "<eos>", "<unk>"])
    assert encoded(words, "the ____ is\n____*3") == [0, ANY, 2, 3, ANY, ANY, ANY]
    model = FillIn(random_xlnet(vocab_size=5), words, jit_compile=False)
    assert {filling.ids[0] for filling in model.fill("the ____ is")} == {0, 1, 2, 3}  # not <unk>
    assert model.fill("the ____ is", top=1)[0].pieces[::2] == ("the ", " is")


def test_spaces_belong_to_the_tokens_that_fill():
    """Models without a space in front of a text, and with one, as XLNet's."""
    plain = SubwordVocabulary(train({"the": 9, "river": 9, "is": 3}, 283).model)
    at = names(plain, encoded(plain, "the ____ is ____."))
    the, behind = names(plain, plain.encode("the")), names(plain, plain.encode(" is"))
    assert at == [*the, SPACED, *behind, SPACED, *names(plain, plain.encode("."))]
    assert encoded(plain, "____")[0] == GLUED and encoded(plain, "____ ____")[1] == SPACED
    assert encoded(plain, "____*2")[1] == ANY
    assert encoded(plain, "the _______.") == encoded(plain, "the ____.")
    assert encoded(plain, "a ________*2 b") == encoded(plain, "a ____*2 b")
    for vocabulary in (with_prefix(XLNetVocabulary), with_prefix()):
        the, behind = names(vocabulary, vocabulary.encode("the")), names(vocabulary, vocabulary.encode("is"))
        assert names(vocabulary, encoded(vocabulary, "the ____ is ____*2")) == [*the, SPACED, *behind, SPACED, ANY]
        glued = names(vocabulary, encoded(vocabulary, "the ____River"))
        assert glued[: len(the) + 1] == [*the, SPACED] and not glued[len(the) + 1].startswith("\u2581")
        assert "<eop>" not in glued
        assert encoded(vocabulary, "____")[0] == SPACED and GLUED in encoded(vocabulary, "the____")


def test_what_is_written_fits_the_spaces():
    vocabulary = with_prefix(XLNetVocabulary)
    model = FillIn(random_xlnet(vocab_size=vocabulary.vocab_size), vocabulary, jit_compile=False)
    for filling in model.fill("the ____ is", beam_size=4):
        assert vocabulary.decode_bytes(filling.ids).startswith(b" ")
        assert filling.text == f"the {vocabulary.decode(filling.ids)} is"
    for filling in model.fill("the____ is", beam_size=4):
        assert filling.text == f"the{vocabulary.decode_bytes(filling.ids).decode()} is" and filling.text[3] != " "
    everywhere, glued, spaced = allowed_tokens(vocabulary)
    assert not everywhere[[vocabulary.special.sep, vocabulary.special.unknown]].any()
    np.testing.assert_array_equal(everywhere, glued ^ spaced)
    assert min(ANY, GLUED, SPACED) > PADDING


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        ("abc", {}, "no blank in 'abc'"),
        (["a____", "abc"], {}, "no blank in 'abc'"),
        ("____*0", {}, "a blank cannot have 0 tokens"),
        ("____", {"beam_size": 0}, "beam_size=0"),
        ("____", {"top": 9}, "top=9"),
        ("____", {"order": "upward"}, "order='upward' must be"),
        ("____ ____", {"order": [0]}, "every number from 0 to 1"),
        (["____", "____ ____"], {"order": [1, 0]}, "every number from 0 to 0"),
    ],
)
def test_wrong_requests(letters, text, settings, reason):
    with pytest.raises(InputError, match=reason):
        letters.fill(text, **settings)


def test_every_filling_of_three_tokens_adds_up(letters):
    found = letters.fill("a____*3", order="2,0,1", beam_size=V**3, free=True)
    assert len({tuple(filling.ids) for filling in found}) == V**3
    assert np.sum(np.exp([filling.total for filling in found])) == pytest.approx(1, abs=1e-9)
    assert {tuple(filling.ids) for filling in found} == set(itertools.product(range(V), repeat=3))

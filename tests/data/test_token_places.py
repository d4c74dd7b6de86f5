"""The places of tokens in their text."""

import functools
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from xlnet_tokens import clean, generated_lines, small_model

from txl_tf.data.vocabularies import SubwordVocabulary, XLNetVocabulary
from txl_tf.data.vocabularies.sentence_pieces import SPACE

OPTIONS = {
    "cased": {},
    "uncased": {"lower_case": True},
    "unchanged": {"keep_accents": True, "lower_case": True, "remove_space": False},
}


@functools.cache
def model():
    return small_model()


@functools.cache
def texts():
    """Lines, paragraphs of several, and random characters of all kinds."""
    lines, rng = generated_lines(120, seed=3), np.random.default_rng(4)
    paragraphs = ["\n".join(lines[i : i + 3]) for i in range(0, 60, 3)]
    codes = rng.integers(1, 0x30000, [60, 12])
    strange = [
        "".join(chr(code) for code in row if unicodedata.category(chr(code)) not in ("Cn", "Cs")) for row in codes
    ]
    hard = [
        "",
        " ",
        "\n",
        "a\r\nb\rc\n",
        "\ud800x",
        "the\u200bRiver",
        "\u0301a",
        "``''``",
        "'''",
        "e\u0301\u0327 ",
        "İ 1,000,",
    ]
    return [*lines, *paragraphs, *strange, *hard, "".join(strange)]


@functools.cache
def vocabulary(name):
    """Each is made once: its graph takes a second to trace."""
    return SubwordVocabulary(model()) if name == "sentencepiece" else XLNetVocabulary(model(), **OPTIONS[name])


@pytest.mark.parametrize("name", [*OPTIONS, "sentencepiece"])
def test_ids_are_those_of_encode_and_places_are_in_order(name):
    own = vocabulary(name)
    for text, pieces in zip(texts(), own.encode_with_places(texts()), strict=True):
        assert pieces.ids.tolist() == own.encode(text.encode("utf-8", "replace")).tolist()
        assert len(pieces.begin) == len(pieces.end) == len(pieces.ids)
        assert np.all(pieces.begin <= pieces.end) and np.all(np.diff(pieces.begin) >= 0)
        assert np.all(pieces.begin >= 0) and np.all(pieces.end <= len(text))
        for begin, end in zip(pieces.begin, pieces.end, strict=True):
            assert text[begin:end] == text[begin:end].strip()
    assert own.encode_with_places([]) == []
    assert own.encode_with_places([""])[0].ids.shape == (0,)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_token_says_what_stands_at_its_place(name):
    """The characters at a token's place, cleaned and normalised as SentencePiece does, are the token."""
    own, checked = vocabulary(name), 0
    for text, pieces in zip(texts(), own.encode_with_places(texts()), strict=True):
        if len(set(zip(pieces.begin, pieces.end, strict=True))) < len(pieces.ids):
            continue  # one character became several tokens
        for token, begin, end in zip(*pieces, strict=True):
            if token != own.special.unknown:
                found = unicodedata.normalize("NFKC", clean(text[begin:end], **OPTIONS[name])).strip()
                assert found == own.pieces[token].replace(SPACE, ""), (text, text[begin:end])
                checked += 1
    assert checked > 400


@pytest.mark.parametrize("name", ["cased", "uncased"])
def test_every_word_is_covered(name):
    """From the first token of a word to its last, tokens cover it from its first character to its last."""
    own, lines = vocabulary(name), generated_lines(120, seed=3)
    for text, pieces in zip(lines, own.encode_with_places(lines), strict=True):
        covered = np.zeros(len(text), bool)
        for begin, end in zip(pieces.begin, pieces.end, strict=True):
            covered[begin:end] = True
        assert covered.tolist() == [not character.isspace() and character != SPACE for character in text]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("  the \t River", ["the", "River"]),
        ("``so''", ["``", "so", "''"]),
        ("e\u0301te\u0301 ", ["e\u0301te\u0301"]),
        ("naïve x²,", ["naïve", "x²", ","]),
        ("the\n\n River", ["the", "River"]),
        ("5, the", ["5", ",", "the"]),
        ("a\uff11,\uff12\uff10\uff10,b", ["a", "\uff11", ",", "\uff12\uff10\uff10", ",", "b"]),
    ],
)
def test_hard_cases_by_hand(text, wanted):
    """Each of these parts begins where a token begins and ends where one ends."""
    [pieces] = vocabulary("cased").encode_with_places([text])
    place = 0
    for part in wanted:
        place = text.index(part, place)
        assert place in pieces.begin
        place += len(part)
        assert place in pieces.end


def test_the_comma_rule_splits_a_token_s_place():
    """Every token that the rule replaces is split into the characters before the comma, and the comma."""
    own, raw = vocabulary("cased"), vocabulary("sentencepiece")
    lines, split = generated_lines(200, seed=5), 0
    for text, before, after in zip(lines, raw.encode_with_places(lines), own.encode_with_places(lines), strict=True):
        affected = [
            i
            for i, token in enumerate(before.ids)
            if raw.pieces[token][-2:-1].isdigit() and raw.pieces[token][-1] == ","
        ]
        for i in affected:
            begin, end = before.begin[i], before.end[i]
            assert text[end - 1] == ","
            assert end - 1 in after.begin and end - 1 in after.end and begin in after.begin
            split += 1
    assert split > 20


def test_a_seed_that_is_set_later_does_no_harm():
    """tf.random.set_seed destroys the resources of eager ops, such as SentencePiece's model."""
    own = XLNetVocabulary(model())
    wanted = own.encode_with_places(["the River"])[0].ids.tolist()
    in_graph = tf.function(own.encode_tensor)
    tf.random.set_seed(1)
    assert own.encode("the River").tolist() == own.encode_with_places(["the River"])[0].ids.tolist() == wanted
    assert in_graph(tf.constant(["the River"])).to_list() == [wanted]


@pytest.mark.parametrize("name", ["cased", "unchanged", "sentencepiece"])
def test_places_in_the_graph_are_the_same(name):
    own = XLNetVocabulary(model(), keep_accents=True, remove_space=False) if name == "unchanged" else vocabulary(name)
    function = tf.function(own.encode_with_places_tensor, input_signature=[tf.TensorSpec([None], tf.string)])
    found = function(tf.constant([text.encode("utf-8", "replace") for text in texts()]))
    for text, pieces, *parts in zip(
        texts(), own.encode_with_places(texts()), *(part.to_list() for part in found), strict=True
    ):
        assert parts == [part.tolist() for part in pieces], repr(text)
    nothing = function(tf.constant(["", " "]))
    assert [part.to_list() for part in nothing] == [[[], []]] * 3 or isinstance(own, SubwordVocabulary)


def test_lower_case_in_the_graph():
    own = XLNetVocabulary(model(), lower_case=True)
    given = ["The RIVER 1,000, \u00c5ngstr\u00f6m", "``So''", "\u039f\u0394\u039f\u03a3 \u03a3\u0391"]
    found = own.encode_with_places_tensor(tf.constant(given))
    for pieces, *parts in zip(own.encode_with_places(given), *(part.to_list() for part in found), strict=True):
        assert parts == [part.tolist() for part in pieces]

"""Half a surrogate pair becomes U+FFFD in every text that a user gives, and this is said once."""

import pytest
import random_xlnet

from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.storage import surrogates
from txl_tf.storage.strict_json import parse_json
from txl_tf.storage.surrogates import whole

HALF, WHOLE = "so \ud83d one", "so \ufffd one"


@pytest.fixture(scope="module")
def xlnet():
    vocabulary = random_xlnet.with_prefix(XLNetVocabulary)
    return random_xlnet.random_xlnet(vocab_size=vocabulary.vocab_size), vocabulary


def test_halves_are_replaced_and_pairs_are_joined(capsys):
    surrogates._say_once.cache_clear()
    for text in ("", "caf\u00e9 \U0001f600", "\ufffd"):
        assert whole(text) is text
    assert whole("a \ud83d\ude00") == "a \U0001f600" and not capsys.readouterr().err
    assert whole("\ude00\ud83d \ud83d\ud83d\ude00") == "\ufffd\ufffd \ufffd\U0001f600"
    whole(HALF)
    assert capsys.readouterr().err.splitlines() == [
        "half a surrogate pair (such as half an emoji) is not a character: it is read as U+FFFD"
    ]


def test_json_holds_none():
    assert parse_json('{"a\\udc00": ["\\ud83d", {"b": "\\ud83d\\ude00"}, 1, null]}', "x") == {
        "a\ufffd": ["\ufffd", {"b": "\U0001f600"}, 1, None]
    }
    assert parse_json(b'"\\uD83D"', "x") == "\ufffd"


def test_texts_of_fill_score_and_encode(xlnet):
    filler, encoder = FillIn(*xlnet, jit_compile=False), Encoder(*xlnet, jit_compile=False)
    for text, same in ((HALF, WHOLE), ([HALF], [WHOLE])):
        first, second = filler.score(text, context=HALF), filler.score(same, context=WHOLE)
        assert str(first) == str(second)
    assert filler.fill(f"{HALF} ____", beam_size=1)[0].text == filler.fill(f"{WHOLE} ____", beam_size=1)[0].text
    assert encoder([HALF, (HALF, HALF)]).pieces == encoder([WHOLE, (WHOLE, WHOLE)]).pieces

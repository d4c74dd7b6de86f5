import pytest

from txl_tf.errors import InputError
from txl_tf.layers.dropout_rates import Rates
from txl_tf.models.transformer_xl.config import TransformerXLConfig


def test_one_rate_is_that_of_all_sites_but_queries_keys_and_values():
    assert Rates.of(0.3) == Rates(0.3, 0.3, 0.0, 0.3, 0.3, 0.3)
    assert TransformerXLConfig(dropout=0.3).rates == Rates.of(0.3)
    assert Rates.of([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == Rates(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def test_sites_that_are_given_take_their_own_rates():
    rates = TransformerXLConfig(dropout=0.2, dropout_sites="input:0.6,qkv:0.1,output:0").rates
    assert rates == Rates(0.6, 0.2, 0.1, 0.2, 0.2, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax:0.1", r"'softmax:0.1' must be SITE:RATE, with a SITE of input, positions, qkv"),
        ("input", r"'input' must be SITE:RATE"),
        ("input:0.1,input:0.2", "has input twice"),
        ("input:much", "the rate of input must be a number at least 0 and below 1"),
        ("input:1", "the rate of input must be a number at least 0 and below 1"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        TransformerXLConfig(dropout_sites=text)

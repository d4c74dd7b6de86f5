import numpy as np
import pytest

from txl_tf.data import encoders

LONG = "incomprehensibilities"
SPACES = "\t\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def tokens(text):
    return text.replace("\n", " \n ").replace(" \n ", " <end> ").split()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "the cat\n sat  on\n\nthe mat",
        f"{LONG} {LONG}s {LONG[:8]} {LONG[:9]} {LONG[:16]} {LONG[:17]} {LONG[:8]}",
        "a" + "b".join(SPACES) + "c\u200bd\ufeffe\x00f",
        "日本\u3000é Â\xa0à ã \xc2\n",
        "\0 \0\0 \0",
    ],
)
def test_tokens_are_those_of_str_split(text):
    numbers = encoders.WordNumbers()
    ids = numbers.of(text)
    names = ["<end>" if word == "\n" else word for word in numbers]
    assert ids.dtype == np.int32 and [names[i] for i in ids] == tokens(text)
    assert list(dict.fromkeys(tokens(text))) == names  # numbered as they appear


def test_a_word_keeps_its_number_in_later_blocks(rng):
    draws = rng.zipf(1.1, size=(30, 2_000)) % 6_000
    blocks = [" ".join(f"w{number:x}" * (1 + number % 3) for number in block) for block in draws]
    numbers = encoders.WordNumbers()
    ids = np.concatenate([numbers.of(block) for block in blocks])
    text = " ".join(blocks).split()
    found = list(numbers)
    assert found == list(dict.fromkeys(text))
    assert [found[i] for i in ids] == text

import itertools

import numpy as np
import pytest

from txl_tf.data import words

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
    numbers = words.WordNumbers()
    ((key, ids),) = words.number_blocks([("k", text.encode())], numbers)
    assert key == "k"
    names = ["<end>" if word == b"\n" else word.decode() for word in numbers.words]
    assert [names[i] for i in ids] == tokens(text)
    assert list(dict.fromkeys(tokens(text))) == names  # numbered as they appear


def test_many_blocks_with_many_words(rng):
    """More words than the first table holds, in blocks that are under way at the same time."""
    draws = rng.zipf(1.1, size=(30, 20_000)) % 60_000
    blocks = [" ".join(f"w{number:x}" * (1 + number % 3) for number in block).encode() for block in draws]
    numbers = words.WordNumbers()
    ids = np.concatenate([ids for _, ids in words.number_blocks(enumerate(blocks), numbers)])
    text = b" ".join(blocks).split()
    assert len(numbers.words) == len(set(text)) > 20_000
    assert numbers.words == list(dict.fromkeys(text))
    assert [numbers.words[i] for i in ids] == text


def test_one_block_with_more_words_than_the_table_holds():
    block = " ".join(f"{number:x}" for number in range(300_000)).encode()
    numbers = words.WordNumbers()
    ((_, ids),) = words.number_blocks([(0, block)], numbers)
    np.testing.assert_array_equal(ids, np.arange(300_000))
    np.testing.assert_array_equal(numbers.look_up(words.split_words(block)[3]), ids)


def test_in_order_is_lazy_and_keeps_order():
    taken = []

    def items():
        for i in itertools.count():
            taken.append(i)
            yield i

    results = words.in_order(lambda i: i * i, items(), workers=2)
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    assert len(taken) < 12
    results.close()


def test_errors_come_out():
    with pytest.raises(ZeroDivisionError):
        list(words.in_order(lambda i: 1 // i, [1, 0]))

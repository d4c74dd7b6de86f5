"""Methods of a list of texts that take one text, too."""

import pytest

from txl_tf.inference.one_or_all import one_or_all


class Counter:
    """Counts characters."""

    @one_or_all
    def count(self, texts, times=1, *, more=0):
        return [times * len(text) + more for text in texts]


def test_one_text_has_one_result_and_a_list_has_a_list():
    counter = Counter()
    assert counter.count("abc") == counter.count(texts="abc") == 3
    assert counter.count(["abc"], 2, more=1) == [7] and counter.count(("a", "bc"), times=2) == [2, 4]
    assert counter.count([]) == []


def test_half_a_surrogate_pair_is_replaced():
    class Echo:
        @one_or_all
        def echo(self, texts):
            return texts

    assert Echo().echo("a\ud83d") == "a\ufffd"


@pytest.mark.parametrize("given", [{}, {"texts": "a", "other": 1}])
def test_wrong_arguments_are_a_type_error(given):
    with pytest.raises(TypeError):
        Counter().count(**given)

import itertools

import pytest

from txl_tf.data.threads import in_order


def test_in_order_is_lazy_and_keeps_order():
    taken = []

    def items():
        for i in itertools.count():
            taken.append(i)
            yield i

    results = in_order(lambda i: i * i, items(), workers=2)
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    assert len(taken) < 12
    results.close()


def test_errors_come_out():
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // i, [1, 0]))

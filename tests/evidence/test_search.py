"""The search for the largest batch per core finds it, in few attempts."""

import numpy as np
import pytest
from aot.search import largest

from txl_tf.errors import InputError


def attempts(limit, start):
    """The sizes that a search tries where memory is nearly linear and `limit` is the largest that fits."""
    tried = []

    def attempt(size):
        tried.append(size)
        return size <= limit, 1000 + 100 * size + 30 * (size % 3), 1000 + 100 * limit + 80

    assert largest(attempt, start) == limit
    return tried


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 31, 100])
@pytest.mark.parametrize("start", [1, 4, 64])
def test_largest_is_found_in_few_attempts(limit, start):
    tried = attempts(limit, start)
    assert len(tried) == len(set(tried)) <= 7


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("start", [1, 4, 64, 500])
def test_memory_that_jumps_costs_few_attempts_more(seed, start):
    jumps, tried = np.random.default_rng(seed).uniform(-0.03, 0.03, 10_000), {}

    def attempt(size):
        wanted = 1000 + 100 * size * (1 + jumps[size])
        tried[size] = wanted <= 14_000
        return tried[size], wanted, 14_000

    found = largest(attempt, start)
    assert tried[found] and not tried[found + 1] and len(tried) <= 14


def test_memory_that_falls_near_the_limit_is_searched_by_halving():
    """What enwik8_large with two layers wanted of 16.91 GB, a line where it was not compiled."""
    measured = {128: 13.17, 201: 15.76, 211: 15.25, 213: 15.07, 223: 17.51, 256: 19.72}
    tried = []

    def attempt(size):
        tried.append(size)
        wanted = np.interp(size, list(measured), list(measured.values()))
        return wanted <= 16.91, wanted, 16.91

    assert largest(attempt, 128) == 220
    assert tried[:4] == [128, 256, 201, 223] and len(tried) <= 9


def test_nothing_fits():
    with pytest.raises(InputError, match="not even one lane"):
        largest(lambda size: (False, 100 + size, 50), 4)

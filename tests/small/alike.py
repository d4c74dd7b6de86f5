"""Compares results of the same model by different commits."""

import re

import pytest

NUMBER = re.compile(r"\d+\.\d+")


def assert_like(found, expected, where="", **tolerance):
    """Texts and whole numbers as expected, other numbers by the tolerance of pytest.approx; new fields do not count.

    Numbers with a decimal point inside of texts, such as a loss in a sentence, count as numbers.
    """
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in found, f"{where}: no {name}"
            assert_like(found[name], value, f"{where}/{name}", **tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_like(found[i], value, f"{where}/{i}", **tolerance)
    elif isinstance(expected, str) and NUMBER.search(expected):
        assert NUMBER.sub("#", found) == NUMBER.sub("#", expected), where
        assert_like(*(list(map(float, NUMBER.findall(text))) for text in (found, expected)), where, **tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, **tolerance), where
    else:
        assert found == expected, where

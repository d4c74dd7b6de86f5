"""Compares results of the same model by different commits."""

import pytest


def assert_like(found, expected, where="", **tolerance):
    """Texts and whole numbers as expected, other numbers by the tolerance of pytest.approx; new fields do not count."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in found, f"{where}: no {name}"
            assert_like(found[name], value, f"{where}/{name}", **tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_like(found[i], value, f"{where}/{i}", **tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, **tolerance), where
    else:
        assert found == expected, where

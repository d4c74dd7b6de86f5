"""Dropout rates of single sites, as a setting gives them: "input:0.6,qkv:0.2"."""

from __future__ import annotations

import math
from collections.abc import Collection

from txl_tf.errors import InputError


def given_rates(text: str, sites: Collection[str]) -> dict[str, float]:
    """The rates in the text of `dropout_sites`, by site.

    InputError for an unknown site, one given twice, or a rate that is not in [0, 1).
    """
    given: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        site, colon, number = part.partition(":")
        if not colon or site not in sites:
            raise InputError(f"dropout_sites={text}: {part!r} must be SITE:RATE, with a SITE of {', '.join(sites)}")
        if site in given:
            raise InputError(f"dropout_sites={text} has {site} twice")
        given[site] = _rate(number)
        if not 0 <= given[site] < 1:
            raise InputError(f"dropout_sites={text}: the rate of {site} must be a number at least 0 and below 1")
    return given


def _rate(text: str) -> float:
    """The number, or NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan

"""Dropout rates by site: as one value, and as a setting gives them. Imports no TensorFlow, since settings use it."""

from __future__ import annotations

import math
import typing
from collections.abc import Collection, Sequence

from txl_tf.errors import InputError


class Rates(typing.NamedTuple):
    """The dropout rate of each site of a decoder.

    input: of the embedded segment.
    positions: of the encodings of positions.
    qkv: of queries, keys and values.
    attention: of attention's output, after its projection.
    feed_forward: in the feed-forward block, after its activation and after its output.
    output: of the last hidden states, before the softmax.
    """

    input: float = 0.0
    positions: float = 0.0
    qkv: float = 0.0
    attention: float = 0.0
    feed_forward: float = 0.0
    output: float = 0.0

    @classmethod
    def of(cls, rates: float | Sequence[float]) -> Rates:
        """Rates from a sequence with a number for each site, or from one number for all sites but qkv, which gets 0."""
        if isinstance(rates, int | float):
            return cls(**dict.fromkeys(cls._fields, rates))._replace(qkv=0.0)
        return cls(*rates)


def given_rates(text: str, sites: Collection[str]) -> dict[str, float]:
    """The rates in the text of `dropout_sites`, such as "input:0.6,qkv:0.2", by site.

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

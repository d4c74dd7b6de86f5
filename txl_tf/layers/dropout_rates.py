"""Dropout rates by site, as one value. Imports no TensorFlow, since settings use it."""

from __future__ import annotations

import typing
from collections.abc import Sequence


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

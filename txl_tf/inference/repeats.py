"""Equal prompts get different texts: each counts on from the seed of the one before it."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable


def repeats(prompts: Iterable[Hashable], earlier: collections.Counter[Hashable] | None = None) -> list[int]:
    """How many equal prompts came before each; `earlier` counts those of calls before, and is counted on."""
    earlier, found = collections.Counter() if earlier is None else earlier, []
    for prompt in prompts:
        found.append(earlier[prompt])
        earlier[prompt] += 1
    return found

"""Parts of a set of labelled examples: one to evaluate on, the others to learn from.

Every class has its share in each part. Examples with the same text stay together: a model must not be evaluated on a
text that it learned by heart. No TensorFlow is loaded.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Hashable, Sequence
from typing import Any

from txl_tf.data.tables.table import Rows
from txl_tf.tasks.base import FineTuning

TENTHS = 10
"""The number of parts, one of which is held out."""


def parts(task: FineTuning, rows: Rows[Any], count: int, seed: int) -> list[list[int]]:
    """The numbers of the rows of each of `count` parts, in order; there are no more parts than rows.

    A row whose class has no other text is in no part: without any one part, the others must still have every class.
    Texts are dealt out in an order by `seed`.
    """
    levels = task.levels(rows, count)
    texts: dict[Hashable, list[int]] = {}
    for i, item in enumerate(rows):
        texts.setdefault(task.group(item), []).append(i)
    strata: dict[Hashable, list[list[int]]] = {}
    for group in texts.values():
        strata.setdefault(frozenset(levels[i] for i in group), []).append(group)
    found: list[list[int]] = [[] for _ in range(min(count, len(rows)))]
    draw, dealt = random.Random(seed), 0
    for groups in strata.values():
        draw.shuffle(groups)
        for group in groups if len(groups) > 1 else ():
            found[dealt % count] += group
            dealt += 1
    return [sorted(part) for part in found]


def parted(rows: Rows[Any], numbers: Sequence[int]) -> tuple[Rows[Any], Rows[Any]]:
    """The rows without those of these numbers, which keep what is known of all; and the rows of these numbers."""
    rest, taken = copy.copy(rows), set(numbers)
    rest[:] = [one for i, one in enumerate(rows) if i not in taken]
    return rest, type(rows)([rows[i] for i in numbers])

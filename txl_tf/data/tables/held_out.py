"""Parts of a set of labelled examples: one to evaluate on, the others to learn from.

Every class has its share in each part. Examples with the same text stay together: a model must not be evaluated on a
text that it learned by heart. No TensorFlow is loaded.
"""

from __future__ import annotations

import collections
import copy
import json
import random
from collections.abc import Hashable, Sequence
from typing import Any

TENTHS = 10
"""The number of parts, one of which is held out."""


def parts(rows: Any, count: int, seed: int) -> list[list[int]]:
    """The numbers of the rows of each of `count` parts, in order; there are no more parts than rows.

    A row whose class has no other text is in no part: without any one part, the others must still have every class. If
    labels are numbers, each `count` neighbours by size count as a class. Texts are dealt out in an order by `seed`.
    """
    rows = getattr(rows, "paragraphs", rows)
    texts: dict[Hashable, list[int]] = {}
    for i, row in enumerate(rows):
        texts.setdefault(_text(row), []).append(i)
    strata: dict[Hashable, list[list[int]]] = {}
    levels = _levels(rows, count, getattr(rows, "label_sets", False))
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


def _text(row: Any) -> Hashable:
    """The text of a row, or the article of a question: rows with the same one stay together."""
    for name in ("text", "article"):
        if hasattr(row, name):
            return (getattr(row, name), getattr(row, "text_b", ""))
    return row


def _levels(rows: Sequence[Any], count: int, label_sets: bool) -> list[Hashable]:
    """For each row the class by which it is dealt out: its label, or for numbers how large it is.

    Of a set of labels, a JSON list, the rarest counts.
    """
    labels = [str(getattr(row, "label", "")) for row in rows]
    if label_sets:
        sets = [json.loads(label) for label in labels]
        often = collections.Counter(label for one in sets for label in one)
        return [min(one, key=lambda label: (often[label], label), default="") for one in sets]
    if len(set(labels)) <= len(rows) / 2:
        return list(labels)
    try:
        ascending = sorted(range(len(rows)), key=lambda i: float(labels[i]))
    except ValueError:  # many classes, and not numbers
        return list(labels)
    levels: list[Hashable] = [0] * len(rows)
    for place, i in enumerate(ascending):
        levels[i] = place // count
    return levels


def parted(rows: Any, numbers: Sequence[int]) -> tuple[Any, Any]:
    """The rows with other numbers than these, and the rows with these numbers; both keep what is known of all."""
    taken, every = set(numbers), getattr(rows, "paragraphs", rows)
    left, part = [one for i, one in enumerate(every) if i not in taken], [every[i] for i in numbers]
    if every is not rows:
        return type(rows)(tuple(left)), type(rows)(tuple(part))
    rest = copy.copy(rows)
    rest[:] = left
    return rest, type(rows)(part)

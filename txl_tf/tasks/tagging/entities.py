"""Entities in sequences of tags, and their precision, recall and F1, as seqeval computes them.

In every scheme of `tagging.schemes` an entity begins at a tag that starts one, after a tag that closes one, and where
the kind changes; it ends before the next one, or before O. Where tags name no entities, such as parts of speech, every
word counts as one, and all three metrics are the accuracy.
"""

from __future__ import annotations

import collections
import itertools
import typing
from collections.abc import Sequence

import numpy as np

from txl_tf.metrics.panels import ByLabel
from txl_tf.tasks.tagging.schemes import meanings

Rows = Sequence[Sequence[int] | np.ndarray]


class Entity(typing.NamedTuple):
    """The words first to end (not included) of a sequence, and their kind."""

    kind: str
    first: int
    end: int


class Tags:
    """The meaning of tags, named by `labels` in the order of their numbers.

    Attributes:
        kinds: the kind of entity that each tag names, int [C]; NOTHING: none.
        names: of the kinds.
        starts: bool [C], whether an entity always begins at the tag.
        closes: bool [C], whether the next word is never of the same entity.
    """

    NOTHING = -1

    def __init__(self, labels: Sequence[str], scheme: str):
        found = meanings(labels, scheme)
        self.names = tuple(sorted({one.kind for one in found} - {""}))
        self.kinds = np.array([self.names.index(one.kind) if one.kind else self.NOTHING for one in found], np.int32)
        self.starts, self.closes = (np.array([getattr(one, name) for one in found]) for name in ("starts", "closes"))

    def entities(self, tags: Sequence[int] | np.ndarray) -> list[Entity]:
        """The entities of a sequence of tags, int [W], in order."""
        tags = np.asarray(tags, np.int64)
        kind = self.kinds[tags]
        new = self.starts[tags] | np.append(True, self.closes[tags[:-1]] | (kind[1:] != kind[:-1]))[: len(tags)]
        new |= kind == self.NOTHING
        limits = [*np.flatnonzero(new).tolist(), len(tags)]
        return [
            Entity(self.names[kind[first]], first, end)
            for first, end in itertools.pairwise(limits)
            if kind[first] != self.NOTHING
        ]


def entity_scores(labels: Sequence[str], right: Rows, found: Rows, scheme: str) -> dict[str, float]:
    """f1, precision and recall of the entities of all sequences, and the accuracy of their tags.

    An entity is found if its kind, its first and its last word are right. A quotient by 0 is 0. `right` and `found` are
    the numbers of the tags, int [W], of each sequence.
    """
    true, guessed = (_all(Tags(labels, scheme), rows) for rows in (right, found))
    both = len(true & guessed)
    precision, recall = (both / len(side) if side else 0.0 for side in (guessed, true))
    f1 = 2 * precision * recall / (precision + recall) if both else 0.0
    accuracy = float(np.mean(np.concatenate(list(right)) == np.concatenate(list(found))))
    return {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}


def by_kind(labels: Sequence[str], right: Rows, found: Rows, scheme: str) -> ByLabel:
    """How often each kind of entity is found rightly, there, and found; arguments as for `entity_scores`."""
    tags = Tags(labels, scheme)
    true, guessed = (_all(tags, rows) for rows in (right, found))
    counts = [collections.Counter(entity.kind for _, entity in some) for some in (true & guessed, true, guessed)]
    return ByLabel(tags.names, *(np.array([count[name] for name in tags.names]) for count in counts))


def mistakes(right: Sequence[Entity], found: Sequence[Entity]) -> list[tuple[Entity | None, Entity | None]]:
    """The entities of one text that are wrong, in pairs: one that is there, and one that was found in its place.

    They overlap; None: there is no such entity, or nothing was found.
    """
    extra, pairs = [one for one in found if one not in right], list[tuple[Entity | None, Entity | None]]()
    for one in (one for one in right if one not in found):
        other = next((other for other in extra if other.first < one.end and one.first < other.end), None)
        pairs.append((one, other))
        extra = [entity for entity in extra if entity is not other]
    return [*pairs, *((None, entity) for entity in extra)]


def _all(tags: Tags, rows: Rows) -> set[tuple[int, Entity]]:
    """The entities of all sequences, each with the number of its sequence."""
    return {(i, entity) for i, row in enumerate(rows) for entity in tags.entities(row)}

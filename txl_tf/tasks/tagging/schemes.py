"""Schemes of tags: what a tag says of the entity that its word belongs to; and scores of entities, as of seqeval.

A tag is O, or a letter of `PREFIXES`, a hyphen or underscore, and the kind of entity; or first the kind and then the
letter; or the letter alone. Such are IOB1, IOB2, IOBES, BILOU and BMEWO.

An entity begins at a tag that starts one, after a tag that closes one, and where the kind changes; it ends before the
next one, or before O. Where tags name no entities, such as parts of speech, every word counts as one, and precision,
recall and F1 are the accuracy.
"""

from __future__ import annotations

import collections
import itertools
import re
import typing
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from txl_tf.data.tables.conll import LETTERS
from txl_tf.metrics.task_results import ByLabel

PREFIXES = {letter: (letter in "BSUW", letter in "ELSUW") for letter in LETTERS}
"""For each letter whether an entity begins at it, and whether it ends there."""

IOB, IO, PLAIN, OLDER = "iob", "io", "plain", ""
"""How tags name entities: by prefixes; by their kind alone beside O; not at all, so that every word counts as one.

OLDER, in runs of older versions: by prefixes if all are O, or B-, I-, E- or S- with a kind; otherwise not at all."""

_LETTER, _KIND = f"(?P<letter>[{LETTERS}])", "(?P<kind>.+)"
_FORMS = [re.compile(form, re.DOTALL) for form in (f"{_LETTER}[-_]{_KIND}", f"{_KIND}[-_]{_LETTER}")]
_ALONE, _OLDER = re.compile(_LETTER), re.compile("O|[BIES]-.+", re.DOTALL)
_WITHOUT_KIND = "_"
_NAMES = {"I": "IO", "BI": "IOB", "BEIS": "IOBES", "BILU": "BILOU", "BEMS": "BMES", "BEMW": "BMEWO"}


class Meaning(NamedTuple):
    """The kind that a tag names ("": none), whether an entity always begins there, and whether it always ends there."""

    kind: str
    starts: bool
    closes: bool


def meanings(labels: Sequence[str], scheme: str) -> list[Meaning]:
    """The meaning of each tag."""
    if scheme == OLDER:
        scheme = IOB if set(labels) != {"O"} and all(map(_OLDER.fullmatch, labels)) else PLAIN
    parts = (_split(set(labels) - {"O"}) if scheme == IOB else None) or {}
    found = []
    for name in labels:
        if name in parts:
            letter, kind = parts[name]
            found.append(Meaning(kind, *PREFIXES[letter]))
        elif name == "O" and scheme != PLAIN:
            found.append(Meaning("", False, True))
        else:
            found.append(Meaning(name, scheme == PLAIN, False))
    return found


def allowed(labels: Sequence[str], scheme: str) -> np.ndarray:
    """Whether a tag may follow another, bool [C + 1, C + 1]: by the first, then the next.

    The last row and column stand for the text's beginning and end.
    An entity goes on only after its own beginning, and stays open until its last word, if its kind has tags for these.
    """
    found = [*meanings(labels, scheme), Meaning("", False, True)]
    begun = {one.kind for one in found if one.starts and not one.closes}
    ended = {one.kind for one in found if one.closes and not one.starts}

    def may_follow(first: Meaning, then: Meaning) -> bool:
        is_open, goes_on = bool(first.kind and not first.closes), bool(then.kind and not then.starts)
        if is_open and goes_on and first.kind == then.kind:
            return True
        return not (goes_on and then.kind in begun) and not (is_open and first.kind in ended)

    return np.array([[may_follow(first, then) for then in found] for first in found])


def default_tag(labels: Sequence[str]) -> int:
    """The number of the tag of a word without pieces: that of O, or 0."""
    return labels.index("O") if "O" in labels else 0


def scheme_of(labels: Iterable[str]) -> str | None:
    """IOB if all tags are O or have a prefix, PLAIN if none is or has; None if only some are or have."""
    every = set(labels)
    names = every - {"O"}
    if _split(names) is not None:
        return IOB
    return PLAIN if names == every and set(odd_tags(names)) == names else None


def odd_tags(labels: Iterable[str]) -> list[str]:
    """The tags that are not O and have no prefix with a kind, in order."""
    return sorted(name for name in set(labels) if name != "O" and not any(form.fullmatch(name) for form in _FORMS))


def scheme_name(labels: Iterable[str], rows: Sequence[Sequence[str]], scheme: str) -> str:
    """The name of a scheme by the letters of its tags and by those of some texts, such as IOB2; or the scheme's own."""
    parts = (_split(set(labels) - {"O"}) if scheme == IOB else None) or {}
    letters = {letter for letter, _ in parts.values()}
    name = next((name for known, name in _NAMES.items() if letters and letters <= set(known)), scheme)
    if name == "IOB":
        pairs = [(parts.get(a), parts.get(b)) for row in rows for a, b in itertools.pairwise(("O", *row))]
        begun_by_i = sum(now is not None and now[0] == "I" and (a is None or a[1] != now[1]) for a, now in pairs)
        name += (
            "1" if begun_by_i * 2 > sum(now is not None and (now[0] == "B" or a is None) for a, now in pairs) else "2"
        )
    return name


def _split(names: Collection[str]) -> dict[str, tuple[str, str]] | None:
    """The prefix and the kind of each tag but O; None if one has no prefix, or there are only letters but B and I."""
    for form in _FORMS:
        found = [(name, form.fullmatch(name) or _ALONE.fullmatch(name)) for name in names]
        parts = {name: match.groupdict() for name, match in found if match}
        of_kinds = not names or set(parts) & {"B", "I"} or any("kind" in part for part in parts.values())
        if len(parts) == len(found) and of_kinds:
            return {name: (part["letter"], part.get("kind", _WITHOUT_KIND)) for name, part in parts.items()}
    return None


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

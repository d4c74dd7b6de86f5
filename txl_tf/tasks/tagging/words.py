"""Where the words of a text stand, and the tags of words from spans of characters, as annotation programs write them.

A word is a run of letters, marks, digits and underscores, without Han or Kana. Every other character but a space is a
word by itself, with the marks that follow a Han or Kana sign.

A row with spans has its text, and in label, labels, entities, spans or ents a list of [begin, end, kind] or of objects
(Doccano, Prodigy, spaCy, our own predictions). Or it is a task of Label Studio, with the text in `data`.
"""

from __future__ import annotations

import functools
import itertools
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from txl_tf.data.tables.columns import Columns
from txl_tf.data.text.blanks import BLANK
from txl_tf.errors import InputError

SPACE, OTHER, WORD, SIGN, MARK = range(5)

_SIGNS = ("CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA", "HALFWIDTH KATAKANA")
"""The beginnings of the names of Han and Kana signs among the letters and numbers."""


@functools.cache
def character_kinds(runs: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The codes at which the kind of characters changes, and the kinds, int32 [k]; `runs`: Han and Kana are letters."""
    kinds = np.full([sys.maxunicode + 1], OTHER, np.int32)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        group = unicodedata.category(character)[0]
        if group == "M" and not runs:
            kinds[code] = MARK
        elif character == "_" or group in "LMN":
            is_sign = code > 0x2E80 and not runs and unicodedata.name(character, "").startswith(_SIGNS)
            kinds[code] = SIGN if is_sign else WORD
        elif character.isspace():
            kinds[code] = SPACE
    kinds[BLANK] = SPACE
    begins = np.flatnonzero(np.diff(kinds, prepend=-1)).astype(np.int32)
    return begins, kinds[begins]


def word_places(text: str, runs: bool = False) -> list[tuple[int, int]]:
    """Where each word of a text begins and ends, in characters; `runs` as for `character_kinds`."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    begins, kinds = character_kinds(runs)
    kind = kinds[np.searchsorted(begins, codes, side="right") - 1]
    before, after = kind[:-1], kind[1:]
    joined = ((before >= WORD) & (after == MARK)) | (((before == WORD) | (before == MARK)) & (after == WORD))
    limits: list[int] = np.flatnonzero(np.concatenate([[True], ~joined, [True]])).tolist() if len(kind) else []
    return [(first, end) for first, end in itertools.pairwise(limits) if kind[first] != SPACE]


LISTS = ("label", "labels", "entities", "spans", "ents")
"""The columns that may hold spans."""
_BEGIN, _END = ("start", "begin", "start_offset"), ("end", "end_offset")
_KIND = ("label", "labels", "entity_group", "type", "tag", "hypertextlabels")
_COUNT = "count in characters (Unicode code points, not UTF-16)"
LEFT_OUT = "left out"
"""In place of spans: nobody accepted or annotated the text."""


def spans_in(values: dict[str, Any], columns: Columns) -> tuple[Any, Any]:
    """The text of a row, and its spans as the file has them; None for what is missing, LEFT_OUT for a row to skip."""
    studio = values.get("data")
    if isinstance(studio, dict):
        texts = [value for name, value in studio.items() if isinstance(value, str) and name != columns.text_column]
        text = studio.get(columns.text_column, texts[0] if len(texts) == 1 else None)
        done = [one for one in _objects(values.get("annotations")) if not one.get("was_cancelled")]
        if not done:
            return text, LEFT_OUT
        found = _objects([one.get("value") for one in _objects(done[0].get("result"))])
        return text, [one for one in found if "start" in one]
    text = values.get(columns.text_column, values.get("text"))
    named = [columns.label_column] if columns.named("label_column") else []
    lists = [values[name] for name in (*named, *LISTS) if isinstance(values.get(name), (list, tuple))]
    spans: Any = next((one for one in lists if one), [] if lists or "answer" in values else None)
    return text, spans


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def tags_of(spans: Sequence[Any], text: str, places: Sequence[tuple[int, int]], where: str) -> tuple[list[str], int]:
    """The tags in IOB2 of the words of a text at these places, and the number of spans that cut a word.

    Such a span gets the whole word. InputError if spans overlap, leave or contradict the text, or hold no word.
    """
    tags, cut, before = ["O"] * len(places), 0, -1
    for begin, end, kind in sorted({_span(span, text, where) for span in spans}):
        inside = [i for i, (first, last) in enumerate(places) if first < end and last > begin]
        shown = f"{where}: the span {begin} to {end} ({kind}, {text[begin:end][:40]!r})"
        if not inside:
            raise InputError(f"{shown} has no word: correct it")
        if inside[0] <= before:
            raise InputError(f"{shown} overlaps another one, or is in the same word: keep one of them")
        before = inside[-1]
        cut += places[inside[0]][0] < begin or places[before][1] > end
        tags[inside[0] : before + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (len(inside) - 1)
    return tags, cut


def _span(given: Any, text: str, where: str) -> tuple[int, int, str]:
    """Where a span begins and ends, and its kind; InputError if it is malformed, or does not fit its text."""
    own = begin = end = kind = None
    if isinstance(given, dict):
        begin, end, kind = (
            next((given[name] for name in names if name in given), None) for names in (_BEGIN, _END, _KIND)
        )
        own = given.get("text")
        kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
    elif isinstance(given, (list, tuple)) and len(given) == 3:
        begin, end, kind = given
    if type(begin) is not int or type(end) is not int or not isinstance(kind, str) or not kind.strip():
        raise InputError(
            f"{where}: a span must be [begin, end, kind], or start, end and one label; it is {str(given)[:60]}"
        )
    shown, there = f"{where}: the span {begin} to {end} ({kind})", text[begin:end]
    if not 0 <= begin < end <= len(text):
        raise InputError(f"{shown} is not part of the text of {len(text)} characters: {_COUNT}")
    if isinstance(own, str) and own.strip() != there.strip():
        raise InputError(f"{shown} should be {own[:40]!r}, and the text has {there[:40]!r} there: {_COUNT}")
    return begin, end, kind

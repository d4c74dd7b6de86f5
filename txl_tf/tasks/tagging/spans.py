"""Texts with spans of characters, as annotation programs write them, and the tags of their words.

A row has its text, and in label, labels, entities, spans or ents a list of [begin, end, kind] or of objects (Doccano,
Prodigy, spaCy, our own predictions). Or it is a task of Label Studio, with the text in `data`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txl_tf.data.tables.columns import Columns
from txl_tf.errors import InputError

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

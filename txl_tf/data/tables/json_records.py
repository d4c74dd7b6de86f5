"""JSON as rows: lines of objects, or one list of objects."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from txl_tf.data.tables.table import Source, Table, of_records, refuse_twice
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import check_record, parse_json

ENDS = ("json", "jsonl", "ndjson")
"""The ends of names that say that a file has this format."""
_REMEDY = "give a JSON object in each line, or one list of objects"


def is_json(text: str) -> bool:
    """Whether a text begins as JSON: its first line is an object or a list of JSON, or the text as a whole is."""
    return text.lstrip()[:1] in ("{", "[") and (_parses(_first_line(text)[0]) or _parses(text))


def read_json(source: Source) -> Table:
    """The objects of JSON lines, of one list, or of the list in the field `data` of one object, as SQuAD's files have.

    spaCy's pairs [text, {"entities": ..}] become objects, and the columns that pandas writes, {name: {number: value}},
    become rows. Lines are counted from 1 on, and so are the entries of a list.
    """
    path, text, faults = source.path, source.text, source.faults
    if source.columns.no_header:
        raise InputError(f"{path} has names in every line, as JSON has: omit --no_header")
    if not _is_one_value(path, text):
        records = list(json_lines(path, text.split("\n" if "\n" in text else "\r"), faults))
        return dataclasses.replace(of_records(path, records), form="JSON lines", unit="line")
    values = parse_json(text, path, _REMEDY)
    if _is_pair(values):
        values = [values]
    elif isinstance(values, dict):
        lists = [name for name, rows in values.items() if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
        if "data" in lists and len(lists) > 1:
            raise InputError(f"{path} has rows in {lists[0]!r} and in {lists[1]!r}: give a file for each")
        if _is_split(values):
            refuse_twice(values["columns"], f"{path}, columns")
        values = _rows_of(values)
    return dataclasses.replace(of_records(path, list(json_entries(path, values, faults))), form="JSON", unit="entry")


def json_lines(path: str, lines: Iterable[str], faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of lines of JSON, with the lines' numbers. Empty lines are skipped; others are faults."""
    for i, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {i}"
            with faults.noted(i):
                yield i, _record_of(parse_json(line, where, "give a JSON object in each line"), where)


def json_entries(path: str, values: Iterable[Any], faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list of JSON, counted from 1 on; other values are faults."""
    for i, value in enumerate(values, 1):
        with faults.noted(i):
            yield i, _record_of(value, f"{path}, entry {i}")


def _record_of(value: Any, where: str) -> dict[str, Any]:
    if _is_pair(value):
        return {"text": value[0]} | value[1]
    return check_record(value, where, {}, "correct it")


def _first_line(text: str) -> tuple[str, bool]:
    """The first line with content, and whether another one follows."""
    begin = text.lstrip()
    line, _, rest = begin.partition("\n" if "\n" in begin else "\r")
    return line, bool(rest.strip())


def _is_one_value(path: str, text: str) -> bool:
    """Whether a text is one value of JSON, and not lines of objects."""
    line, more = _first_line(text)
    if not _parses(line):  # one value over several lines, or a fault in the first line
        return path.lower().removesuffix(".gz").endswith(".json") or (more and _parses(text))
    value = None if more else json.loads(line)
    return _rows_of(value) != [value] if isinstance(value, dict) else isinstance(value, list)


def _is_pair(value: Any) -> bool:
    """Whether a value is a text with its annotations, as spaCy has it."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)


def _is_split(columns: dict[str, Any]) -> bool:
    """Whether an object is {"columns": [names], "data": [values]}."""
    names, own = columns.get("columns"), columns.get("data")
    if not isinstance(names, list) or not isinstance(own, list):
        return False
    width = None if any(isinstance(name, (list, dict)) for name in names) else len(names)
    return all(isinstance(row, list) and len(row) == width for row in own)


def _rows_of(columns: dict[str, Any]) -> list[Any]:
    """The rows of an object that holds several; any other object is one row.

    It is {"data": [rows]}, {"annotations": [spaCy's pairs]}, or as pandas writes it: {"columns": [names], "data":
    [values]}, {name: {number: value}} or {number or name of a row: {name: value}}.
    """
    if _is_split(columns):
        return [dict(zip(columns["columns"], row, strict=True)) for row in columns["data"]]
    own, pairs = columns.get("data"), columns.get("annotations")
    if isinstance(own, list):
        return own
    if isinstance(pairs, list) and pairs and _is_pair(pairs[0]):
        return pairs
    values = list(columns.values())
    if not values or not all(isinstance(one, dict) and one and one.keys() == values[0].keys() for one in values):
        return [columns]
    if all(number.isdigit() for number in columns):
        return values
    numbers = list(values[0])
    if not all(number.isdigit() for number in numbers):
        return values if len(columns) > len(numbers) else [columns]  # more names of rows than of columns
    return [{name: column[number] for name, column in columns.items()} for number in numbers]


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""RACE's folders: a JSON file for each article, with its questions, their options and answers."""

from __future__ import annotations

from typing import Any

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.encodings import decoded, read_data
from txl_tf.data.tables.table import Table
from txl_tf.errors import Faults
from txl_tf.storage.local_files import functions_for
from txl_tf.storage.strict_json import check_record, parse_json

_REMEDY = "copy it again"


def read_folder(path: str, columns: Columns, faults: Faults) -> Table:
    """A row for each .txt or .json file of a folder and its sub-folders, in the order of RACE's numbers."""
    files = []
    for folder, names in sorted((folder.rstrip("/"), names) for folder, _, names in functions_for(path).walk(path)):
        own = (name for name in names if name.endswith((".txt", ".json")))
        files += [f"{folder}/{name}" for name in sorted(own, key=_numbered)]
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, file in enumerate(files, 1):
        with faults.noted():
            value = parse_json(decoded(file, read_data(file), columns.encoding, _REMEDY)[0], file, _REMEDY)
            rows.append((number, check_record(value, file, {}, _REMEDY)))
    places = dict(enumerate(files, 1))
    return Table([], rows, [], path, name=path, places=places, form="RACE's folder", unit="file")


def _numbered(name: str) -> tuple[int, str]:
    """RACE's files are named by numbers."""
    stem = name.rsplit(".", 1)[0]
    return (int(stem), name) if stem.isdecimal() and stem.isascii() else (-1, name)

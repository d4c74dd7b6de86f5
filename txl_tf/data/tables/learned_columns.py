"""Which columns of a table a model has learned from, so that similar tables need no flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txl_tf.data.tasks.table_files import Columns, read_data
from txl_tf.storage.strict_json import Fields, check_record, parse_json

COLUMNS_FILE = "columns.json"
_REMEDY = "copy the model_dir again"


def table_columns(model_dir: str, given: Columns | Mapping[str, Any] | None, labelled: bool) -> Columns:
    """How a table is read: with the given columns, and otherwise those of the table that a model learned from.

    `given` is Columns with nothing left open, or a dict as for `Columns.of`. Only a `labelled` table needs the label's
    column.

    Raises:
        InputError: a field is unknown or not possible, or the model's columns cannot be read.
    """
    if isinstance(given, Columns):
        return given
    path, own = os.path.join(model_dir, COLUMNS_FILE), Columns.fields_of(given or {})
    fields: Fields = {name: type(value) for name, value in Columns().names.items()}
    known = check_record(parse_json(read_data(path), path, _REMEDY), path, fields, _REMEDY) if _exists(path) else {}
    known = {name: known[name] for name in fields if name in known}  # a newer version's file may have more
    if not labelled and Columns().label_column not in (known | own).values():
        known.pop("label_column", None)
    return Columns(**known | own)


def _exists(path: str) -> bool:
    if "://" not in path:
        return os.path.exists(path)
    import tensorflow as tf  # here: it is slow to load

    return bool(tf.io.gfile.exists(path))

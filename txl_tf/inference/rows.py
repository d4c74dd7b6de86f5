"""Rows of a table, as a model reads them one by one, and computes their results in groups."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf import families
from txl_tf.data.tables.columns import Columns, table_columns
from txl_tf.data.tables.table import Table
from txl_tf.errors import InputError
from txl_tf.inference.exported import signature_names, task_with
from txl_tf.runs.model_dir import read_config
from txl_tf.storage.surrogates import whole
from txl_tf.tasks.texts import text_in

OF_TEXTS: Mapping[str, Mapping[str, Any]] = {
    "score": {"log_prob": float, "bits_per_byte": float},
    "generate": {"continuation": str},
    "encode": {"vector": [np.float32]},
}
"""The columns, with their types, that a language model adds by each ability."""


def rows_for(folder: str, columns: Any, ability: str | None, seed: int, seed_column: str | None) -> ModelRows:
    """The ModelRows of a model_dir or an export; InputError if it holds no model, or one without this ability."""
    able: Sequence[str] = signature_names(folder)
    task: Any = task_with(able)
    if not able:
        config = read_config(folder)
        if config is None:
            raise InputError(f"{folder} holds no model: give a model_dir, an export, or OWNER/NAME of the Hub")
        task = families.task_of(config)
        able = task.methods
    tuned = isinstance(task, families.FineTuning)
    able = [_TaskRows.ability] if tuned else [name for name in OF_TEXTS if name in able]
    ability = ability or next(iter(able), _TaskRows.ability)
    if ability not in able:
        raise InputError(f"{folder} does not {ability}, but can {', '.join(able) or 'do nothing with rows'}")
    read_by = table_columns(folder, columns, labelled=False)
    return _TaskRows(task, read_by) if tuned else _TextRows(ability, read_by.text_column, seed, seed_column)


class _TaskRows:
    """How a fine-tuned model reads rows, and what it adds to them.

    Attributes:
        task: of the model; None: it is a language model.
        ability: the method of `txl_tf.Model` that computes.
        adds: {new column: (the field of a result that it has, its type)}.
    """

    ability = "predict"

    def __init__(self, task: families.FineTuning, columns: Columns):
        self.task, self.adds = task, task.adds
        # A row is a whole text, even if the training table had a row for each word.
        self._columns = dataclasses.replace(columns, sentence_column="")

    def needs(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns that are needed of a table with these columns."""
        return self.task.needs(self._columns, names)

    def read(self, names: Sequence[str], values: dict[str, Any], where: str) -> Any:
        """A row of a table with these columns, as the model takes it; InputError, with `where`, if it is faulty."""
        row = Table(list(names), [(1, values)], [], "the table", name=where, places={1: where})
        items = self.task.read(row, self._columns, labelled=False)
        if len(items) != 1:
            raise InputError(f"{where} holds {len(items)} examples: give a row for each")
        return items[0]

    def groups(self, items: Sequence[Any], size: int) -> Iterable[Sequence[int]]:
        """The places of the rows that are computed together; `size` is how many the model takes at once."""
        alike = collections.defaultdict[Hashable, list[int]](list)
        for i, item in enumerate(items):
            alike[self.task.alike(item)].append(i)
        return alike.values()

    def results(self, tool: Any, items: list[Any], size: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The results of a group, from the object of `abilities.tool_for` or an `Exported`."""
        return tool.predict_rows(self.task.joined(items), self._columns, **options).predictions


_Text = tuple[str, int]
"""A row's text, and the seed of what is drawn for it."""


class _TextRows:
    """Texts for a language model; what is drawn for one follows from `seed` and its value in the seed's column."""

    task = None

    def __init__(self, ability: str, column: str, seed: int, seed_column: str | None):
        self.ability, self._column, self._seed, self._seed_column = ability, column, seed, seed_column
        self.adds = {name: (name, kind) for name, kind in OF_TEXTS[ability].items()}

    def needs(self, names: Sequence[str]) -> tuple[str, ...]:
        return (self._column, self._seed_column) if self._seed_column else (self._column,)

    def read(self, names: Sequence[str], values: dict[str, Any], where: str) -> _Text:
        text = whole(text_in(values, self._column, where))
        if not text.strip():
            raise InputError(f"{where} has no text in column {self._column!r}")
        drawn_by = whole(str(values[self._seed_column])) if self._seed_column else text
        digest = hashlib.sha256(f"{self._seed} {drawn_by}".encode()).digest()
        return text, int.from_bytes(digest[:4], "little") >> 1

    def groups(self, items: Sequence[_Text], size: int) -> Iterable[Sequence[int]]:
        order = sorted(range(len(items)), key=lambda i: len(items[i][0]))
        return [order[start : start + size] for start in range(0, len(order), size)]

    def results(self, tool: Any, items: list[_Text], size: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        texts = [text for text, _ in items]
        if self.ability == "generate":
            # Always the same number of texts: another number may round otherwise, and so draw another token.
            more = size - len(items)
            seeds = [seed for _, seed in items]
            found = tool.generate(texts + texts[-1:] * more, seed=seeds + seeds[-1:] * more, **options)
            return [{"continuation": text} for text in found[: len(items)]]
        if self.ability == "encode":
            return [{"vector": one} for one in tool(texts, batch_size=len(texts), **options).pooled.tolist()]
        totals = [one.total for one in tool.score(texts, **options)]
        bits = [-total / math.log(2) / len(text.encode()) for total, text in zip(totals, texts, strict=True)]
        return [{"log_prob": total, "bits_per_byte": one} for total, one in zip(totals, bits, strict=True)]


ModelRows = _TaskRows | _TextRows
"""How a model reads rows."""

"""A model as one object that any engine applies to the batches of a table: Ray Data, Spark, Beam, or a loop.

Examples:
    >>> predictor = BatchPredictor("runs/sentiment", {"text": "message"})
    >>> predictor.schema(["id", "message"])
    {"prediction": "string", "probability": "double", "fault": "string"}
    >>> predictor(batch)  # the same batch with these columns

The engine splits the table, repeats what failed, and writes the results. examples/engines/ has a program for each.
"""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.api import BATCH, load
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.frames import table_of, type_name, with_columns
from txl_tf.data.tables.results import new_names
from txl_tf.errors import Faults, InputError, one_line
from txl_tf.inference.abilities import tool_for
from txl_tf.inference.exported import Exported, signature_names
from txl_tf.inference.rows import ModelRows, rows_for
from txl_tf.published import hub_models
from txl_tf.published.directly import usable
from txl_tf.settings.groups import Range

FAULT = "fault"
"""The column with the reason why a row has no results."""
ON_FAULT = ("column", "raise")


class BatchPredictor:
    """Maps a batch of rows to the same batch with new columns.

    A pickle of it holds its arguments alone. Each process loads the model once, at its first batch. Results do not
    depend on how rows are batched: labels are equal, numbers agree to about 1e-5. A fine-tuned model adds, by its task:

    - classification: prediction, probability
    - multi_label: labels
    - regression: score
    - multiple_choice: choice, option, probability
    - answering: answer, probability, begin, end
    - tagging: entities

    A language model adds, by ability:

    - score: log_prob of the text in nats, of an XLNet each token given all others; and bits_per_byte
    - generate: continuation
    - encode, of an XLNet: vector

    Args:
        model: a model_dir, an export, the folder of a published model, or its name in the Hub; local or gs://. A name
            stands for its present commit, wherever the object is sent.
        columns: of the table, by name: {"text": "message"}; None: those of the training table.
        ability: of a language model; None: score.
        on_fault: "column": a faulty row, such as one without text, has nulls, and its reason in the column fault.
            "raise": there is no such column, and a batch with such rows is an InputError.
        batch_size: rows that are computed together; does not change the results. None: as in the model's evaluation.
        loading: arguments of `txl_tf.load`, such as {"dtype": "mixed_bfloat16"}.
        options: of the method of `txl_tf.Model`, such as unsure_below, or max_tokens and temperature. For generate also
            seed_column: what is drawn follows from `seed` and the row's value there; by default from its text.

    Raises:
        InputError: an argument cannot be, or the Hub has no such model.
    """

    def __init__(
        self,
        model: str,
        columns: Columns | Mapping[str, Any] | None = None,
        *,
        ability: str | None = None,
        on_fault: str = "column",
        batch_size: int | None = None,
        loading: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        if on_fault not in ON_FAULT:
            raise InputError(f"on_fault={on_fault!r} must be one of {', '.join(map(repr, ON_FAULT))}")
        if batch_size is not None:
            Range(at_least=1).check(batch_size, f"batch_size={batch_size}")
        place = hub_models.found(model)
        self.model = hub_models.address(place) if place else model
        self._columns, self._ability, self._on_fault = columns, ability, on_fault
        self._batch_size, self._loading, self._options = batch_size, dict(loading or {}), options
        self._seed, self._seed_column = options.pop("seed", 0), options.pop("seed_column", None)
        self._own = (*vars(self), "_own")  # an engine may add attributes

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._own}

    def schema(self, columns: Sequence[str]) -> dict[str, str]:
        """The columns that it adds to a table with these columns: {name: type, as Spark writes it}.

        A name that the table has already gets _2. The model's settings are read, not its weights. InputError without
        a model, or if the table lacks a column that is needed.
        """
        self._require(columns)
        names = new_names(columns, list(self._adds))
        return {names[name]: type_name(kind) for name, (_, kind) in self._adds.items()}

    def __call__(self, batch: Any) -> Any:
        """A batch with new columns: a pandas DataFrame, a pyarrow.Table, or a dict of columns, whichever is given.

        InputError if it is none of these, lacks a column that is needed, or, with on_fault="raise", has faulty rows.
        """
        table = table_of(batch)
        if table is None:
            raise InputError(f"give a DataFrame, a pyarrow.Table or a dict of columns, not {str(batch)[:40]!r}")
        self._require(table.names)
        items: dict[int, Any] = {}
        results: dict[int, dict[str, Any]] = {}
        refuses = self._on_fault == "raise"
        for line, values in table.rows:
            where = f"row {line} of the batch" if refuses else "the row"  # in a column beside it
            try:
                items[line] = self._rows.read(table.names, values, where)
            except InputError as error:
                results[line] = {FAULT: str(error)}
        if not (refuses and results):
            lines, rows = list(items), list(items.values())
            for group in self._rows.groups(rows, self._batch_size or BATCH):
                results |= zip([lines[i] for i in group], self._computed([rows[i] for i in group]), strict=True)
        if refuses:
            faults = Faults("the batch")
            for line, one in results.items():
                if FAULT in one:
                    faults.add(one[FAULT], line)
            faults.raise_any()
        names = new_names(table.names, list(self._adds))
        new = {
            names[name]: (kind, [results[line].get(field) for line, _ in table.rows])
            for name, (field, kind) in self._adds.items()
        }
        return with_columns(batch, new)

    @functools.cached_property
    def _rows(self) -> ModelRows:
        return rows_for(usable(self.model), self._columns, self._ability, self._seed, self._seed_column)

    def _require(self, names: Sequence[str]) -> None:
        """Raises InputError if a table with these columns lacks one that is needed."""
        for name in self._rows.needs(names):
            if name not in names:
                shown = ", ".join(map(repr, list(names)[:20]))
                raise InputError(f"the table has no column {name!r} but {shown}: give columns={{'text': ..}}")

    @property
    def _adds(self) -> dict[str, tuple[str, Any]]:
        """{new column: (the field of a result that it has, its type)}."""
        unsure = {"unsure": ("unsure", bool)} if self._options.get("unsure_below") is not None else {}
        return {**self._rows.adds, **unsure, **({FAULT: (FAULT, str)} if self._on_fault == "column" else {})}

    def _computed(self, items: list[Any]) -> list[dict[str, Any]]:
        try:
            with _ONE_AT_A_TIME:
                return self._rows.results(self._tool(), items, self._batch_size or BATCH, self._options)
        except tf.errors.InvalidArgumentError as error:  # such as a text that is too long for an export
            if len(items) == 1:
                return [{FAULT: one_line(error)}]
            return [one for item in items for one in self._computed([item])]

    def _tool(self) -> Any:
        """What computes: the one of this process for equal arguments, loaded at its first use."""
        key = pickle.dumps(self.__getstate__())
        if key not in _TOOLS:
            folder, size = usable(self.model), {"batch_size": self._batch_size} if self._rows.task else {}
            if signature_names(folder):
                _TOOLS[key] = Exported(folder, self._rows.task, self._batch_size or BATCH)
            else:
                trained = load(folder, progress=False, **self._loading).trained
                _TOOLS[key] = tool_for(trained, self._rows.ability, self._loading.get("jit_compile"), **size)
        return _TOOLS[key]


_ONE_AT_A_TIME = threading.RLock()
"""A model computes one batch at a time; its operations use all processors."""
_TOOLS: dict[bytes, Any] = {}

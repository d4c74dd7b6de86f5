"""Parquet and Arrow files as tables, and tables as Parquet. pyarrow is needed: the extra `tables`.

Arrow's files are read (.arrow, .feather), and its streams, which Hugging Face's `datasets` writes as .arrow. All of
this works without TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from txl_tf.data.tables.table import Source, Table, of_records, refuse_twice, required
from txl_tf.errors import InputError, one_line

PARQUET = (b"PAR1", b"PARE")
"""The first bytes of Parquet files; PARE: of encrypted ones."""
ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
"""The first bytes of Arrow's files and of its streams."""
_FEATURES = b"huggingface"
"""The part of a schema's metadata where `datasets` keeps the names of classes."""


class Groups:
    """A file whose rows are read by groups, so that memory does not grow with its size.

    `file` is a local path, bytes, or a file that is open for reading. InputError if pyarrow is missing, or the file is
    damaged or encrypted.

    Attributes:
        names, texts: the names of the columns, and of those of texts.
        rows, sizes: the number of rows in each group, and about its bytes.
    """

    def __init__(self, path: str, file: Any):
        pyarrow = required("pyarrow", path)
        self._path = path
        with self._readable():
            if isinstance(file, bytes):
                source = pyarrow.BufferReader(file)
            else:
                source = pyarrow.memory_map(file) if isinstance(file, str) else pyarrow.PythonFile(file, mode="r")
            first = source.read(4)
            source.seek(0)
            if first in PARQUET:
                from pyarrow import parquet

                reader = parquet.ParquetFile(source)
                groups = [reader.metadata.row_group(i) for i in range(reader.num_row_groups)]
                self.schema, self.sizes = reader.schema_arrow, [group.total_byte_size for group in groups]
                self._read: Callable[[int, list[str]], Any] = reader.read_row_group
            else:  # of a local file, groups are only places in it, not copies
                reader = pyarrow.ipc.open_stream(source) if first == ARROW[1] else pyarrow.ipc.open_file(source)
                groups = reader.read_all().to_batches()
                self.schema, self.sizes = reader.schema, [group.nbytes for group in groups]
                self._read = lambda group, names: groups[group].select(names)
            self.rows = [group.num_rows for group in groups]
            self.names = list(self.schema.names)
            self.texts = [field.name for field in self.schema if _is_text(field.type)]
            about = json.loads((self.schema.metadata or {}).get(_FEATURES, b"{}"))
            self._namers = {name: _namer(one) for name, one in about.get("info", {}).get("features", {}).items()}

    def read(self, group: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """{column: its values in the rows of a group}: as in JSON, with classes by their names."""
        with self._readable():
            found = self._read(group, list(names))
            return {name: self._values(name, found.column(name)) for name in names}

    def require_text(self, flag: str, name: str) -> None:
        """Raises InputError if a column holds bytes. `flag` names the column."""
        if str(self.schema.field(name).type) in ("binary", "large_binary", "binary_view"):
            raise InputError(
                f"{self._path} has bytes in the column {name!r}, not text: name another column with --{flag}"
            )

    def _values(self, name: str, column: Any) -> list[Any]:
        import pyarrow

        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        named = self._namers.get(name)
        return list(map(named, column.to_pylist())) if named else column.to_pylist()

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, OSError, ValueError, AttributeError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            if re.search("(?i)encrypt|decrypt", str(error)):
                raise InputError(f"{self._path} is encrypted: write it without encryption") from error
            raise InputError(
                f"{self._path} cannot be read ({one_line(error)[:200]}): it may be cut off; fetch or write it again"
            ) from error


def read_arrow(source: Source) -> Table:
    """The rows of a file as a table. Lists are lists, and null is a missing value."""
    path, columns = source.path, source.columns
    if columns.no_header:
        raise InputError(f"{path} has names of columns: omit --no_header")
    groups = Groups(path, source.data)
    refuse_twice(groups.names, path)
    for flag in ("text_column", "text_b_column", "label_column"):
        if (name := getattr(columns, flag)) in groups.names:
            groups.require_text(flag, name)
    records: list[tuple[int, dict[str, Any]]] = []
    for group in range(len(groups.rows)):
        found = groups.read(group, groups.names)
        rows = zip(*found.values(), strict=True)
        records += enumerate((dict(zip(found, row, strict=True)) for row in rows), len(records) + 1)
    form = "Parquet" if source.data.startswith(PARQUET) else "Arrow"
    return dataclasses.replace(of_records(path, records), names=groups.names, form=form)


def parquet_of(path: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bytes:
    """A Parquet file of these rows; a column whose values are of several kinds has them as text."""
    pyarrow = required("pyarrow", path)
    from pyarrow import parquet

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            texts = [value if value is None or isinstance(value, str) else json.dumps(value, default=str)
                     for value in values]  # fmt: skip
            columns[name] = pyarrow.array(texts)
    file = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue().to_pybytes()


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return str(kind.value_type if types.is_dictionary(kind) else kind) in ("string", "large_string", "string_view")


def _namer(feature: Any) -> Callable[[Any], Any] | None:
    """The function that puts the names of classes into values of a feature of `datasets`, or lists of them; None: none.

    A class of -1 is missing, as in test sets without labels.
    """
    if isinstance(feature, list):  # older versions wrote a list of one feature
        feature = {"feature": feature[0]}
    if feature.get("_type") == "ClassLabel":
        return dict(enumerate(feature["names"])).get
    named = _namer(feature["feature"]) if "feature" in feature else None
    return named and (lambda value: None if value is None else list(map(named, value)))

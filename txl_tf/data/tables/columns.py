"""How a table is read: which columns a task takes, and the form of the file."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from txl_tf.data.tables.encodings import read_data
from txl_tf.errors import InputError
from txl_tf.settings.groups import Group, setting, usual
from txl_tf.storage.local_files import check_encoding, functions_for
from txl_tf.storage.strict_json import check_record, parse_json

COLUMNS_FILE = "columns.json"
"""The file of a model_dir that has the columns of the table that the model learned from."""
COLUMN_NAMES = "text_column", "text_b_column", "label_column"
"""The fields of Columns that name a column."""


@dataclasses.dataclass(frozen=True)
class Columns(Group):
    """How a table is read: its columns, and the form of its file."""

    heading: ClassVar[str] = "data"

    text_column: str = usual("text", "the table's column of the text, or of the first text of a pair")
    text_b_column: str = usual("text_b", "its column of the second text, for pairs of texts")
    label_column: str = usual("label", "its column of the label: a class, or a number for regression")
    label_columns: str = usual(
        "", "for several labels: columns of 0 and 1, one for each label, such as toxic,insult or FIRST..LAST"
    )
    label_separator: str = usual("", "separates the labels of a text in one cell, for --task=multi_label; empty: |")
    label_names: str = usual("", "the names of labels or tags that are numbers, from 0 on, such as O,B-PER,I-PER")
    sentence_column: str = usual(
        "", "for tagging, in a table with a row for each word: the column of the sentence's number"
    )
    scheme: str = setting(
        "",
        "what tags mean: iob (B-PER, I-PER, also other prefixes), io (kinds without prefix, and O) or plain (each tag "
        "by itself, as parts of speech); empty: found from the tags",
        ("", "iob", "io", "plain"),
    )
    sheet: str = usual("", "the sheet of a workbook; empty: the first that is not hidden")
    no_header: bool = usual(False, "line 1 has no names: columns have numbers, such as --text_column=4")
    delimiter: str = usual("", "separates the columns, one character or tab; empty: found from line 1")
    encoding: str = usual("", "of the file, such as cp1252; empty: UTF-8, or UTF-16 if the file begins like one")
    skip_empty: bool = usual(False, "skip rows without text, and count them")

    def __post_init__(self) -> None:
        """Refuses one column for two uses, and unknown forms."""
        super().__post_init__()
        for i, name in enumerate(COLUMN_NAMES):
            for other in COLUMN_NAMES[:i]:
                if getattr(self, name) == getattr(self, other):
                    raise InputError(
                        f"--{name} and --{other} are both {getattr(self, name)!r}: name a different column for each"
                    )
        if len(self.separator) > 1:
            raise InputError(f"--delimiter={self.delimiter} must be one character, or tab")
        if self.encoding:
            check_encoding(self.encoding)
        if self.no_header:
            for name in COLUMN_NAMES:
                if self.named(name) and not re.fullmatch("[1-9][0-9]*", getattr(self, name)):
                    raise InputError(
                        f"--{name}={getattr(self, name)} must be a number from 1 on, since there is --no_header"
                    )
            if not self.named("text_column"):
                raise InputError("--no_header needs the numbers of the columns: give --text_column=1 or the like")

    @classmethod
    def of(cls, given: Columns | Mapping[str, Any] | None) -> Columns:
        """Columns from a dict of its fields, or InputError; text, text_b and label stand for text_column and so on."""
        return given if isinstance(given, Columns) else cls(**cls.fields_of(given or {}))

    @classmethod
    def fields_of(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """A dict as for `of`, with the fields' full names."""
        known = [field.name for field in dataclasses.fields(cls)]
        found = {f"{name}_column" if f"{name}_column" in known else name: value for name, value in given.items()}
        if unknown := sorted(set(found) - set(known)):
            raise InputError(f"columns has no {unknown[0]!r}: give text, text_b or label, or {', '.join(known)}")
        return found

    @property
    def names(self) -> dict[str, Any]:
        """The fields that files of one kind share: columns, and how they are named and filled."""
        of_the_file = ("delimiter", "encoding", "skip_empty", "sheet")
        return {name: value for name, value in vars(self).items() if name not in of_the_file}

    @property
    def between_labels(self) -> str:
        """The separator of the labels in a cell."""
        return self.label_separator.replace("\\n", "\n").replace("\\t", "\t") or "|"

    @property
    def named_labels(self) -> tuple[str, ...]:
        """The names of labels that are numbers; (): labels are texts."""
        return tuple(name.strip() for name in self.label_names.split(",")) if self.label_names else ()

    @property
    def separator(self) -> str:
        """The character of `delimiter`; "" if it is to be found."""
        return "\t" if self.delimiter in ("tab", "\\t") else self.delimiter

    def named(self, name: str) -> bool:
        """Whether a field differs from its default."""
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)

    def refuse_names(self, why: str) -> None:
        """Raises InputError if a column is named, for a task that `why` says to read columns of other names."""
        for name in (*COLUMN_NAMES, "label_columns", "label_names"):
            if self.named(name):
                raise InputError(f"--{name} is not used here, since {why}: omit it, and name the columns so")


def table_columns(model_dir: str, given: Columns | Mapping[str, Any] | None, labelled: bool) -> Columns:
    """How a table is read: with the given columns, and otherwise those of the table that a model learned from.

    `given` is Columns, with nothing left open but the scheme of tags, or a dict as for `Columns.of`. Only a `labelled`
    table needs the label's column. InputError if a field is unknown or not possible, or the model's columns cannot be
    read.
    """
    path, remedy = os.path.join(model_dir, COLUMNS_FILE), "copy the model_dir again"
    if isinstance(given, Columns):
        own = {name: value for name, value in vars(given).items() if value or name != "scheme"}
    else:
        own = Columns.fields_of(given or {})
    known: dict[str, Any] = {}
    if functions_for(path).exists(path):
        found = check_record(parse_json(read_data(path), path, remedy), path, {}, remedy)
        fields = {name: type(value) for name, value in Columns().names.items() if name in found}
        known = {name: check_record(found, path, fields, remedy)[name] for name in fields}
    if not labelled and Columns().label_column not in (known | own).values():
        known.pop("label_column", None)
    return Columns(**known | own)


def near_name(name: str, names: Sequence[str]) -> str:
    """The one of `names` that differs from `name` only by case or spaces; "" if there is none."""
    return next((other for other in names if _plain(other) == _plain(name)), "")


def first_near_name(usual: Iterable[str], names: Sequence[str]) -> str:
    """`near_name` of the first of the usual names that has one; "" if none has."""
    return next((name for name in (near_name(one, names) for one in usual) if name), "")


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()

"""Remarks on texts and labels of a table that may be mistakes, as sentences for the user."""

from __future__ import annotations

import collections
import contextlib
import decimal
import itertools
import re
import unicodedata
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from txl_tf.counted import counted

if TYPE_CHECKING:
    from txl_tf.data.tables.columns import Columns
    from txl_tf.tasks.texts import Row

MISSING = {"nan", "<na>", r"\n", "#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"}
"""The signs of pandas, databases and spreadsheet programs for a missing value or an error, in small letters."""
SIGNS = MISSING | {"na", "n/a", "null", "none", "-", "?", ".", "-1"}
"""These, and signs that may stand for a missing value or for themselves."""
_LONGEST_SIGN = max(map(len, SIGNS))
_BYTES = re.compile(r"b(['\"]).*\1$", re.DOTALL)


def twins(labels: Sequence[str]) -> list[str]:
    """A sentence for each group of labels that are one number, or differ only by case, spaces or forms of letters."""
    groups: dict[Hashable, list[str]] = {}
    for label in labels:
        groups.setdefault(_likeness(label), []).append(label)
    said = []
    for like, group in groups.items():
        if len(group) > 1:
            how = "differ only by case, spaces or forms of letters" if isinstance(like, str) else "are one number"
            said.append(
                f"the labels {', '.join(map(repr, group))} {how}, and are {len(group)} classes: if one is meant, "
                "correct the file"
            )
    return said


def odd_labels(labels: Sequence[str], rows: int) -> tuple[str, ...]:
    """A remark on rare labels and signs such as NA among the labels of all rows; or if most rows have their own."""
    counts = collections.Counter(labels)
    odd = [f"{name!r} ({n:,})" for name, n in counts.items() if n == 1 or name.lower() in SIGNS]
    if 0 < len(odd) < max(len(counts) / 2, rows / 20):
        return (f"labels that may be mistakes or missing, with their rows: {', '.join(odd[:5])}",)
    if len(counts) > max(10, rows / 2):
        return (f"{len(counts):,} labels in {rows:,} rows: name another --label_column if it is the wrong one",)
    return ()


def relabelled(rows: Sequence[Row]) -> tuple[str, ...]:
    """A remark on rows with the texts of the row before, and another label."""
    again = [
        row
        for before, row in itertools.pairwise(rows)
        if before.text == row.text and before.text_b == row.text_b and before.label != row.label
    ]
    if not again:
        return ()
    said = f"{counted(len(again), 'row')} {'repeats' if len(again) == 1 else 'repeat'} the text before"
    return (f"{said} with another label ({again[0].place}): give each text one label",)


def _likeness(label: str) -> Hashable:
    plain = "".join(filter(str.isprintable, unicodedata.normalize("NFKC", "".join(label.split())))).casefold()
    with contextlib.suppress(decimal.InvalidOperation):
        number = decimal.Decimal(plain)  # exact: as floats two long ids may be equal
        return number if number.is_finite() else plain
    return plain


def unread_text(columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """A remark if the columns of a table have a second text, such as sentence2, that is not read."""
    second = "hypothesis" if columns.text_column == "premise" else columns.text_column.removesuffix("1") + "2"
    if columns.no_header or second not in names or second in (columns.text_b_column, columns.label_column):
        return ()
    return (f"{second!r} is not read: --text_b_column={second} reads it as the second text",)


def odd_texts(rows: Sequence[Row]) -> tuple[str, ...]:
    """A remark on each kind of texts that may be damaged or missing, with their number and the first of them."""
    foreign = [row for row in rows if not row.text.isascii()]
    again = "save the file again as UTF-8 from its source"
    kinds = {
        "may stand for a missing one": [
            row for row in rows if len(row.text) <= _LONGEST_SIGN and row.text.lower() in SIGNS
        ],
        f"may have lost letters (U+FFFD): {again}": [row for row in foreign if "\ufffd" in row.text],
        f"may be UTF-8 that was read as cp1252: {again}": [row for row in foreign if _is_encoded_twice(row.text)],
        "may be bytes of Python in writing: write them as texts": [
            row for row in (rows if _BYTES.match(rows[0].text) else ()) if _BYTES.match(row.text)
        ],
    }
    return tuple(
        f"{counted(len(odd), 'text')} such as {odd[0].text[:40]!r} ({odd[0].place}) {what}"
        for what, odd in kinds.items()
        if odd
    )


def _is_encoded_twice(text: str) -> bool:
    # The first bytes of most letters in UTF-8: what follows takes a microsecond.
    if not ("\u00c3" in text or "\u00c2" in text or "\u00e2" in text or "\u00d0" in text):
        return False
    with contextlib.suppress(UnicodeError):
        return text.encode("cp1252").decode() != text
    return False

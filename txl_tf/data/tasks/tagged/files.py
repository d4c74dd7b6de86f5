"""Words with their tags: files in CoNLL's format, or JSON lines.

In CoNLL's format each line has a word and further columns, separated by tabs or else by spaces; the tag is in the last
column. An empty line ends a text. Lines with -DOCSTART- are skipped. A line of JSON has {"tokens": [..], "tags": [..]}.
Where no tags are needed, a line of JSON may have {"text": ".."} instead, which is then split into words, and a line in
CoNLL's format may have its word alone. One error lists all faults of a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import read_text
from txl_tf.data.tables.json_records import json_lines
from txl_tf.errors import Faults, InputError
from txl_tf.storage.surrogates import whole

_START = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class TaggedText:
    """A text and its words.

    Attributes:
        text: the text; if only words were given, these with spaces between them.
        places: where each word begins and ends in the text, in characters.
        tags: of the words; () if they are not known.
        where: its file and line.
    """

    text: str
    places: tuple[tuple[int, int], ...]
    tags: tuple[str, ...]
    where: str

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[begin:end] for begin, end in self.places]


def read_tagged(path: str, columns: Columns, labelled: bool = True) -> list[TaggedText]:
    """The texts of a file: JSON lines if its name ends in .jsonl or .jsonl.gz, otherwise in CoNLL's format; or gzipped.

    Args:
        columns: for its encoding; the rest is for tables, and refused.
        labelled: whether all words must have a tag; if not, tags are left out.

    Raises:
        InputError: it cannot be read, has no texts, or a line is malformed; a FaultsError if several are.
    """
    text, faults = read_text(path, columns.encoding), Faults(path)
    lines = path.removesuffix(".gz").endswith(".jsonl")
    found = list((_of_json if lines else _of_conll)(path, text, labelled, faults))
    faults.raise_any()
    if not found:
        raise InputError(f"{path} has no texts: give a file in CoNLL's format, or JSON lines (.jsonl)")
    return found


def tagged_rows(values: Sequence[Any]) -> list[TaggedText]:
    """Texts, or lists of words, as texts without tags; InputError if it is something else, or has no words."""
    return [_untagged(value, f"text {i}") for i, value in enumerate(values, 1)]


def _untagged(value: Any, where: str) -> TaggedText:
    if isinstance(value, (list, tuple)):
        return _joined(value, (), where)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where} must be a text or a list of words, and not empty; it is {str(value)[:40]!r}")
    from txl_tf.data.tasks.tagged.words import word_places  # here: it loads TensorFlow

    text = whole(value)
    return TaggedText(text, tuple(word_places(text)), (), where)


def _joined(words: Sequence[Any], tags: Sequence[Any], where: str) -> TaggedText:
    """Words with spaces between them; InputError if there are none, or one is empty or not a text."""
    if not words:
        raise InputError(f"{where} has no words: remove it")
    for name, items in (("token", words), ("tag", tags)):
        for i, item in enumerate(items, 1):
            if not isinstance(item, str) or not item.strip():
                raise InputError(f"{where}: {name} {i} must be a text, and not empty; it is {str(item)[:40]!r}")
    places, begin = [], 0
    for word in words:
        places.append((begin, begin + len(whole(word))))
        begin += len(whole(word)) + 1
    return TaggedText(" ".join(map(whole, words)), tuple(places), tuple(map(whole, tags)), where)


def _of_json(path: str, text: str, labelled: bool, faults: Faults) -> Iterator[TaggedText]:
    for line, value in json_lines(path, text, faults):
        where = f"{path}, line {line}"
        with faults.noted(line):
            if not labelled and "tokens" not in value and "text" in value:
                yield _untagged(value["text"], where)
                continue
            tokens, tags = _list(value, "tokens", where), _list(value, "tags", where) if labelled else []
            if labelled and len(tokens) != len(tags):
                raise InputError(
                    f"{where} has {counted(len(tokens), 'token')} and {counted(len(tags), 'tag')}: correct the line"
                )
            yield _joined(tokens, tags, where)


def _list(value: dict[str, Any], name: str, where: str) -> list[Any]:
    found = value.get(name)
    if not isinstance(found, list):
        raise InputError(f"{where} has no list {name!r}: correct the line")
    return found


def _of_conll(path: str, text: str, labelled: bool, faults: Faults) -> Iterator[TaggedText]:
    rows: list[list[str]] = []
    first = width = 0
    for line, content in enumerate([*text.split("\n"), ""], 1):
        if content.strip() and not content.startswith(_START):
            cells = content.strip("\r\n").split("\t") if "\t" in content else content.split()
            width = width or len(cells)
            where = f"{path}, line {line}"
            with faults.noted(line):
                if labelled and len(cells) < 2:
                    raise InputError(f"{where} has a word without a tag: correct the line")
                if len(cells) != width:
                    raise InputError(
                        f"{where} has {counted(len(cells), 'column')}, and the first line has {width}: correct it"
                    )
                if not all(cell.strip() for cell in (cells[0], cells[-1])):
                    raise InputError(f"{where} has an empty word or tag: correct the line")
                rows.append(cells)
                first = first or line
        elif rows:
            tags = [cells[-1].strip() for cells in rows] if labelled else []
            yield _joined([cells[0] for cells in rows], tags, f"{path}, line {first}")
            rows, first = [], 0

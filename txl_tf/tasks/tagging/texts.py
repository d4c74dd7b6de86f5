"""Texts whose words have tags, from rows of tables and values of Python.

A row is a text with lists of its words and tags, or with spans of characters (see `spans`), or a single word with its
tag. Where no tags are needed, a row may have its text alone. One error lists all faults of a file.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns, first_near_name
from txl_tf.data.tables.conll import FORM, LETTERS, LINE, SENTENCES, TAGS, WORDS, words_table
from txl_tf.data.tables.forms import read_rows, without_collection
from txl_tf.data.tables.table import Rows, Table, content
from txl_tf.data.tables.written import with_lists
from txl_tf.errors import Faults, InputError
from txl_tf.storage.surrogates import whole
from txl_tf.tasks.tagging import schemes
from txl_tf.tasks.tagging.spans import LISTS, spans_in, tags_of
from txl_tf.tasks.tagging.words import word_places
from txl_tf.tasks.texts import name_of

DOCUMENTS = ("doc_id", "document_id", "doc", "document")
"""The columns of documents, in each of which sentences may be counted anew."""
_BRACKETS = re.compile(r"\(.+|.*\*.*|.+\)")  # of CoNLL-2012
_LANGUAGE = re.compile(r"[a-z]{2,3}:")  # before each word of WikiANN
_SAMPLE = 1000  # texts that tell IOB1 from IOB2


@dataclasses.dataclass(frozen=True)
class TaggedText:
    """A text, or words with spaces between them; where each word begins and ends, in characters; and the words' tags.

    tags: () if they are not known. where: file and line. lines: those of the words, if each has its own.
    """

    text: str
    places: tuple[tuple[int, int], ...]
    tags: tuple[str, ...]
    where: str
    lines: tuple[int, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[begin:end] for begin, end in self.places]


@without_collection()
def read_tagged(
    path: str | Table, columns: Columns, labelled: bool = True, tags: Collection[str] = ()
) -> Rows[TaggedText]:
    """The texts of a file, or of a Table.

    `labelled`: whether all words must have a tag; if not, tags are left out. `tags`: those that a model knows, which
    reads the texts; (): one is to learn from them. InputError if it cannot be read, has no texts, only some tags name
    entities, or a line is malformed; a FaultsError if several are.
    """
    faults = Faults(path if isinstance(path, str) else path.name)
    table = read_rows(path, columns, faults, labelled, tags)
    texts = Rows[TaggedText]()
    texts.table = words_table(table) if tags and table.form == FORM else table
    table = table if table.form == FORM else with_lists(table)
    reader = _Reader(table, columns, labelled)
    for line, values in table.rows if reader.sentences is None else reader.sentences:
        with faults.noted(line):
            if text := reader.text_of(values, table.where(line)):
                has_lines = tags and (table.form == FORM or reader.sentences is not None)
                texts.append(dataclasses.replace(text, lines=tuple(values[LINE])) if has_lines else text)
    faults.raise_any(sum(len(text.places) for text in texts) if table.form == FORM else len(texts))
    if not texts and (left_out := reader.remarks()):
        raise InputError(f"{table.name} has no texts to learn from: {left_out[0]}")
    if not texts:
        raise InputError(f"{table.name} has no texts: give a file in CoNLL's format, or JSON lines (.jsonl)")
    texts.columns = dataclasses.replace(columns, scheme=reader.scheme()) if labelled and not tags else columns
    found = [counted(len(texts), "text"), counted(sum(len(text.places) for text in texts), "word")]
    if labelled:
        scheme = texts.columns.scheme or schemes.scheme_of(reader.first) or schemes.PLAIN
        scheme = schemes.scheme_name(reader.first, [text.tags for text in texts[:_SAMPLE]], scheme)
        scheme += ", each word counts" if scheme == schemes.PLAIN else ""
        found.append(f"{counted(len(reader.first), 'tag')} ({scheme})")
    texts.understood = f"{', '.join([table.form, *reader.about, *table.remarks])}: {', '.join(found)}"
    texts.remarks = reader.remarks()
    if labelled and len(texts) > 9 and all(len(text.places) == 1 for text in texts):
        texts.remarks += ("each text has one word: correct the file if texts have more (empty lines end them)",)
    prefix = _LANGUAGE.match(texts[0].text)
    if prefix and all(word.startswith(prefix[0]) for text in texts for word in text.words):
        texts.remarks += (f"all words begin with {prefix[0]!r}, which is read, too: remove it if it is a language",)
    return texts


def may_have_texts(columns: Columns, names: Sequence[str]) -> bool:
    """Whether a table with columns of these names may have texts, or lists of words, that can be read without tags."""
    usual = () if columns.named("text_column") else WORDS
    return not {columns.text_column, "text", "data"}.isdisjoint(names) or bool(first_near_name(usual, names))


def untagged(value: Any, where: str, runs: bool) -> TaggedText:
    """A text, or a list of words, without tags, or InputError; `runs` as for `words.word_places`."""
    if isinstance(value, (list, tuple)):
        return _joined(value, (), where)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where} must be a text or a list of words, and not empty; it is {str(value)[:40]!r}")
    text = whole(value)
    return TaggedText(text, tuple(word_places(text, runs)), (), where)


def _joined(words: Sequence[Any], tags: Sequence[Any], where: str) -> TaggedText:
    """Words with spaces between them; InputError if there are none, or one is empty or not a text."""
    if not words:
        raise InputError(f"{where} has no words: remove it")
    for name, items in (("token", words), ("tag", tags)):
        for i, item in enumerate(items, 1):
            if not isinstance(item, str) or not item.strip(" \t\r\n"):
                raise InputError(f"{where}: {name} {i} must be a text, and not empty; it is {str(item)[:40]!r}")
    text, begin, places = " ".join(words), 0, []
    if whole(text) != text:
        words = list(map(whole, words))
        text = " ".join(words)
    for word in words:
        end = begin + len(word)
        places.append((begin, end))
        begin = end + 1
    return TaggedText(text, tuple(places), tuple(map(whole, tags)), where)


class _Reader:
    """Reads the rows of one table.

    `sentences` are those of a table with a row for each word, as rows with lists; None: it has a row for each text.
    `first` has for each tag the place where it first occurs, `about` says what the columns were taken for.
    """

    def __init__(self, table: Table, columns: Columns, labelled: bool):
        self._table, self._columns, self._labelled = table, columns, labelled
        self.first: dict[str, str] = {}
        self.about: list[str] = []
        self._widened = self._skipped = self._again = self._without = 0
        if table.form == FORM:
            self._words, self._tags = table.names or ("", "")
        else:
            self._words = self._column("text_column", WORDS)
            self._tags = self._column("label_column", TAGS)
            if not (labelled or self._words or may_have_texts(columns, table.names)) and table.names:
                raise InputError(
                    f"{table.header} has no column of texts or words, but {', '.join(map(repr, table.names[:20]))}: "
                    "name it with --text_column"
                )
            names = (("words", self._words), ("tags", self._tags if labelled else ""))
            self.about = [f"{what} in {name!r}" for what, name in names if name]
        self.sentences = self._sentences()

    def remarks(self) -> tuple[str, ...]:
        """Notes on spans and texts that were not read as they are."""
        numbers = self._labelled and self.first and all(tag.isdecimal() for tag in self.first)
        inside = next((tag[2:] for tag in self.first if tag.startswith("B-I-")), "")
        again = "whose sentence was there before, with others between: bring its rows together if it is the same text"
        notes = {
            f"{counted(self._widened, 'span')} began or ended inside a word: the whole word has the tag": self._widened,
            f"{counted(self._skipped, 'text')} left out, which nobody accepted or annotated": self._skipped,
            f"{counted(self._again, 'text')} {again}": self._again,
            f"{counted(self._without, 'row')} without text left out": self._without,
            f"spans have kinds such as {inside!r}: give one span for a whole name, without the letter": inside,
            "the tags are numbers: if they stand for names, give --label_names=O,B-PER,.. in their order": numbers,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def scheme(self) -> str:
        """The scheme of the tags: the given one, or the one found; InputError if only some name entities."""
        given = self._columns.scheme
        if given in (schemes.IO, schemes.PLAIN):
            return given
        found = schemes.scheme_of(self.first)
        if found != schemes.IOB and not given:
            self._require_entities()
        if found == schemes.IOB or (found and not given):
            return given or found
        odd = schemes.odd_tags(self.first) or sorted(self.first)
        tag = min(odd, key=list(self.first).index)
        bare = "B" not in self.first and set(odd) == self.first.keys() - {"O"}
        bare = bare and not any(re.match(rf"[{LETTERS}]\W", one) for one in odd)
        remedy = "give --scheme=io if it is a kind without prefix" if bare else "correct it"
        raise InputError(
            f"{self.first[tag]}: the tag {tag!r} does not name an entity, as O and B-KIND do: {remedy}, or "
            "--scheme=plain, which counts words"
        )

    def _require_entities(self) -> None:
        """Raises InputError if the tags would name entities if written otherwise, or are brackets around them."""
        plain = [re.sub("(?<=^B)EGIN|(?<=^I)NSIDE|(?<=^O)UTSIDE", "", tag.strip("'\"").upper()) for tag in self.first]
        small = schemes.scheme_of(plain) == schemes.IOB
        if small or all(map(_BRACKETS.fullmatch, self.first)):
            found = "has small letters, quotes or whole words" if small else "opens or closes a bracket"
            odd = [tag for tag in self.first if tag == "o" or schemes.scheme_of([tag]) != schemes.IOB]
            tag = [*odd, *self.first][0]
            raise InputError(
                f"{self.first[tag]}: the tag {tag!r} {found}, and O, B-KIND and I-KIND name entities: write it so, or "
                "give --scheme=plain, which counts words"
            )

    def text_of(self, values: dict[str, Any], where: str) -> TaggedText | None:
        """The text of a row; None if it is left out."""
        words: Any = values.get(self._words)
        of_spans = not words and isinstance(values.get("text"), str)  # Prodigy has no tokens for some texts
        if _is_list(words) and not of_spans and not any(isinstance(word, dict) for word in words):
            return self._with_tags(list(words), values, where) if self._labelled else _joined(words, (), where)
        text, spans = spans_in(values, self._columns)
        self.about = ["texts with spans"] if self._labelled else []
        if not self._labelled and not content(text):
            if not self._columns.skip_empty:
                raise InputError(f"{where} has no text: correct the row, remove it, or give --skip_empty")
            self._without += 1
            return None
        if not self._labelled:
            return untagged(text, where, self._columns.scheme == schemes.OLDER)
        if text is None or spans is None:
            raise InputError(
                f"{where} has no words with tags: give lists such as tokens and tags, or a text with spans in label, "
                "or name the columns with --text_column and --label_column"
            )
        if isinstance(spans, str):
            self._skipped += 1
            return None
        places = word_places(whole(text))
        tags, widened = tags_of(spans, whole(text), places, where)
        self._widened += widened
        return self._noted(TaggedText(whole(text), tuple(places), tuple(tags), where))

    def _with_tags(self, words: list[Any], values: dict[str, Any], where: str) -> TaggedText:
        tags: Any = values.get(self._tags)
        if not _is_list(tags):
            raise InputError(f"{where} has no list of tags: name its column with --label_column")
        if len(words) != len(tags):
            counts = f"{counted(len(words), 'token')} and {counted(len(tags), 'tag')}"
            raise InputError(f"{where} has {counts}: correct the line")
        lines = values.get(LINE) if self._table.form == FORM or self.sentences is not None else None
        if self._columns.label_names or not all(isinstance(tag, str) for tag in tags):
            names, numbers = self._columns.named_labels, [tag for tag in tags if isinstance(tag, (int, float))]
            if numbers and not names:
                remedy = "give --label_names=O,B-PER,.. in their order"
                raise InputError(f"{where} has the number {numbers[0]} as tag: {remedy}")
            tags = [name_of(tag, names, where) for tag in tags] if names else tags
        tags = [tag.strip(" ") if isinstance(tag, str) else tag for tag in tags]
        return self._noted(_joined(words, tags, where), lines)

    def _noted(self, text: TaggedText, lines: Sequence[int] | None = None) -> TaggedText:
        """A text; its new tags are kept with their places, for which `lines` are those of its words."""
        for tag in sorted(set(text.tags).difference(self.first), key=text.tags.index):
            self.first[tag] = self._table.where(lines[text.tags.index(tag)]) if lines else text.where
        return text

    def _column(self, field: str, usual: tuple[str, ...]) -> str:
        given, names = getattr(self._columns, field), self._table.names
        if given in names and self._columns.named(field):
            return str(given)
        if given.isdecimal() and self._table.header_line and 0 < int(given) <= len(names):
            return names[int(given) - 1]
        elsewhere = {"data"} if self._labelled else {"data", "text"}
        needed = field == "text_column" or self._labelled
        if needed and self._columns.named(field) and not given.isdecimal() and not elsewhere & set(names):
            shown = ", ".join(map(repr, names[:20]))
            raise InputError(f"{self._table.header} has no column {given!r}: it has {shown}; correct --{field}")
        return first_near_name(usual, names) or (given if given in names else "")

    def _sentences(self) -> list[tuple[int, dict[str, Any]]] | None:
        """The texts of a table with a row for each word, as lists of words, tags and lines."""
        by_word, tag = self._example(self._words), self._example(self._tags)
        if self._table.form == FORM or by_word is None or _is_list(by_word) or isinstance(by_word, dict):
            return None
        if any(map(_is_list, map(self._example, LISTS))):
            return None  # texts with spans
        if (tag is None or _is_list(tag)) if self._labelled else self._words == "text":
            return None
        named, names = self._columns.sentence_column, [name for name in self._table.names if name != self._words]
        if named and named not in names:
            raise InputError(f"{self._table.header} has no column {named!r}: correct --sentence_column")
        sentence = named or first_near_name(SENTENCES, names)
        if not sentence and not self._labelled and self._words not in WORDS:
            return None
        if not sentence and not self._table.empty:
            raise InputError(
                f"{self._table.header} has neither lists of words and tags nor, for a word in each row, a column that "
                "says where a text begins: name it with --sentence_column"
            )
        self.about.append(f"texts by {sentence!r}" if sentence else "texts between empty rows")
        return list(self._grouped(sentence))

    def _example(self, column: str) -> Any:
        return next((values[column] for _, values in self._table.rows if content(values.get(column))), None)

    def _grouped(self, sentence: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of each text: where the column has another value, or after an empty row."""
        document = first_near_name(DOCUMENTS, self._table.names)
        seen, inside = set[str](), None
        ends, names = set(self._table.empty), [self._words, *([self._tags] if self._labelled else [])]
        text: dict[str, list[Any]] = collections.defaultdict(list)
        before, last = None, 0
        for line, values in [*self._table.rows, (0, {})]:
            now = values.get(sentence) if sentence else None
            if document and content(now):
                inside = values[document] if content(values.get(document)) else inside
                now = inside, now
            starts = (content(now) and now != before) or not ends.isdisjoint(range(last + 1, line))
            if text and (starts or not line):
                yield text[LINE][0], dict(text)
                text = collections.defaultdict(list)
            if content(now) and starts:
                self._again += str(now) in seen
                seen.add(str(now))
            before, last = now if content(now) else before, line
            for name in names:
                value = values.get(name)
                if name != self._tags and not isinstance(value, str):
                    value = "" if value is None or value != value else str(value)  # a number is a word, too
                if name == self._words and "\n" in str(value) and self._table.header_line:
                    held = f"{self._table.where(line)} has a word with line breaks, {str(value)[:40]!r}"
                    raise InputError(f'{held}: if it holds other rows, write the word " as """" in each row')
                text[name].append(value)
            text[LINE].append(line)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))

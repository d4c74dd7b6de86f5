"""CoNLL's format: a line for each word, with columns between tabs or spaces, and an empty line after each text.

Lines that begin with -DOCSTART- and comments, which begin with #, are left out. So are CoNLL-U's lines of several words
(1-2) and of words that the text lacks (8.1).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Source, Table
from txl_tf.errors import Faults, InputError

ENDS = ("conll", "conllu", "conllx", "iob", "bio")
"""The ends of names that say that a file has this format."""
FORM, LINE = "CoNLL", "line"
"""The name of the form, and the column with the numbers of the words' lines."""
WORDS = ("tokens", "words", "token", "word")
TAGS = ("tags", "ner_tags", "ner", "labels", "tag", "label", "ner_tag")
SENTENCES = ("sentence_id", "sentence #", "sentence id", "sent_id", "sentence")
"""The names of columns that are found without flags."""
LETTERS = "BIMELSUW"
"""The letters that tags of entities have before the kind; tasks/tagging/schemes.py says what they mean."""
_OF_WORDS = {*TAGS, "pos", "upos", "xpos", "pos_tag", "ne", "chunk"}
"""The names that the first line of a file may have beside one of WORDS."""
_LINE_END = re.compile("\r*\n|\r")
_START = "-DOCSTART-"
_WAY = "give a line for each word with a tab before its tag, and an empty line after each text"
_ENTITY, _FRACTION = re.compile(rf"O|[{LETTERS}][-_].+"), re.compile(r"\d*\.\d+")
_SEVERAL_WORDS = re.compile(r"\d+[-.]\d+")
_CONLL_U = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
_SINGLE_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,4}|[^\u3040-\u30ff\u3400-\u9fff]{1,20}")
_SAMPLE = 1 << 20  # characters
SOME = 1000  # lines
Line = tuple[int, list[str]]
"""The number of a line, and its cells; an empty line has none."""


def lines_of(text: str) -> list[str]:
    """The lines of a text, whose ends are \\n, \\r\\n or \\r."""
    return _LINE_END.split(text) if "\r" in text else text.split("\n")  # the second is faster


def is_conll(source: Source) -> bool:
    """Whether a text that is not JSON is in this format; otherwise it is a table, or has a text in each line."""
    text, end, labelled, tags = source.text, source.end, source.labelled, source.tags
    if tags is None or end == "csv" or _is_table(text, end, source.columns, labelled):
        return False
    if labelled or end in ENDS:
        return True
    lines = lines_of(text[:_SAMPLE])[: -1 if len(text) > _SAMPLE else None]
    words = [line for line in lines if line.strip() and not line.startswith(("#", _START))]
    if len(words) == 0 or any(line.startswith(_START) for line in lines):
        return len(words) > 0
    rows = [_cells(line) for line in words]
    if {len(cells) for cells in rows} == {1}:
        short = sum(bool(_SINGLE_WORD.fullmatch(cells[0])) for cells in rows)
        return short * 2 > len(rows) and "" in "\n".join(lines).strip().split("\n")
    if len({len(cells) for cells in rows}) > 1:
        return False
    return all("\t" in line for line in words) or (bool(tags) and all(cells[-1] in tags for cells in rows))


def _is_table(text: str, end: str, columns: Columns, labelled: bool) -> bool:
    """Whether line 1 has the names of a table's columns."""
    line = next((line for line in lines_of(text[:_SAMPLE]) if line.strip()), "")
    names = {cell.strip(' "').casefold() for cell in re.split("[\t,;|]", line)}
    has_words = bool(names & {*WORDS, columns.text_column.casefold()})
    has_tags = bool(names & {*TAGS, columns.label_column.casefold()})
    if has_words and names & {*SENTENCES, columns.sentence_column.casefold()} - {""}:
        return True
    return len(names) > 1 and end in ("tsv", "tab") and has_words and (has_tags or not labelled)


def read_conll(source: Source) -> Table:
    """A row for each text: lists of the words' cells by the numbers of columns, and of their lines, `LINE`.

    The source's columns name those of words (the first) and of tags (the last), by numbers, or by names if the file has
    them. InputError if a column is missing, or the first one counts the words and is read as words.
    """
    path, columns, labelled = source.path, source.columns, source.labelled
    lines = [(number, _cells(line)) for number, line in enumerate([*lines_of(source.text), ""], 1)]
    marked = [line for line in lines if line[1] and line[1][0].startswith("#")]
    words = [line for line in lines if line[1] and not (marked and line[1][0].startswith("#"))]
    if not words:
        return Table([], [], [], path, name=path, form=FORM)
    of_model = () if labelled else source.tags or ()
    if labelled or of_model:
        refuse_joined(path, words[:SOME], of_model)
    width = len(words[0][1])
    names, header = _names(marked, words)
    word = _number(columns.text_column, names, WORDS, 1) if width > 1 else 1
    tag = _number(columns.label_column, names, TAGS, width)
    for name in ("text_column", "label_column") if labelled else ():
        given = getattr(columns, name)
        if columns.named(name) and not given.isdecimal() and given.casefold() not in map(str.casefold, names):
            raise InputError(f"{path} has no column {given!r}: its {width} columns have numbers, such as --{name}=1")
    known = bool(marked) and 1 < tag <= width
    tags = {cells[tag - 1] for _, cells in words if len(cells) == width} if known else set()

    comments = [n for n, cells in marked if len(cells) != width or (tags and cells[tag - 1] not in tags)]
    if left_out := {*comments, *([words[0][0]] if header else [])}:
        lines = [line for line in lines if line[0] not in left_out]
    several: list[int] = []
    if _is_numbered(lines):
        if word == 1 or (labelled and width > 3 and not columns.named("label_column")):
            raise _numbered(path, words, columns, labelled)
        several = [n for n, cells in lines if cells and _SEVERAL_WORDS.fullmatch(cells[0])]
        left_out = set(several)
        lines = [line for line in lines if line[0] not in left_out]
    for number, name in ((word, "text_column"), (tag, "label_column"))[: 1 + labelled]:
        if number > width > 1:
            raise InputError(f"{path} has {counted(width, 'column')}, so there is no --{name}={number}")
    if labelled and word == tag and width > 1:
        raise InputError(f"{path}: column {word} has the words and the tags: give --text_column and --label_column")
    other = _other_tags(path, lines, width, columns, (word, tag)) if labelled and width > 1 else 0
    rows = list(_texts(path, lines, width, (word, tag) if labelled else (word,), source.faults))
    remarks = [f"word in column {word}" + (f", tag in {tag}" if labelled else "")]
    remarks += [f"tags such as B-PER in {other}, too, which --label_column={other} reads"] if other else []
    remarks += [f"{counted(len(comments), 'comment')} left out"] if comments else []
    remarks += [f"{counted(len(several), 'line')} of several words left out"] if several else []
    return Table([str(n) for n in (word, tag)], rows, [], path, name=path, unit="line", form=FORM,
                 remarks=tuple(remarks))  # fmt: skip


def words_table(table: Table) -> Table:
    """The table of such texts with a row for each word, and an empty row after each text but the last."""
    texts = [(values[LINE], values[table.names[0]]) for _, values in table.rows]
    rows = [(line, {"word": word}) for lines, words in texts for line, word in zip(lines, words, strict=True)]
    return dataclasses.replace(table, names=["word"], rows=rows, empty=[lines[-1] + 1 for lines, _ in texts[:-1]])


def refuse_joined(path: str, lines: Sequence[Line], tags: Collection[str] = ()) -> None:
    """Raises InputError if every word of these lines has its tag joined to it, such as EU|B-ORG.

    `tags` are those that are known; (): any.
    """
    cells = [cell for _, cells in lines for cell in cells]
    spaces = [[cell.count(" ") for cell in cells] for _, cells in lines]
    if any(map(any, spaces)) and all(len(one) == 2 and one[0] == one[1] for one in spaces):
        raise InputError(f"{path}, line {lines[0][0]} has {cells[0][:40]!r}, several words with their tags: {_WAY}")
    for separator in "|/_#;,":
        parts = [cell.rpartition(separator) for cell in cells]
        if parts and all(word and tag and (not tags or tag in tags) for word, _, tag in parts):
            raise InputError(f"{path}, line {lines[0][0]} has {cells[0][:40]!r}, a word and its tag in one: {_WAY}")


def _cells(line: str) -> list[str]:
    """The cells of a line, none of one that ends a text; tabs at its end begin no column."""
    if not line or line.isspace() or line.startswith(_START):
        return []
    if "\t" in line:
        return line.rstrip(" \t").split("\t")
    cells = line.split(" ")
    return [cell for cell in cells if cell] if "" in cells else cells


def _other_tags(path: str, lines: list[Line], width: int, columns: Columns, used: tuple[int, int]) -> int:
    """The first column that has tags of entities, if the column of the tags, which nobody named, has none; 0: none.

    `width` is the number of columns, `used` are those of words and tags. InputError if what is read as words or
    tags is certainly something else.
    """
    word, tag = used
    lines = lines[:SOME]
    rows = [line for line in lines if len(line[1]) == width]
    if not rows:
        return 0
    first, cells = rows[0][1], [[row[i] for _, row in rows] for i in range(width)]
    found = [i + 1 for i, own in enumerate(cells) if set(own) != {"O"} and all(map(_ENTITY.fullmatch, own))]
    right = all(map(_ENTITY.fullmatch, cells[tag - 1]))
    begin, own_words = f"{path}, line {rows[0][0]}: column", columns.named("text_column")
    if width == 2 and all(own.endswith(",") for own in cells[word - 1]):
        raise InputError(f"{path}, line {rows[0][0]} has {first[word - 1]!r}, a word and a comma: {_WAY}")
    if word in found and not right and not own_words:
        flags = f"--text_column={tag if width == 2 else word + 1} --label_column={word}"
        raise InputError(f"{begin} {word} has tags such as {first[word - 1]!r}, not words: give the numbers of the "
                         f"columns to read, such as {flags}")  # fmt: skip
    if word == 1 and width > 2 and not own_words and _is_the_same_in_texts(lines, 1 if width > 3 else 2):
        raise InputError(
            f"{begin} 1 has {first[0]!r} for all words of the text: give the numbers of the columns to read with "
            "--text_column and --label_column"
        )
    if columns.named("label_column"):
        return 0
    if right:  # one of two columns with the same tags may have predictions
        return next((i for i in found if i != tag and set(cells[i - 1]) & set(cells[tag - 1]) - {"O"}), 0)
    for letters, kinds in itertools.permutations((i for i in range(width) if i != word - 1), 2):
        pairs = set(zip(cells[letters], cells[kinds], strict=True))
        outside = {kind for letter, kind in pairs if letter == "O"}  # one sign, if these are kinds
        are_letters = {"B", "O"} <= set(cells[letters]) <= {"O", *LETTERS}
        if are_letters and [letter for letter, kind in pairs if kind in outside] == ["O"]:
            both = f"column {kinds + 1} their kinds: give a column with both, such as B-PER"
            raise InputError(f"{begin} {letters + 1} has the letters of tags and {both}")
    if all(map(_FRACTION.fullmatch, cells[tag - 1])):
        remedy = f"such as --label_column={found[0]}" if found else "with --label_column"
        raise InputError(f"{begin} {tag} has {first[tag - 1]!r}, not a tag: name the column of the tags, {remedy}")
    return found[0] if found else 0


def _is_the_same_in_texts(lines: list[Line], least: int) -> bool:
    """Whether the first cell is that of the word before, as names of documents are: always, and `least` times."""
    pairs = [(a[0], b[0]) for (_, a), (_, b) in itertools.pairwise(lines) if a and b]
    return len(pairs) >= least and all(a == b for a, b in pairs)


def _names(marked: list[Line], words: list[Line]) -> tuple[list[str], bool]:
    """The names of the columns, if a comment has them or it is CoNLL-U; and whether the first line has them."""
    for _, cells in marked:
        if (said := " ".join(cells)).startswith("# global.columns = "):
            return said.split()[3:], False
    first = words[0][1]
    own = [cell.casefold() for cell in first]
    if set(own) & set(WORDS) and set(own) & _OF_WORDS:
        return first, True
    below = (zip(first[1:], row[1:], strict=False) for _, row in words[1:SOME])
    if len(own) > 2 and own[0] in WORDS and all(a != b for pairs in below for a, b in pairs):  # names of other tags
        return first, True
    return (_CONLL_U if len(own) == len(_CONLL_U) else []), False


def _number(given: str, names: list[str], usual: tuple[str, ...], default: int) -> int:
    """The number of a column from its number or name; a name that only other tables have does not count."""
    if re.fullmatch("[1-9][0-9]*", given):
        return int(given)
    known = [name.casefold() for name in names]
    return next((known.index(name) + 1 for name in (given.casefold(), *usual) if name in known), default)


def _is_numbered(lines: list[Line]) -> bool:
    """Whether column 1 counts the words of each text, or those of the file."""
    before, begins, right, count = 0, True, 0, 0
    for _, cells in lines:
        if not cells:
            begins = True
        elif not _SEVERAL_WORDS.fullmatch(cells[0]):
            if not cells[0].isdecimal() or len(cells) < 2:
                return False
            number, count = int(cells[0]), count + 1
            right += number == before + 1 or (begins and number in (0, 1))
            before, begins = number, False
    return count > 1 and right >= 0.9 * count


def _numbered(path: str, words: list[Line], columns: Columns, labelled: bool) -> InputError:
    line, first = words[0]
    word = int(columns.text_column) if columns.text_column.isdecimal() and columns.text_column != "1" else 2
    usual = 4 if len(first) == len(_CONLL_U) else len(first)
    places = range(word, len(first))
    of_entities = (i + 1 for i in places if any(len(cells) > i and cells[i] == "O" for _, cells in words))
    flags = f"--text_column={word}" + (f" --label_column={next(of_entities, usual)}" if labelled else "")
    return InputError(
        f"{path}, line {line} has {', '.join(map(repr, first))[:80]}: column 1 counts the words of each text, so give "
        f"the numbers of the columns to read, such as {flags}"
    )


def _texts(
    path: str, lines: list[Line], width: int, used: tuple[int, ...], faults: Faults
) -> Iterator[tuple[int, dict[str, list[str] | list[int]]]]:
    word, tag = used[0] - 1, used[-1] - 1
    for is_text, group in itertools.groupby(lines, key=lambda line: bool(line[1])):
        rows: list[Line] = []
        for line, cells in group if is_text else ():
            if len(cells) != width or len(cells) < len(used):
                widths = f"has {counted(len(cells), 'column')}, and the first line has {width}: correct it"
                fault = "has a word without a tag: correct the line" if len(cells) < len(used) else widths
                faults.add(f"{path}, line {line} {fault}", line)
            elif not (cells[word].strip(" ") and cells[tag].strip(" ")):
                faults.add(f"{path}, line {line} has an empty word or tag: correct the line", line)
            else:
                rows.append((line, cells))
        if rows:
            found = {str(n): [cells[n - 1].strip(" ") for _, cells in rows] for n in used}
            yield rows[0][0], {**found, LINE: [line for line, _ in rows]}

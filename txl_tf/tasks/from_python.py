"""Tasks made from Python's standard library, so that fine-tuning can be tried without a download.

"match": does a docstring belong to a function's body? Each body occurs twice: with its own docstring, and with that of
another function of the same split. Only the two texts together show which is which.

"answers": what does a function of this code do? The answer is the first line of its docstring, a span of the code; a
quarter of the questions name a function that is not in the code, and have no answer. The code is short, so that a small
model reads it in one window.

"statements": which kinds of statements does the body of a function with this docstring have? Any number of the labels
loop, condition, return, raise, try, with and yield.

"names": what do the names in a line of code stand for? A text is a logical line, its words are the tokens of Python's
own tokenizer, with "" for every string. The tags are in IOB2. MODULE is a name in an import. FUNCTION and CLASS are
names where they are defined, ARGUMENT is one in a function's definition. CALL is a name that is called, dots included.

"order": is a line of code as it was written, or have two neighbouring words changed places? Only the order tells, since
both have the same words. There are few examples to learn from: a model that has read much code knows the order.

The splits are those of the corpus python_stdlib, so that a model pretrained on its train split has not read the code
of valid and test.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import io
import json
import textwrap
import tokenize
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from txl_tf.data.text.sources import SPLITS, TextSource, standard_library
from txl_tf.storage.files import read_bytes, require_new, write_atomically

_STATEMENTS = {
    "condition": ast.If,
    "loop": ast.For | ast.While,
    "raise": ast.Raise,
    "return": ast.Return,
    "try": ast.Try,
    "with": ast.With,
    "yield": ast.Yield | ast.YieldFrom,
}
"""The labels of "statements"."""

_DOCSTRING_CHARS, _BODY_CHARS, _CODE_CHARS = 120, 240, 500
"""The longest docstring and body, which are cut, since a small model learns sooner to compare short texts; and the
longest code of a question: longer functions are left out."""

_NAMED_LINES = {"train": 6_000, "valid": 1_000, "test": 1_000}
_ORDERED_LINES = {"train": 6_000, "valid": 1_000, "test": 2_000}
"""The most lines by split."""

_ORDERED_WORDS, _ORDERED_CHARS = 4, 80
"""The fewest words of a line of "order", and its most characters."""

_LAYOUT = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}

_SEPARATOR = "\n\n"


@dataclasses.dataclass(frozen=True)
class Function:
    """A function with a docstring, in the text of a file."""

    name: str
    code: str  # indented as in the file, docstring included
    summary: str  # the docstring's first line
    docstring: str  # without the indentation of its lines
    body: str  # the source without the docstring
    statements: tuple[str, ...]  # the kinds of statements in it, as labels


def functions(text: str) -> Iterator[Function]:
    """The documented functions in the source of a Python file, in order; none if it is not valid Python."""
    lines = text.split("\n")
    defined = [node for node in ast.walk(_parsed(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in sorted(defined, key=lambda node: node.lineno):
        docstring = ast.get_docstring(node)
        if not docstring or len(node.body) < 2:
            continue
        string = node.body[0]
        code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        after = lines[string.end_lineno : node.end_lineno]
        body = "\n".join(lines[node.lineno - 1 : string.lineno - 1] + after)
        summary = docstring.split("\n")[0].strip()
        if summary and after and summary in code:
            inner = list(ast.walk(node))
            kinds = tuple(name for name, kind in _STATEMENTS.items() if any(isinstance(each, kind) for each in inner))
            yield Function(node.name, code, summary, docstring, textwrap.dedent(body), kinds)


def match_rows(split: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of "match", from the texts of files: a docstring's first paragraph, a body, and the label own or other."""
    every = [function for text in texts for function in functions(text)]
    for index, function in enumerate(every):
        draw = _draw(f"{split} {index} {function.name}")
        other = every[(index + 1 + draw % (len(every) - 1)) % len(every)] if len(every) > 1 else function
        docstrings = {"own": function.docstring}
        if other.docstring != function.docstring:
            docstrings["other"] = other.docstring
        for label, docstring in docstrings.items():
            text = _first_paragraph(docstring)[:_DOCSTRING_CHARS]
            yield {"text": text, "text_b": function.body[:_BODY_CHARS], "label": label}


def statement_rows(split: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of "statements": text is a docstring's first paragraph, label a list."""
    for function in (function for text in texts for function in functions(text)):
        yield {"text": _first_paragraph(function.docstring)[:_BODY_CHARS], "label": list(function.statements)}


def _first_paragraph(docstring: str) -> str:
    return docstring.split("\n\n")[0].replace("\n", " ")


def answer_articles(split: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Articles of "answers" in SQuAD 2.0's form, one for each file."""
    for number, text in enumerate(texts):
        file, paragraphs = [function for function in functions(text) if len(function.code) <= _CODE_CHARS], []
        for start, stop in _chunks(file):
            code = _SEPARATOR.join(function.code for function in file[start:stop])
            # A name that occurs in this code would make a question that may have an answer.
            strangers = [function.name for function in file if function.name not in code]
            questions = []
            for index in range(start, stop):
                function, key = file[index], f"{split}-{number}-{index}"
                draw = _draw(f"{key} {function.name}")
                if sum(other.name == function.name for other in file[start:stop]) == 1:
                    at = code.index(function.code)
                    at += function.code.index(function.summary)
                    questions.append((key, function.name, [{"text": function.summary, "answer_start": at}]))
                if strangers and draw % 3 == 0:
                    questions.append((f"{key}-other", strangers[draw // 3 % len(strangers)], []))
            asked = [
                {"id": key, "question": f"What does {name} do?", "answers": answers, "is_impossible": not answers}
                for key, name, answers in questions
            ]
            if asked:
                paragraphs.append({"context": code, "qas": asked})
        if paragraphs:
            yield {"title": f"{split} {number}", "paragraphs": paragraphs}


def name_rows(split: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of "names": the words of lines of the files' texts, and their tags; at most `_NAMED_LINES` are drawn."""
    lines = [line for text in texts for line in tagged_lines(text)]
    order = sorted(range(len(lines)), key=lambda i: _draw(f"{split} {i} {lines[i][0][0]}"))[: _NAMED_LINES[split]]
    for i in sorted(order):
        yield {"tokens": lines[i][0], "tags": lines[i][1]}


def order_rows(split: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of "order": text is a line of code, label "written" or "exchanged"."""
    lines = dict.fromkeys(line for text in texts for line in code_lines(text))
    drawn = sorted((_draw(f"{split} {line}"), line) for line in lines)
    for draw, line in drawn[: _ORDERED_LINES[split]]:
        words = line.split()
        places = [i for i in range(len(words) - 1) if words[i] != words[i + 1]]
        if draw % 2 and places:
            i = places[draw // 2 % len(places)]
            words[i : i + 2] = words[i + 1], words[i]
        yield {"text": " ".join(words), "label": "exchanged" if words != line.split() else "written"}


def code_lines(text: str) -> Iterator[str]:
    """The statements of a Python file that are one line of some words, without comments; none if it cannot be read."""
    first = None
    for token in _tokens(text):
        if token.type not in _LAYOUT:
            first = first or token
            if token.type == tokenize.NEWLINE:
                line = first.line.strip()
                whole = first.start[0] == token.start[0] and first.type != tokenize.STRING
                whole = whole and len(line) <= _ORDERED_CHARS and not set("#\\") & set(line)
                if whole and len(line.split()) >= _ORDERED_WORDS:
                    yield line
                first = None


_ROWS = match_rows, answer_articles, statement_rows, name_rows, order_rows
TASKS = dict(zip(("match", "answers", "statements", "names", "order"), _ROWS, strict=True))
"""For each task a function: (split, texts of its files) -> its rows, or for "answers" articles."""


def write_task(task: str, directory: str, source: TextSource | None = None) -> dict[str, int]:
    """Writes a task's files, {train,valid,test}.json for "answers", .jsonl for others; the examples of each split.

    The Python files are the source's, by default the running interpreter's standard library. InputError if a file
    exists already with other content.
    """
    tf.io.gfile.makedirs(directory)
    by_split: dict[str, list[str]] = {split: [] for split in SPLITS}
    for piece in (source or standard_library()).pieces:
        text = read_bytes(piece.path).decode("utf-8", "replace").replace("\r\n", "\n")
        by_split[str(piece.split)].append(text)
    counts, contents = {}, {}
    for split, texts in by_split.items():
        rows, path = list(TASKS[task](split, texts)), tf.io.gfile.join(directory, split)
        if task == "answers":
            contents[path + ".json"] = json.dumps({"version": "v2.0", "data": rows}) + "\n"
            counts[split] = sum(len(paragraph["qas"]) for article in rows for paragraph in article["paragraphs"])
        else:
            contents[path + ".jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
            counts[split] = len(rows)
    for path, content in contents.items():
        if not tf.io.gfile.exists(path) or read_bytes(path) != content.encode():
            require_new(path, "out_dir")
    for path, content in contents.items():
        write_atomically(path, content)
    return counts


def _chunks(file: list[Function]) -> Iterator[tuple[int, int]]:
    """Consecutive functions of a file whose code is together at most _CODE_CHARS long: where they begin and end."""
    start, length = 0, 0
    for index, function in enumerate(file):
        if index > start and length + len(_SEPARATOR) + len(function.code) > _CODE_CHARS:
            yield start, index
            start = index
        length = len(function.code) + (length + len(_SEPARATOR) if index > start else 0)
    if file:
        yield start, len(file)


def _parsed(text: str) -> ast.Module:
    """The syntax of a Python file; without content if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escapes in strings
            return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return []


def _draw(name: str) -> int:
    """A number that follows from a name alone, the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


_WORDS = 40
"""Longer lines are left out."""


def tagged_lines(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words and tags of each line with an entity in the source of a Python file; none if it is not valid Python."""
    kinds = _kinds(_parsed(text), text.split("\n"))
    words, tags, before = list[str](), list[str](), ""
    for token in _tokens(text) if kinds else ():
        if token.type == tokenize.NEWLINE:
            if len(words) <= _WORDS and set(tags) != {"O"}:
                yield words, tags
            words, tags, before = [], [], ""
        elif token.type not in _LAYOUT:
            kind, first = kinds.get(token.start, ("", True))
            words.append('""' if token.type == tokenize.STRING else token.string)
            tags.append(f"{'B' if first or before != kind else 'I'}-{kind}" if kind else "O")
            before = kind


def _kinds(tree: ast.AST, lines: list[str]) -> dict[tuple[int, int], tuple[str, bool]]:
    """The kinds of entities by where a token of one begins, as line and column, and whether it is the first one."""
    found: dict[tuple[int, int], tuple[str, bool]] = {}

    def mark(line: int, column: int, dotted: str, kind: str) -> None:
        for i, part in enumerate(dotted.split(".")):
            if i:
                found[line, column] = kind, False
                column += 1
            found[line, column] = kind, not i
            column += len(part)

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            column = node.col_offset + len("def " if isinstance(node, ast.FunctionDef) else "class ")
            if lines[node.lineno - 1].startswith(node.name, column):
                found[node.lineno, column] = "FUNCTION" if isinstance(node, ast.FunctionDef) else "CLASS", True
        elif isinstance(node, ast.arg):
            found[node.lineno, node.col_offset] = "ARGUMENT", True
        elif isinstance(node, ast.Call):
            place, dotted = node.func, ast.unparse(node.func)
            in_one_line = lines[place.lineno - 1].startswith(dotted, place.col_offset)
            if in_one_line and all(part.isidentifier() for part in dotted.split(".")):
                mark(place.lineno, place.col_offset, dotted, "CALL")
        elif isinstance(node, ast.Import):
            for name in node.names:
                mark(name.lineno, name.col_offset, name.name, "MODULE")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            mark(node.lineno, node.col_offset + len("from "), node.module, "MODULE")
    return found

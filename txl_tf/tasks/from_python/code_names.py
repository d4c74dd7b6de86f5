"""A task made from Python source: the kinds of names in a line of code, by the syntax of the whole file.

A text is a logical line. Its words are the tokens of Python's own tokenizer, with "" for every string. The tags are in
IOB2. MODULE is a name in an import. FUNCTION and CLASS are names where they are defined, ARGUMENT is one in a
function's definition. CALL is a name that is called, dots included. A word alone seldom shows its tag.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator

_WORDS = 40
"""Longer lines are left out."""

_LEFT_OUT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


def tagged_lines(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words and tags of each line with an entity in the source of a Python file; none if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escapes in strings
            kinds = _kinds(ast.parse(text), text.split("\n"))
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return
    words: list[str] = []
    tags: list[str] = []
    before = ""
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            if len(words) <= _WORDS and set(tags) != {"O"}:
                yield words, tags
            words, tags, before = [], [], ""
        elif token.type not in _LEFT_OUT:
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

"""Writes the lines of Python files in tree.md, each from the file's own docstring.

    python docs/tree.py

Other lines, and the order, are written by hand. A test checks that the page is as this program leaves it.
"""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tree.md"
TREE = re.compile(r"```\n(txl_tf/.*?)```", re.DOTALL)
FOLDER = re.compile(r"( *)([\w/]+)/(?: |$)")
FILES = re.compile(r"( *)((?:\w+\.py(?: +|$))+)")
COLUMN = 26
"""Where descriptions begin."""
LONG = 84
"""Characters of a long description."""


def first_sentence(path):
    """The first sentence of a file's docstring, without its period; a long one up to its first colon or semicolon."""
    words = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    sentence = re.match(r"(.*?)\.?(?:\. |$)", words)[1]
    return sentence if len(sentence) <= LONG else re.split("[:;] ", sentence)[0]


def written(tree):
    """The tree with the lines of Python files as their docstrings have them."""
    lines, folders = [], []
    for line in tree.splitlines():
        if match := FOLDER.match(line):
            folders = [*folders[: len(match[1]) // 2], match[2]]
        elif match := FILES.match(line):
            folder = ROOT.joinpath(*folders[: len(match[1]) // 2])
            for name in match[2].split():
                begin = f"{match[1]}{name}".ljust(COLUMN - 2)
                lines.append(f"{begin}  {first_sentence(folder / name)}")
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def page(text):
    """The page with the tree `written`."""
    return TREE.sub(lambda match: f"```\n{written(match[1])}```", text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

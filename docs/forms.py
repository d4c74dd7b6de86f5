"""Writes the table of forms of files in tables.md from the list in txl_tf/data/tables/forms.py.

    python docs/forms.py

A test checks that the page is as this program leaves it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT))
from txl_tf.data.tables import forms  # noqa: E402 (it must be findable first)

PAGE = ROOT / "docs" / "tables.md"
HEAD = "| form | names that end in | what it holds |\n|---|---|---|\n"


def table():
    """The rows of the table: one for each form that is read."""
    rows = [
        (form.name.removeprefix("a "), ", ".join(f".{end}" for end in form.ends) or "any other", form.help)
        for form in forms.TABLES
        if form.reads
    ]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(text):
    """The page with the table as the list has it."""
    return re.sub(re.escape(HEAD) + r"(?:\|.*\n)*", lambda _: table(), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

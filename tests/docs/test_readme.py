"""README's first program prints what the page shows."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_the_first_lines_print_the_text_below_them_from_any_folder(tmp_path, monkeypatch, capsys):
    found = re.search(r"```python\n([^`]*)```\n\n((?:> .*\n)+)", (ROOT / "README.md").read_text())
    program, quoted = found.groups()
    shown = re.sub("^> ", "", quoted, flags=re.MULTILINE).replace("<br>\n", "\n")
    assert len(program.replace("\n\n", "\n").splitlines()) == 3
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out == shown

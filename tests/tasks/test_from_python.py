"""The tasks made from Python source: what each example says is true of the text it was made from."""

import json
import textwrap

import pytest

from txl_tf.data.text.sources import Piece, TextSource
from txl_tf.errors import InputError
from txl_tf.tasks import from_python
from txl_tf.tasks.from_python import functions, tagged_lines, write_task

SOURCE = '''
class Stack:
    def push(self, item):
        """Puts an item on top.

        It must not be None.
        """
        assert item is not None
        self.items.append(item)

    def pop(self):
        "Takes the top item off."
        return self.items.pop()

    def size(self):
        return len(self.items)


async def drain(stack):
    """Empties a stack."""
    while stack.items:
        stack.pop()


def only_documented():
    """Has no body."""
'''


def test_statements_are_those_of_the_functions(tmp_path):
    first = 'def f(x):\n    """Adds."""\n    for y in x:\n        if y:\n            yield y\n'
    code = first + '\n\ndef g():\n    """Gets."""\n    return 1\n'
    assert list(from_python.statement_rows("train", [code])) == [
        {"text": "Adds.", "label": ["condition", "loop", "yield"]},
        {"text": "Gets.", "label": ["return"]},
    ]


def test_functions_are_those_with_a_docstring_and_a_body():
    found = {function.name: function for function in functions(SOURCE)}
    assert list(found) == ["push", "pop", "drain"]
    assert found["push"].docstring == "Puts an item on top.\n\nIt must not be None."
    assert found["push"].summary == "Puts an item on top."
    assert found["push"].body == "def push(self, item):\n    assert item is not None\n    self.items.append(item)"
    assert found["pop"].body == "def pop(self):\n    return self.items.pop()"
    assert found["drain"].code in SOURCE


def test_a_file_that_is_not_python_has_no_functions():
    assert list(functions("def broken(:\n")) == []
    assert list(functions("x = '\0'")) == []


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Three files of 30 functions, in train."""
    folder, pieces = tmp_path_factory.mktemp("library"), []
    for file in range(3):
        text = "\n\n".join(
            textwrap.dedent(f'''
                def job_{file}_{i}(x):
                    """Does job {file} {i}."""
                    first = x + {i}
                    return first * {file}
            ''')
            for i in range(30)
        )
        (folder / f"{file}.py").write_text(text)
        pieces.append(Piece("train", str(folder / f"{file}.py")))
    return TextSource(tuple(pieces), "file")


def test_pairs_match_as_labelled(source, tmp_path):
    assert write_task("match", str(tmp_path), source) == {"train": 180, "valid": 0, "test": 0}
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    for row in rows:
        own = row["text"] == "Does job {} {}.".format(*row["text_b"].split("(")[0].split("_")[1:])
        assert row["label"] == ("own" if own else "other")
    assert [row["label"] for row in rows] == ["own", "other"] * 90


def test_answers_stand_where_they_are_said_to(source, tmp_path):
    total = write_task("answers", str(tmp_path), source)["train"]
    articles = json.loads((tmp_path / "train.json").read_text())["data"]
    questions = [
        (paragraph["context"], question)
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    assert len(questions) == len({question["id"] for _, question in questions}) == total > 60
    for context, question in questions:
        name = question["question"].split()[2]
        assert question["is_impossible"] == (f"def {name}(" not in context)
        assert len(question["answers"]) == (not question["is_impossible"])
        for answer in question["answers"]:
            start = answer["answer_start"]
            assert context[start : start + len(answer["text"])] == answer["text"]
            assert answer["text"] == "Does job {} {}.".format(*name.split("_")[1:])
    assert 0.15 < sum(question["is_impossible"] for _, question in questions) / total < 0.55


def test_only_the_same_files_are_written_again(source, tmp_path):
    write_task("match", str(tmp_path), source)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert write_task("match", str(tmp_path), source)["train"] == 180
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    (tmp_path / "train.jsonl").write_text("the user's own")
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(InputError, match=r"train\.jsonl exists and would be overwritten"):
        write_task("match", str(tmp_path), source)
    assert (tmp_path / "train.jsonl").read_text() == "the user's own" and not (tmp_path / "test.jsonl").exists()


def test_names_have_the_tags_of_what_they_stand_for():
    body = '    def push(self, item="x y"):  # why\n        os.path.join(item)\n        x = 1\n'
    source = "import os.path, re\nclass A:\n" + body
    found = [list(zip(*row, strict=True)) for row in tagged_lines(source)]
    modules = [("os", "B-MODULE"), (".", "I-MODULE"), ("path", "I-MODULE"), (",", "O"), ("re", "B-MODULE")]
    assert found[0] == [("import", "O"), *modules]
    assert ("A", "B-CLASS") in found[1]
    assert [one for one in found[2] if one[1] != "O"] == [
        ("push", "B-FUNCTION"),
        ("self", "B-ARGUMENT"),
        ("item", "B-ARGUMENT"),
    ]
    assert [tag for _, tag in found[3]] == ["B-CALL", *["I-CALL"] * 4, "O", "O", "O"]
    assert len(found) == 4
    assert not list(tagged_lines("def ("))


def test_lines_are_as_written_or_have_two_neighbours_exchanged():
    code = 'def f(a, b, c):\n    """One two three four."""\n    # a comment of some words\n    if a is not b:\n'
    code += "        return a + (\n            b)\n    d = 1  # not taken for its comment\n    for i in range(3):\n"
    written = ["def f(a, b, c):", "if a is not b:", "for i in range(3):"]
    assert list(from_python.code_lines(code + "        print(i)\n")) == written
    assert list(from_python.code_lines("x = (1,\n")) == []
    lines = [f"for x{i} in [a, {i}, b] + c:" for i in range(200)]
    text = "\n".join(f"{line} pass" for line in lines)
    rows = list(from_python.order_rows("test", [text, text]))
    assert len(rows) == 200  # each line once
    known = {frozenset(f"{line} pass".split()): f"{line} pass".split() for line in lines}
    for row in rows:
        found = row["text"].split()
        right = known[frozenset(found)]
        places = [i for i, (one, other) in enumerate(zip(found, right, strict=True)) if one != other]
        if row["label"] == "written":
            assert not places
        else:
            assert places[1] == places[0] + 1 and found[places[0]] == right[places[1]] and len(places) == 2
    assert 70 < sum(row["label"] == "exchanged" for row in rows) < 130

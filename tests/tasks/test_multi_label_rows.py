"""Rows with any number of labels: lists in JSON lines, cells with a separator, and what is wrong with them."""

import json
import types

import numpy as np
import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.errors import FaultsError, InputError
from txl_tf.tasks.multi_label import MultiLabel, frequencies, label_matrix, set_names
from txl_tf.tasks.multi_label.rows import SIGNS_IN_NAMES
from txl_tf.tasks.texts import read_table


def test_a_result_stands_beside_that_of_giving_all_texts_the_same_labels():
    """The more frequent label alone is best: 2 of 3 texts have it, and no other label is there."""
    parts = {"train": [[1, 0], [1, 0], [1, 1], [0, 0]], "dev": [[1, 0], [1, 0], [0, 0]]}
    examples = {
        name: types.SimpleNamespace(features={"label": np.array(rows, np.float32)}) for name, rows in parts.items()
    }
    found = MultiLabel().baselines(types.SimpleNamespace(**examples))
    assert found == {"same_labels": pytest.approx(0.8)}
    result = {"micro_f1": 0.9, "examples": 1234}
    assert MultiLabel().worth(result) == ({}, "micro F1 90.0% (1,234 examples)")
    assert MultiLabel().worth(result | found)[1].endswith("(1,234 examples), the same labels for all texts 80.0%")


def test_lists_and_cells_are_the_same(tmp_path):
    sets = [["b", "a"], [], ["c"], ["a", " a "]]
    lines = [json.dumps({"text": f"text {i}", "label": labels}) for i, labels in enumerate(sets)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": "text 4", "label": null}']))
    cells = [f"text {i}\t{'|'.join(labels)}" for i, labels in enumerate(sets)]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *cells, "text 4\t"]))
    (tmp_path / "b.csv").write_text(
        "\n".join(["text,label", *(cell.replace("\t", ",").replace("|", ";") for cell in cells), "text 4,"])
    )
    found = [
        MultiLabel().read(str(tmp_path / name), columns)
        for name, columns in (
            ("a.jsonl", Columns()),
            ("a.tsv", Columns()),
            ("b.csv", Columns(label_separator=";", delimiter=",")),
        )
    ]
    wanted = [["a", "b"], [], ["c"], ["a"], []]
    for rows in found:
        assert [json.loads(row.label) for row in rows] == wanted
    labels = set_names(found[0])
    assert labels == ("a", "b", "c")
    matrix = label_matrix(found[0], labels)
    np.testing.assert_array_equal(matrix, [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]])
    assert frequencies(labels, matrix) == "3 labels: a 40.0%, b 20.0%, c 20.0%; a text has 0.80 of them"


def test_faults_are_said_with_their_lines(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "x", "label": 3}\n{"text": "y", "label": ["a", 2]}\n{"text": "z", "label": ["a"]}\n')
    with pytest.raises(FaultsError) as found:
        MultiLabel().read(str(path), Columns())
    assert len(found.value.faults) == 2 and all("as a list of texts" in fault for fault in found.value.faults)
    path.write_text('{"text": "x"}\n')
    with pytest.raises(InputError, match="has no column 'label'"):
        MultiLabel().read(str(path), Columns())
    path.write_text('{"text": "x", "label": ["a"]}\n')
    with pytest.raises(InputError, match=r"line 1 has the label 'a', which the model does not know: it has b"):
        label_matrix(MultiLabel().read(str(path), Columns()), ("b",))


SETS = [["a", "b"], [], ["c"], ["a"]]


@pytest.mark.parametrize(
    "written",
    [
        lambda labels: str(labels),
        lambda labels: json.dumps(labels),
        lambda labels: str(np.array(labels, object)),
        lambda labels: str(np.array(labels)) if labels else "",
        lambda labels: "|".join(labels),
    ],
)
def test_lists_in_writing(tmp_path, written):
    """As pandas writes columns of lists and of NumPy's arrays into a CSV file."""
    cells = ['"' + written(labels).replace('"', '""') + '"' for labels in SETS]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"t,{cell}\n" for cell in cells))
    rows = MultiLabel().read(str(tmp_path / "a.csv"), Columns())
    assert [json.loads(row.label) for row in rows] == SETS
    assert rows.understood == "CSV, text in 'text', label in 'label': 4 rows, 3 labels"


def test_arrays_of_numpy_are_not_joined(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nt,\"['it''s' 'b'\n 'c']\"\nu,[plain]\n")
    rows = MultiLabel().read(str(tmp_path / "a.csv"), Columns())
    assert json.loads(rows[1].label) == ["[plain]"]
    (tmp_path / "b.csv").write_text('text,label\nt,"[\'a\' ""it\'s""\n \'c\']"\n')
    assert json.loads(MultiLabel().read(str(tmp_path / "b.csv"), Columns())[0].label) == ["a", "c", "it's"]


@pytest.mark.parametrize("cell", ["[{}]", "[{}.]", '"[{}, 0, 0]"'])
def test_numbers_have_names(tmp_path, cell):
    names = Columns(label_names="a,b,c")
    hot = [[int(name in labels) for name in "abc"] for labels in SETS]
    ids = [["abc".index(name) for name in labels] for labels in SETS]
    for numbers in (hot, ids, [list(map(float, one)) for one in hot]):
        (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "t", "label": {one}}}\n' for one in numbers))
        assert [json.loads(row.label) for row in MultiLabel().read(str(tmp_path / "a.jsonl"), names)] == SETS
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f'u,"{np.array(one)}"\n' for one in hot))
    assert [json.loads(row.label) for row in MultiLabel().read(str(tmp_path / "a.csv"), names)] == SETS
    with pytest.raises(InputError, match=r"--label_names=FIRST,SECOND"):
        MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())
    (tmp_path / "b.csv").write_text('text,label\nt,"[0, 0, 1]"\nu,\nv,"[1, 0, 1]"\n')
    with pytest.raises(InputError, match=r"--label_names=FIRST,SECOND"):
        MultiLabel().read(str(tmp_path / "b.csv"), Columns())
    (tmp_path / "a.jsonl").write_text('{"text": "t", "label": [3]}\n')
    with pytest.raises(InputError, match="label '3', but --label_names has the names of 0 to 2"):
        MultiLabel().read(str(tmp_path / "a.jsonl"), names)


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("1.0", "0.0"), ("True", "False")])
def test_columns_of_bits(tmp_path, yes, no):
    cells = (",".join(yes if name in labels else no for name in "abc") for labels in SETS)
    (tmp_path / "a.csv").write_text("n,text,a,b,c\n" + "".join(f"7,t,{one}\n" for one in cells))
    path = str(tmp_path / "a.csv")
    for columns in ("a,b,c", "a..c", "a..b,c"):
        rows = MultiLabel().read(path, Columns(label_columns=columns))
        assert [json.loads(row.label) for row in rows] == SETS
    assert len(MultiLabel().read(path, Columns(label_columns="a..c"), labelled=False)) == 4
    with pytest.raises(InputError, match=r"columns of only 0 and 1: give --label_columns=a,b,c if each stands for"):
        MultiLabel().read(path, Columns())
    with pytest.raises(InputError, match=r"no column 'd' but .*: correct --label_columns=a,d"):
        MultiLabel().read(path, Columns(label_columns="a,d"))
    with pytest.raises(FaultsError) as found:
        MultiLabel().read(path, Columns(label_columns="n,a"))
    assert "column 'n', one of --label_columns: each needs 0 or 1" in found.value.faults[0]


def test_another_separator_is_refused_until_one_is_named(tmp_path):
    def remarks(labels, **columns):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "t", "label": one}) + "\n" for one in labels))
        return MultiLabel().read(str(tmp_path / "a.jsonl"), Columns(**columns)).remarks

    many = ["a, b", "b, c", "a", "c, a"]
    said = "no cell has '|', 3 of 4 have ',': give --label_separator=, if it separates labels"
    with pytest.raises(InputError) as found:
        remarks(many)
    assert str(found.value) == f"{tmp_path / 'a.jsonl'}: {said}, or --label_separator='|' if each cell is one label"
    assert remarks(many, label_separator="|") == (said,)
    assert not remarks(many, label_separator=",")
    assert not remarks(["Doe, Jane", "Roe, Max", "Doe, Jane"])
    with pytest.raises(InputError, match=r"give --label_separator='\\n' if"):  # as a shell needs it
        remarks(["a\nb", "b\na", "a"])
    assert not remarks(["a\nb", "b\na", "a"], label_separator=r"\n")


def test_rows_with_another_separator_and_rows_for_each_label_are_said(tmp_path):
    def remarks(*rows):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t, "label": one}) + "\n" for t, one in rows))
        return MultiLabel().read(str(tmp_path / "a.jsonl"), Columns()).remarks

    (said,) = remarks(("t", "a, b"), ("u", "b|c"), ("v", "a, c"))
    assert said.startswith("2 of 3 rows have ',' between labels of other rows: give all rows one separator")
    assert not remarks(("t", "Doe, Jane"), ("u", "Roe, Max|Doe, Jane"), ("v", "Roe, Max"))
    (said,) = remarks(("t", "a"), ("t", "b"), ("u", "b"), ("u", "b"))
    assert said.startswith("1 text in several rows, with another label in each: give each text one row")


def test_a_label_with_the_separator_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "t", "label": ["a|b"]}\n')
    with pytest.raises(InputError, match=r"the label 'a\|b', .* give another --label_separator than '\|'"):
        MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())
    assert len(MultiLabel().read(str(tmp_path / "a.jsonl"), Columns(label_separator=";"))) == 1


def test_written_lists_and_ranges_of_columns(tmp_path):
    path = tmp_path / "a.csv"
    cells = ["['a', 'b']", "['a' 'b']", "('b', 'a')", "{'a', 'b'}", "a|b"]
    path.write_text("\n".join(["text;label", *(f"x;{cell}" for cell in cells), "y;set()", "z;(c)"]))
    found = [json.loads(row.label) for row in MultiLabel().read(str(path), Columns(delimiter=";"))]
    assert found == [["a", "b"]] * len(cells) + [[], ["(c)"]]
    path.write_text("text,a,b,c\nx,1,0,True\n")
    (row,) = MultiLabel().read(str(path), Columns(label_columns="a..c"))
    assert json.loads(row.label) == ["a", "c"]
    with pytest.raises(InputError, match=r"'a' stands before 'c', so give a\.\.c"):
        MultiLabel().read(str(path), Columns(label_columns="c..a"))


@pytest.mark.parametrize(
    ("separator", "given"),
    [(", ", ","), ("; ", "';'"), ("/", "/"), ("+", "+"), (" and ", "' and '"), (" ", "' '"), ("\t", r"'\t'")],
)
def test_every_usual_separator_is_said(tmp_path, separator, given):
    sets = [["a", "b"], ["a"], ["b", "c"], ["c"]]
    rows = [json.dumps({"text": "x", "label": separator.join(labels)}) for labels in sets]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    if separator in SIGNS_IN_NAMES:
        (said,) = MultiLabel().read(str(tmp_path / "a.jsonl"), Columns()).remarks
    else:
        with pytest.raises(InputError) as found:
            MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())
        said = str(found.value)
    assert "no cell has '|', 2 of 4 have " in said and f"--label_separator={given} if" in said


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["[a, b]", "[b]", ""], [["a", "b"], ["b"], []]),
        (["{a,b}", "{c}", "{}"], [["a", "b"], ["c"], []]),
        (["<a><b>", "<c>", ""], [["a", "b"], ["c"], []]),  # of Stack Overflow
        (['{"a b",c}', '{"d"}', "{}"], [["a b", "c"], ["d"], []]),  # of PostgreSQL
        (["[a]", "[b]"], [["[a]"], ["[b]"]]),
        (["[a, b]", "c"], [["[a, b]"], ["c"]]),
        (["array(['a', 'b'], dtype=object)", "frozenset({'c'})"], [["a", "b"], ["c"]]),
        (["Index(['a', 'b'], dtype='object', name='n')", "deque(['c'])"], [["a", "b"], ["c"]]),
    ],
)
def test_lists_without_quotes_are_read_and_said(tmp_path, cells, found):
    rows = [{"text": "x", "label": cell} for cell in cells]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())
    assert [json.loads(row.label) for row in read] == found
    bare = len(found[0]) == 2 and "'" not in cells[0]
    count = len([cell for cell in cells if cell])
    assert read.remarks == (f"{count} cells such as {cells[0]!r} read as lists of labels",) * bare


@pytest.mark.parametrize(
    "cells",
    [
        [{"choices": ["a", "b"]}, "a", {"choices": []}],  # of Label Studio
        [{"a": 1.0, "b": True, "c": 0}, {"a": 1, "b": 0}, {"b": 0}],  # of spaCy
    ],
)
def test_labels_of_annotation_programs(tmp_path, cells):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "x", "label": cell}) + "\n" for cell in cells))
    assert [json.loads(row.label) for row in MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())] == [
        ["a", "b"],
        ["a"],
        [],
    ]
    written = ["a" if cell == "a" else json.dumps(cell) for cell in cells]  # in cells of a table
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": "x", "label": cell}) + "\n" for cell in written))
    assert [json.loads(row.label) for row in MultiLabel().read(str(tmp_path / "b.jsonl"), Columns())][1:] == [["a"], []]
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": {"a": 0.7, "b": 0.3}}\n')
    with pytest.raises(InputError, match="give its labels as a list of texts"):
        MultiLabel().read(str(tmp_path / "a.jsonl"), Columns())


@pytest.mark.parametrize("label", ["#N/A", "<NA>", "#DIV/0!"])
def test_errors_of_programs_are_no_labels(tmp_path, label):
    (tmp_path / "a.csv").write_text(f"text,label\na,x\nb,{label}\n")
    for read in (MultiLabel().read, read_table):
        with pytest.raises(InputError, match=f"line 3 has the label '{label}', which stands for a missing value"):
            read(str(tmp_path / "a.csv"), Columns())


def test_a_missing_value_is_no_label(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,nan\n")
    with pytest.raises(InputError, match="line 3 has the label 'nan', which stands for a missing value"):
        MultiLabel().read(str(tmp_path / "a.csv"), Columns())


def test_what_prodigy_rejected_is_left_out(tmp_path):
    rows = [{"text": "a", "accept": ["x"], "answer": answer} for answer in ("accept", "reject", "ignore", "accept")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = Columns(label_column="accept")
    found = MultiLabel().read(str(tmp_path / "a.jsonl"), columns)
    assert len(found) == 2 and "2 rows left out, which nobody accepted" in found.understood
    assert len(MultiLabel().read(str(tmp_path / "a.jsonl"), columns, labelled=False)) == 4

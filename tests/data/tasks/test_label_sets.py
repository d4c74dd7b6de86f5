"""Rows with any number of labels: lists in JSON lines, cells with a separator, and what is wrong with them."""

import json

import numpy as np
import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tasks.label_sets import read_label_sets
from txl_tf.data.tasks.tables import frequencies, label_matrix, set_names
from txl_tf.errors import FaultsError, InputError


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
        read_label_sets(str(tmp_path / name), columns)
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
        read_label_sets(str(path), Columns())
    assert len(found.value.faults) == 2 and all("as a list of texts" in fault for fault in found.value.faults)
    path.write_text('{"text": "x"}\n')
    with pytest.raises(InputError, match="has no column 'label'"):
        read_label_sets(str(path), Columns())
    path.write_text('{"text": "x", "label": ["a"]}\n')
    with pytest.raises(InputError, match=r"line 1 has the label 'a', which the model does not know: it has b"):
        label_matrix(read_label_sets(str(path), Columns()), ("b",))
    with pytest.raises(InputError, match="--label_separator must not be empty"):
        Columns(label_separator="")

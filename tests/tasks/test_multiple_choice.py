"""Multiple choice: the questions that are read."""

import json

import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.tasks.multiple_choice import MultipleChoice

SAID = ("the first option is never right: numbers of answers must be counted from 0",)


@pytest.mark.parametrize(("answers", "remarks"), [([1, 2] * 15, SAID), ([1, 2] * 15 + [0], ()), ([1, 2], ())])
def test_answers_that_may_be_counted_from_1_are_said(tmp_path, answers, remarks):
    row = {"article": "the", "question": "so", "options": ["one", "two", "three"]}
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row | {"answer": answer}) + "\n" for answer in answers))
    assert MultipleChoice().read(str(path), Columns()).remarks == remarks

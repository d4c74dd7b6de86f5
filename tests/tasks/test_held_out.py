"""Parts that are held out: shares of every class, and no text in two parts."""

import json

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Rows
from txl_tf.tasks.answering import Answering
from txl_tf.tasks.answering.questions import with_found
from txl_tf.tasks.answering.squad import Answer, Paragraph, Squad, SquadQuestion
from txl_tf.tasks.base import parted
from txl_tf.tasks.classification import Classification
from txl_tf.tasks.multi_label import MultiLabel
from txl_tf.tasks.multiple_choice import MultipleChoice, RaceQuestion
from txl_tf.tasks.regression import Regression
from txl_tf.tasks.texts import Row, read_table

CLASSES = Classification()


def test_classes_in_brackets_are_no_sets(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"text {i},[{'ab'[i % 2]}]\n" for i in range(20)))
    rows = read_table(str(path), Columns())
    for part in CLASSES.parts(rows, 10, 1):
        assert sorted(rows[i].label for i in part) == ["[a]", "[b]"]


def test_no_more_parts_than_rows():
    rows = [Row(f"text {i}", "", "a", f"f, line {i}") for i in range(7)]
    assert sorted(CLASSES.parts(rows, 10**12, 1)) == [[i] for i in range(7)]


def test_parts_have_their_share_of_every_class_and_part_no_texts():
    labels = ["a"] * 50 + ["b"] * 20 + ["once"]
    rows = [Row(f"text {i // 2}", "", label, f"f, line {i}") for i, label in enumerate(labels)]
    parts = CLASSES.parts(rows, 5, 1)
    assert sorted(i for part in parts for i in part) == list(range(70))  # the class with one text is in none
    for part in parts:
        assert [sum(rows[i].label == name for i in part) for name in ("a", "b")] == [10, 4]
        rest, taken = parted(rows, part)
        assert not {row.text for row in rest} & {row.text for row in taken} and len(rest) + len(taken) == 71
    assert CLASSES.parts(rows, 5, 1) == parts != CLASSES.parts(rows, 5, 2)
    rows = [Row(label, "", label[0], f"f, line {i}") for i, label in enumerate(("a1", "a2", "b", "c"))]
    assert sorted(i for part in CLASSES.parts(rows, 10, 1) for i in part) == [
        0,
        1,
    ]  # each class counts, however many there are


def test_parts_of_scores_and_questions():
    rows = [Row(f"text {i}", "", str(i / 7), "f, line 1") for i in range(100)]
    for part in Regression().parts(rows, 10, 3):
        assert sorted(i // 10 for i in part) == list(range(10))  # one of each ten that follow each other
    sets = [["a"], ["a", "b"], ["c"], ["a", "b"], ["a"], []] * 5
    rows = Rows(Row(f"text {i}", "", json.dumps(one), "f, line 1") for i, one in enumerate(sets))
    for part in MultiLabel().parts(rows, 5, 1):
        assert len([i for i in part if "b" in sets[i]]) == 2 and len([i for i in part if "c" in sets[i]]) == 1
    asked = [SquadQuestion(str(i), "?", (Answer("text", None, f"data[{i}].answers[0]"),)) for i in range(20)]
    squad = Squad(Paragraph(f"text {i // 2}", (question,)) for i, question in enumerate(asked))
    rest, taken = parted(squad, Answering().parts(squad, 10, 1)[0])
    assert len(taken) == 2 and taken[0].text == taken[1].text
    assert len(rest) == len(rest.misplaced) == 18
    assert taken.misplaced == tuple(f"data[{one.questions[0].id}].answers[0]" for one in taken)
    assert not with_found(taken).misplaced  # each part finds its own answers by their text
    questions = [RaceQuestion(f"article {i // 4}", "q", ("a", "b"), 0, "f") for i in range(40)]
    assert all(len({i // 4 for i in part}) == 1 for part in MultipleChoice().parts(questions, 10, 1))

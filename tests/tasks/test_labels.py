"""Labels of rows: their numbers, and what may be wrong with them."""

import numpy as np
import pytest

from txl_tf.data.examples.batches import class_weights
from txl_tf.errors import InputError
from txl_tf.tasks.regression import scores
from txl_tf.tasks.remarks import odd_labels, relabelled, twins
from txl_tf.tasks.texts import Row, class_numbers, imbalance, label_names


def test_labels_that_differ_by_case_are_told():
    said = "differ only by case, spaces or forms of letters, and are 2 classes: if one is meant, correct the file"
    assert twins(("Good", "bad", "good", "bad day", "badday")) == [
        f"the labels {pair} {said}" for pair in ("'Good', 'good'", "'bad day', 'badday'")
    ]
    for other in ("caf\u00e9\u200b", "cafe\u0301", "\uff43af\u00e9"):  # as they look
        (remark,) = twins(("caf\u00e9", other, "bad"))
        assert remark.endswith(said)
    one, other = "12345678901234567890", "12345678901234567891"  # as floats they are equal
    assert twins(("1", "1.0", "01", "2", one, other, "nan", "inf")) == [
        "the labels '1', '1.0', '01' are one number, and are 3 classes: if one is meant, correct the file"
    ]


def test_labels_that_may_be_mistakes_are_said():
    said = "labels that may be mistakes or missing, with their rows: "
    assert odd_labels(["good", "bad"] * 20 + ["god", "bda"], 42) == (f"{said}'god' (1), 'bda' (1)",)
    assert odd_labels(["good", "bad"] * 20 + ["None"] * 4, 44) == (f"{said}'None' (4)",)
    assert odd_labels(list(map(str, range(20))), 20) == (
        "20 labels in 20 rows: name another --label_column if it is the wrong one",
    )
    assert not odd_labels(["a", "b", "c"] * 2, 6) and not odd_labels(["a", "b", "c", "d"], 4)


def test_a_text_that_is_repeated_with_another_label_is_said():
    rows = [Row(text, "", label, f"f, line {i}") for i, (text, label) in enumerate(["ab", "ac", "ac", "dc", "db"], 1)]
    said = "2 rows repeat the text before with another label (line 2): give each text one label"
    assert relabelled(rows) == (said,) and not relabelled(rows[2:4])
    assert not relabelled([rows[0], Row("a", "other", "c", "f, line 2")])


def row(label, where="f, line 1"):
    return Row("text", "", label, where)


def test_labels():
    assert label_names([row("10"), row("9"), row("10")]) == ("9", "10")
    assert label_names([row("b"), row("10"), row("a")]) == ("10", "a", "b")
    ones = [f"{'0' * n}1" for n in range(9, -1, -1)]  # a set of them has another order in each process
    assert label_names([row(one) for one in ("2", *reversed(ones))]) == (*ones, "2")
    rows = [row("a"), row("b"), row("a"), row("a")]
    numbers = class_numbers(rows, ("a", "b", "c"))
    assert numbers.tolist() == [0, 1, 0, 0]
    with pytest.raises(InputError, match=r"f, line 7 has the label 'd', which the model does not know: it has a, b, c"):
        class_numbers([row("d", "f, line 7")], ("a", "b", "c"))
    assert imbalance(("a", "b"), numbers) == "2 classes: a 75.0%, b 25.0%; the largest is 3.0 times the smallest"
    np.testing.assert_allclose(class_weights(numbers, 3), [2 / 3, 2, 2 / 3, 2 / 3])
    assert scores([row("-1.5"), row("3")]).tolist() == [-1.5, 3]
    for label in ("much", "nan", "inf", "1_0"):
        with pytest.raises(InputError, match=r"f, line 1 has the label .*, which is not a finite number"):
            scores([row(label)])

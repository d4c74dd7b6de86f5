"""The reader of SQuAD's format."""

import copy
import json

import numpy as np
import pandas
import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.frames import table_of
from txl_tf.errors import FaultsError, InputError
from txl_tf.tasks.answering.squad import Answer, read_squad

TEXT = "Oslo lies in Norway."
QUESTIONS = [
    {"id": "a", "question": "Where?", "answers": [{"text": "Norway", "answer_start": 13}], "is_impossible": False},
    {"id": "b", "question": "When?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "Oslo"}]},
    {
        "id": "c",
        "question": "What?",
        "answers": [{"text": "Oslo", "answer_start": 0}, {"text": "lies", "answer_start": 6}],
    },
]
FILE = {"version": "v2.0", "data": [{"title": "Oslo", "paragraphs": [{"context": TEXT, "qas": QUESTIONS}]}]}


@pytest.fixture
def read(tmp_path):
    def read(content, **options):
        (tmp_path / "squad.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return read_squad(str(tmp_path / "squad.json"), **options)

    return read


def test_a_file_is_read(read):
    squad = read(FILE)
    first, second, third = squad.questions
    assert squad[0].text == TEXT
    assert (first.id, first.text, first.answers, first.impossible) == ("a", "Where?", (Answer("Norway", 13),), False)
    assert (second.answers, second.impossible) == ((), True)
    assert third.answers == (Answer("Oslo", 0), Answer("lies", None))  # SQuAD 1.1 has no "is_impossible"
    assert squad.misplaced == ("data[0].paragraphs[0].qas[2].answers[1]",)


def test_answers_may_be_unknown(read):
    content = copy.deepcopy(FILE)
    del content["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert read(content, labelled=False).questions[0].answers == ()
    with pytest.raises(InputError, match=r"data\[0\]\.paragraphs\[0\]\.qas\[0\] has no 'answers'"):
        read(content)


QUESTION = ("data", 0, "paragraphs", 0, "qas", 1)
ANSWER = ("data", 0, "paragraphs", 0, "qas", 0, "answers", 0)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((), 7, r"squad\.json, line 1 must be a JSON object"),
        ((), [], "there are no questions"),
        (("data",), None, "line 1 has no question and context but 'version'"),
        (("data", 0), "x", r"entry 1 must be a JSON object"),
        (("data", 0, "paragraphs", 0, "context"), " ", r"data\[0\]\.paragraphs\[0\]\.context must not be empty"),
        ((*QUESTION, "id"), True, r"data\[0\]\.paragraphs\[0\]\.qas\[1\]: 'id' must be a text or an integer, not True"),
        ((*QUESTION, "id"), "a", r"qas\[1\]\.id is 'a', the same as data\[0\]\.paragraphs\[0\]\.qas\[0\]\.id"),
        ((*QUESTION, "is_impossible"), 1, r"qas\[1\]: 'is_impossible' must be true or false"),
        ((*QUESTION, "is_impossible"), False, r"qas\[1\]\.answers must not be empty"),
        ((*ANSWER[:-2], "is_impossible"), True, r"qas\[0\]\.answers must be empty"),
        ((*ANSWER, "answer_start"), "13", r"answers\[0\]: 'answer_start' must be an integer"),
        ((*ANSWER, "answer_start"), True, r"'answer_start' must be an integer"),
        ((*ANSWER, "text"), " ", r"answers\[0\]\.text must not be empty"),
        (("data", 0, "paragraphs", 0, "qas"), [], "there are no questions"),
    ],
)
def test_what_is_wrong_is_named(read, place, value, message):
    content = copy.deepcopy(FILE)
    if place:
        node = content
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
    else:
        content = value
    with pytest.raises(InputError, match=rf"{message}.*: (give a file in SQuAD's format|correct it)"):
        read(content)


def test_a_file_that_is_not_json(read):
    with pytest.raises(InputError, match=r"squad\.json is not JSON .* give a JSON object in each line"):
        read("{'a'")


def test_ids_may_be_numbers_or_missing(read):
    content = copy.deepcopy(FILE)
    questions = content["data"][0]["paragraphs"][0]["qas"]
    questions[0]["id"] = 70
    del questions[1]["id"]
    questions[2]["id"] = None
    assert [question.id for question in read(content).questions] == ["70", "2", "3"]
    questions[0]["id"] = 2
    with pytest.raises(InputError, match=r"qas\[1\]\.id is '2', the same as data\[0\]\.paragraphs\[0\]\.qas\[0\]\.id"):
        read(content)


def test_a_flat_list_is_the_same(read):
    """As Hugging Face's datasets write it, with and without "data"; empty lists say that there is no answer."""
    flat = []
    for question in QUESTIONS:
        texts, starts = ([answer[name] for answer in question["answers"]] for name in ("text", "answer_start"))
        flat.append(
            {"question": question["question"], "context": TEXT, "answers": {"text": texts, "answer_start": starts}}
        )
        flat[-1]["id"] = question["id"]
    wanted = read(FILE)
    for content in (flat, {"data": flat}):
        squad = read(content)
        assert squad.questions == wanted.questions and squad.misplaced == ("data[2].answers[1]",)
        assert {paragraph.text for paragraph in squad} == {TEXT}
    del flat[0]["answers"]
    assert read(flat, labelled=False).questions[0].answers == ()
    with pytest.raises(InputError, match=r"data\[0\] has no 'answers'"):
        read(flat)


def test_an_answer_without_text_at_minus_one_is_none(read):
    content = copy.deepcopy(FILE)
    content["data"][0]["paragraphs"][0]["qas"][0].update(
        answers=[{"text": "", "answer_start": -1}], is_impossible=False
    )
    question = read(content).questions[0]
    assert question.impossible and question.answers == ()


def test_all_faults_are_said_at_once(read):
    content = copy.deepcopy(FILE)
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = ""
    del content["data"][0]["paragraphs"][0]["qas"][2]["question"]
    content["data"].append({"paragraphs": [{"context": " ", "qas": []}]})
    with pytest.raises(FaultsError, match=r"3 faults in .*squad\.json") as raised:
        read(content)
    places = [r"qas[0].answers[0].text must not be empty", r"qas[2] has no 'question'", "data[1].paragraphs[0].context"]
    assert all(place in fault for place, fault in zip(places, raised.value.faults, strict=True))


def test_half_an_emoji_becomes_the_replacement_character(read):
    content = copy.deepcopy(FILE)
    content["data"][0]["paragraphs"][0]["context"] = TEXT + " \ud83d"
    squad = read(content)
    assert squad[0].text == TEXT + " \ufffd" and squad.questions[0].answers == (Answer("Norway", 13),)


def flat(question):
    answers = question["answers"]
    return {
        "id": question["id"],
        "context": TEXT,
        "question": question["question"],
        "answers": {name: [one[name] for one in answers] for name in ("text", "answer_start")},
    }


def test_rows_are_questions(tmp_path, read):
    """JSON lines and CSV as `datasets` writes them, with Python's or NumPy's writing in cells; and paragraphs."""
    wanted = [(one.id, one.text, one.answers, one.impossible) for one in read(FILE).questions]
    records = [flat(question) for question in QUESTIONS]
    (tmp_path / "lines.json").write_text("".join(json.dumps(one) + "\n" for one in records))
    pandas.DataFrame(records).to_csv(tmp_path / "python.csv", index=False)
    arrays = [one | {"answers": {k: np.array(v) for k, v in one["answers"].items()}} for one in records]
    pandas.DataFrame(arrays[:1] + arrays[2:]).to_csv(tmp_path / "numpy.csv", index=False)
    (tmp_path / "paragraphs.json").write_text(json.dumps([{"context": TEXT, "qas": QUESTIONS}]))
    for name in ("lines.json", "python.csv", "numpy.csv", "paragraphs.json"):
        squad = read_squad(str(tmp_path / name))
        found = [(one.id, one.text, one.answers, one.impossible) for one in squad.questions]
        assert found == ([wanted[0], wanted[2]] if name == "numpy.csv" else wanted)
    assert squad.understood == "JSON: 3 questions, 1 without an answer, 1 misplaced answer"
    assert repr(squad) == repr(read(FILE))  # so they have the same digest


def test_a_table_of_answers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"question,context,answer,answer_start\nWhere?,{TEXT},Norway,13\nWhen?,{TEXT},,\n")
    first, second = read_squad(str(path)).questions
    assert (first.answers, second.answers, second.impossible) == ((Answer("Norway", 13),), (), True)
    path.write_text(f"question,context,answer\nWhere?,{TEXT},Norway\n")
    squad = read_squad(str(path))
    assert squad.questions[0].answers == (Answer("Norway", None),) and squad.misplaced == ("line 2.answers[0]",)
    for wrong in ("x", "12.7", "inf"):
        path.write_text(f"question,context,answer,answer_start\nWhere?,{TEXT},Norway,{wrong}\n")
        with pytest.raises(InputError, match=f"answer_start is '{wrong}', not a whole number"):
            read_squad(str(path))
    with pytest.raises(InputError, match="--text_column is not used here, since answering reads question, context"):
        read_squad(str(path), Columns(text_column="context"))


def test_null_is_a_missing_value(read):
    content = copy.deepcopy(FILE)
    for question in content["data"][0]["paragraphs"][0]["qas"]:
        question.setdefault("is_impossible", None)
        question["extra"] = None
    content["data"][0]["paragraphs"][0]["qas"][2]["is_impossible"] = None
    assert [one.impossible for one in read(content).questions] == [False, True, False]


@pytest.mark.parametrize("first", ["x", {"text": "x", "answer_start": 0}], ids=["cells", "object"])
def test_a_missing_answer_in_a_frame_is_none(first):
    frame = pandas.DataFrame({"question": ["a?", "b?"], "context": ["x y", "x y"], "answer": [first, None]})
    if isinstance(first, str):
        frame["answer_start"] = [0, None]
    found = read_squad(table_of(frame)).questions
    assert [question.impossible for question in found] == [False, True]


def test_a_place_without_an_answer_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(f"question,context,answer_text,answer_start\nWhere?,{TEXT},Norway,13\n")
    with pytest.raises(InputError, match="line 2 has answer_start, but no column 'answer'"):
        read_squad(str(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text(f"question,context,answer,answer_start\nWhere?,{TEXT},Norway,\n")
    assert read_squad(str(tmp_path / "a.csv")).questions[0].answers == (Answer("Norway", None),)


def test_arrays_inside_of_answers():
    """As pandas reads them from Parquet."""
    answers = {"text": np.array(["Norway"], object), "answer_start": np.array([13])}
    frame = pandas.DataFrame({"question": ["Where?"], "context": [TEXT], "answers": [answers]})
    assert read_squad(table_of(frame)).questions[0].answers == (Answer("Norway", 13),)


@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("1", "0"), ("1.0", "0.0")])
def test_truth_values_of_a_csv_are_texts(tmp_path, yes, no):
    rows = [f"1,Where?,{TEXT},Norway,13,{no}", f"2,When?,{TEXT},,,{yes}"]
    (tmp_path / "a.csv").write_text("\n".join(["id,question,context,answer,answer_start,is_impossible", *rows]))
    first, second = read_squad(str(tmp_path / "a.csv")).questions
    assert (first.answers, first.impossible) == ((Answer("Norway", 13),), False)
    assert (second.answers, second.impossible) == ((), True)


@pytest.mark.parametrize("form", ["an object", "a list in a cell", "a text alone"])
def test_one_answer_in_other_shapes(tmp_path, form):
    answer = {"text": "Oslo", "answer_start": 0}
    row = {"question": "Where?", "context": "Oslo is a city."}
    row |= {
        "an object": {"answer": answer},
        "a list in a cell": {"answers": str([answer])},
        "a text alone": {"answer": "Oslo"},
    }[form]
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    squad = read_squad(str(tmp_path / "a.jsonl"))
    (found,) = squad.questions[0].answers
    assert (found.text, found.start) == ("Oslo", None if form == "a text alone" else 0)
    assert squad.understood.endswith("1 question, 1 misplaced answer" if form == "a text alone" else ": 1 question")

"""Examples of tasks: tables, RACE, the official layout, files, batches."""

import datetime
import itertools
import json
import os

import numpy as np
import pytest
import random_xlnet
import tensorflow as tf

from txl_tf.data.examples import example_set, layout
from txl_tf.data.examples.batches import EvaluationExamples, TrainingExamples
from txl_tf.data.examples.layout import cut_longer, lay_out, pad_left
from txl_tf.data.tables.columns import Columns
from txl_tf.errors import FaultsError, InputError
from txl_tf.tasks.classification import XLNetClassificationConfig
from txl_tf.tasks.multiple_choice import MultipleChoice, RaceQuestion, XLNetMultipleChoiceConfig, with_options
from txl_tf.tasks.settings import bucket_lengths
from txl_tf.tasks.texts import Row, table_examples


@pytest.fixture(scope="module")
def vocabulary():
    return random_xlnet.with_prefix()


def official_pair(first, second, most):
    """The official code's truncation, pop by pop."""
    first, second = list(first), list(second)
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()
    return first, second


def test_the_official_layout(vocabulary):
    """A SEP [B SEP] CLS on the right, padding on the left with token 0 and segment 4."""
    sep, cls = vocabulary.special_token("sep"), vocabulary.special_token("cls")
    texts, second = ["the the", "the the the the River"], ["River", ""]
    t_len = 9
    rows = pad_left(*lay_out(vocabulary, tf.constant(texts), tf.constant(second), t_len), t_len)
    a, b = vocabulary.encode(texts[0]).tolist(), vocabulary.encode(second[0]).tolist()
    if len(a) + len(b) > t_len - 3:
        a, b = official_pair(a, b, t_len - 3)
    pair = [*a, sep, *b, sep, cls]
    fill = t_len - len(pair)
    assert rows["tokens"][0].numpy().tolist() == [0] * fill + pair
    assert rows["segments"][0].numpy().tolist() == [4] * fill + [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]
    assert rows["padding"][0].numpy().tolist() == [True] * fill + [False] * len(pair)
    single = vocabulary.encode(texts[1]).tolist()[: t_len - 2]
    assert rows["tokens"][1].numpy().tolist()[-len(single) - 2 :] == [*single, sep, cls]
    assert rows["segments"][1].numpy().tolist()[-len(single) - 2 :] == [0] * (len(single) + 1) + [2]


def test_the_longer_text_is_cut_and_the_second_of_equals(rng):
    t_len = 12
    lengths = np.stack([rng.integers(1, 16, 200), rng.integers(0, 16, 200)], axis=1)
    pairs = [[rng.integers(5, 99, n).tolist() for n in pair] for pair in lengths]
    first, second = (tf.ragged.constant([pair[i] for pair in pairs], tf.int32, ragged_rank=1) for i in (0, 1))
    found = [side.to_list() for side in cut_longer(first, second, t_len)]
    for pair, a, b in zip(pairs, *found, strict=True):
        assert (a, b) == (official_pair(*pair, t_len - 3) if pair[1] else (pair[0][: t_len - 2], []))


def test_the_second_text_of_a_long_pair_is_in_the_last_segment(vocabulary):
    ids = vocabulary.encode("the River " * 8).tolist()
    first, second = "the River " * 8, "the River " * 4
    t_len, segments = 8, 3
    rows = pad_left(
        *lay_out(vocabulary, tf.constant([first]), tf.constant([second]), t_len, segments), t_len * segments
    )
    found = rows["segments"][0].numpy().tolist()
    assert found[-t_len:] == [0] + [1] * (t_len - 2) + [2]  # A's SEP is the first
    assert found.count(1) == t_len - 2 and found.count(0) == min(len(ids), 2 * t_len) + 1


ARTICLE = "the the the River the River River the the the the River the River"


def read_race(path, labelled=True):
    return MultipleChoice().read(path, Columns(), labelled)


def test_a_race_folder_may_have_names_that_are_not_utf8(tmp_path):
    value = {"article": ARTICLE, "questions": ["Who"], "options": [["one", "two"]], "answers": ["A"]}
    for name, answer in ((b"caf\xe9", "A"), (b"th\xe9", "Z")):
        os.makedirs(os.fsencode(tmp_path) + b"/" + name)
        with open(os.fsencode(tmp_path) + b"/" + name + b"/" + name + b".txt", "w") as file:
            json.dump(value | {"answers": [answer]}, file)
    (question,) = read_race(f"{tmp_path}/" + os.fsdecode(b"caf\xe9"))
    assert question.answer == 0
    with pytest.raises(InputError, match=r"th.*, question 1: answer 'Z'"):
        read_race(str(tmp_path))


def test_race_folders_and_lines_are_one(tmp_path):
    files = {
        "10.txt": ("What _ it ?", ["is", "was"], "B"),
        "9.txt": ("Who", ["one", "the River"], "A"),
    }
    (tmp_path / "middle").mkdir()
    lines = []
    for name in ("9.txt", "10.txt"):
        question, options, answer = files[name]
        value = {"article": ARTICLE, "questions": [question], "options": [options], "answers": [answer], "id": name}
        (tmp_path / "middle" / name).write_text(json.dumps(value))
        lines.append({"article": ARTICLE, "question": question, "options": options, "answer": "AB".index(answer)})
    file = tmp_path / "race.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_race(str(tmp_path))
    assert [question.answer for question in found] == [0, 1]
    filled = [with_options(tf.fill([2], one.question), tf.constant(one.options)).numpy().tolist() for one in found]
    assert filled == [[b"Who one", b"Who the River"], [b"What is it ?", b"What was it ?"]]
    assert found[1].where == f"{tmp_path}/middle/10.txt, question 1"
    for one, other in zip(found, read_race(str(file)), strict=True):
        assert vars(one) | {"where": ""} == vars(other) | {"where": ""}


def test_questions_in_a_table_have_options_in_a_cell(tmp_path):
    (tmp_path / "a.csv").write_text("article,question,options,answer\nIt rains.,It is,\"['wet', 'dry']\",1\n")
    assert read_race(str(tmp_path / "a.csv"))[0] == RaceQuestion(
        "It rains.", "It is", ("wet", "dry"), 1, f"{tmp_path}/a.csv, line 2"
    )
    (tmp_path / "b.csv").write_text("article,question,options,answer\nIt rains.,It is,\"['wet', 'dry']\",dry\n")
    assert read_race(str(tmp_path / "b.csv"))[0].answer == 1


def test_a_race_folder_may_have_names_with_other_digits(tmp_path):
    """Python calls ² a digit, and makes no number of it."""
    value = {"article": ARTICLE, "questions": ["Who"], "options": [["one", "two"]], "answers": ["A"]}
    for name in ("10.txt", "9.txt", "².txt"):
        (tmp_path / name).write_text(json.dumps(value))
    found = [question.where.removeprefix(f"{tmp_path}/") for question in read_race(str(tmp_path))]
    assert found == [f"{name}.txt, question 1" for name in ("²", "9", "10")]


def plan(config, vocabulary, t_len, **about):
    return example_set.ExamplePlan(config().replace(data={"tgt_len": t_len}), vocabulary, **about)


@pytest.mark.parametrize("t_len", [12, 60])
def test_options_do_not_see_each_other(vocabulary, t_len, monkeypatch):
    """Article SEP question and option SEP CLS; the last of these are kept, then the first of the article."""
    monkeypatch.setattr(layout, "MAX_QA", 5)
    question = RaceQuestion(ARTICLE, "the _ River", ("one", "the the the the the the the"), 1, "")
    found = MultipleChoice().examples([question], plan(XLNetMultipleChoiceConfig, vocabulary, t_len))
    sep, cls = vocabulary.special_token("sep"), vocabulary.special_token("cls")
    for i, option in enumerate(question.options):
        texts = vocabulary.encode(f"the {option} River").tolist()[-5:]
        article = vocabulary.encode(ARTICLE).tolist()[: t_len - 3 - len(texts)]
        wanted = [*article, sep, *texts, sep, cls]
        assert found.features["tokens"][0, i].tolist() == [0] * (t_len - len(wanted)) + wanted
        segments = [4] * (t_len - len(wanted)) + [0] * (len(article) + 1) + [1] * (len(texts) + 1) + [2]
        assert found.features["segments"][0, i].tolist() == segments
    assert found.features["label"].tolist() == [1] and found.lengths().tolist() == [min(t_len, len(wanted))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "C"}, "line 2: answer 'C' is not the letter, number"),
        ({"answer": 2}, "line 2: answer 2 is not"),
        ({"answer": None}, "line 2: answer None is not"),
        (
            {"options": ["1", "2"], "answer": "1"},
            "answer '1' may be a number from 0 or an option's text: give its",
        ),
        ({"options": ["a"]}, "line 2 has no list of two or more texts as 'options'"),
        ({"options": ["a", "b", "c"]}, "line 2 has 3 options, but .* line 1 has 2"),
        ({"article": None}, "line 2 has no text 'article'"),
    ],
)
def test_malformed_questions(tmp_path, changes, message):
    good = {"article": "x", "question": "y", "options": ["a", "b"], "answer": 0}
    file = tmp_path / "race.jsonl"
    file.write_text(json.dumps(good) + "\n" + json.dumps(good | changes) + "\n")
    with pytest.raises(InputError, match=message):
        read_race(str(file))
    if "answer" in changes and changes["answer"] is None:
        assert read_race(str(file), labelled=False)[1].answer == -1


def test_a_file_holds_the_examples(vocabulary, tmp_path, monkeypatch):
    """Many examples are encoded once; a change of the texts encodes them again; damage is found."""
    monkeypatch.setattr(example_set, "SMALL", 2)
    monkeypatch.setattr("txl_tf.data.examples.example_set.CHUNK", 2)
    rows = [Row("the " * n, "", "", "") for n in range(1, 8)]
    label = np.arange(7, dtype=np.int32)

    file = tmp_path / "train.npz"

    def make(rows, **kept):
        return table_examples(rows, plan(XLNetClassificationConfig, vocabulary, 16, **kept), label, ("a", "b"))

    memory, made = make(rows), make(rows, file=str(file))
    for found in (made, example_set.read_examples(str(file))):
        assert found.labels == memory.labels == ("a", "b") and found.fingerprint() == memory.fingerprint()
        assert found.features.keys() == memory.features.keys()
        for name, array in memory.features.items():
            np.testing.assert_array_equal(found.features[name], array)
            assert found.features[name].dtype == array.dtype

    encoded = []
    monkeypatch.setattr(type(vocabulary), "encode_tensor", lambda *_: encoded.append(1))
    assert make(rows, file=str(file)).fingerprint() == memory.fingerprint() and not encoded
    monkeypatch.undo()
    monkeypatch.setattr(example_set, "SMALL", 2)
    assert make(rows[::-1], file=str(file)).fingerprint() != memory.fingerprint()


def test_a_damaged_or_foreign_file_is_refused_and_left_alone(tmp_path):
    made, file = numbered_set([3, 5]), tmp_path / "train.npz"
    example_set.write_examples(made, str(file))
    whole, refused = file.read_bytes(), 0
    for i in range(0, len(whole), 7):
        file.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        try:
            assert example_set.read_examples(str(file)).fingerprint() == made.fingerprint()
        except InputError as error:
            refused += "is not a whole set of examples" in str(error)
    assert refused > len(whole) // 14
    np.savez(file, tokens=np.zeros(3))
    other = file.read_bytes()
    for content in (whole[:-100], b"", b"text", other):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"train\.npz is not a whole set of examples .*: remove it"):
            example_set.read_examples(str(file))
        assert file.read_bytes() == content


def test_other_cells_of_a_row_do_not_count(vocabulary, tmp_path, monkeypatch):
    """They may hold anything, such as the dates of a workbook; the examples are not written again."""
    monkeypatch.setattr(example_set, "SMALL", 0)

    def written(**cells):
        settings = plan(XLNetClassificationConfig, vocabulary, 16, file=str(tmp_path / "a.npz"))
        table_examples([Row("the", "", "a", "a.xlsx, row 2", cells)], settings, np.zeros(1, np.int32), ("a",))
        return (tmp_path / "a.npz").stat().st_mtime_ns

    assert written() == written(day=datetime.date(2026, 11, 28))


def test_meta_is_kept_beside(tmp_path):
    features, about = {"padding": np.zeros([2, 4], bool)}, {"padded": "right", "timed": ("padding",)}
    made = example_set.ExampleSet(features, {"a": 1}, meta=[{"id": 1}, "b"], **about)
    example_set.write_examples(made, str(tmp_path / "a.npz"))
    found = example_set.read_examples(str(tmp_path / "a.npz"))
    assert (found.meta, found.origin, found.padded, found.timed) == ([{"id": 1}, "b"], {"a": 1}, "right", ("padding",))


def numbered_set(lengths, t_len=8, padded="left"):
    """Examples of these lengths, in tokens, whose labels are their numbers."""
    place = np.arange(t_len)
    padding = np.array([place < t_len - n if padded == "left" else place >= n for n in lengths])
    tokens = np.where(padding, 0, np.arange(1, len(lengths) + 1)[:, None]).astype(np.uint8)
    label = np.arange(len(lengths), dtype=np.int32)
    return example_set.ExampleSet(
        {"tokens": tokens, "segments": tokens, "padding": padding, "label": label}, {}, padded=padded
    )


def taken(dataset, steps):
    """Labels of the real examples of each batch."""
    return [batch["label"][batch["weight"] > 0].tolist() for batch in dataset.take(steps).as_numpy_iterator()]


def test_an_epoch_has_every_example_once_from_any_step_and_for_any_replicas():
    data = TrainingExamples(numbered_set([3] * 7), 4, (1, 3))
    assert (data.epoch_steps, data.step_tokens, data.unused) == (2, 32, 0)
    batches = taken(data.batches(0), 6)
    epochs = [batches[i] + batches[i + 1] for i in (0, 2, 4)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs) and len({tuple(epoch) for epoch in epochs}) == 3
    assert taken(data.batches(3), 3) == batches[3:]
    halves = taken(data.batches(3, replicas_per_host=2), 6)
    assert [halves[i] + halves[i + 1] for i in (0, 2, 4)] == batches[3:]
    hosts = [taken(data.batches(3, host=host, num_hosts=2), 3) for host in (0, 1)]
    assert [a + b for a, b in zip(*hosts, strict=True)] == batches[3:]
    assert taken(TrainingExamples(numbered_set([3] * 7), 4, (2, 3)).batches(0), 2) != batches[:2]
    weighted = TrainingExamples(numbered_set([3] * 7), 7, (1, 3), np.arange(7) / 2)
    (batch,) = weighted.batches(0).take(1)
    np.testing.assert_array_equal(batch["weight"], batch["label"] / 2)
    some = TrainingExamples(numbered_set([3] * 7), 2, (1, 3), np.array([0, 0, 1, 0, 1, 0, 1]))
    assert some.epoch_steps == 2 and sorted(itertools.chain(*taken(some.batches(0), 2))) == [2, 4, 6]


@pytest.mark.parametrize("padded", ["left", "right"])
def test_evaluation_reads_every_example_once_and_cuts_only_padding(padded):
    lengths = [3, 8, 1, 2, 5, 5, 1]
    data = EvaluationExamples(numbered_set(lengths, padded=padded), 2, (2, 4, 8))
    seen = {}
    for length in data.groups:
        for batch in data.batches(length).as_numpy_iterator():
            for label, tokens, weight in zip(batch["label"], batch["tokens"], batch["weight"], strict=True):
                if weight:
                    assert label not in seen
                    seen[label] = length
                    assert tokens.tolist().count(label + 1) == lengths[label] <= len(tokens) == length
    assert seen == {2: 2, 6: 2, 0: 4, 3: 4, 4: 8, 5: 8, 1: 8}
    assert bucket_lengths(512) == (64, 128, 192, 256, 384, 512) and bucket_lengths(10)[-1] == 10


def test_all_faults_of_questions_are_said_at_once(tmp_path):
    good = {"article": "a", "question": "b", "options": ["c", "d"], "answer": 0}
    lines = [good, good | {"answer": 2}, good | {"options": []}, [1], good | {"article": "half \ud83d"}]
    file = tmp_path / "race.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FaultsError, match=r"3 faults in .*race\.jsonl") as raised:
        read_race(str(file))
    assert [fault.split("race.jsonl, ")[1][:6] for fault in raised.value.faults] == ["line 2", "line 3", "line 4"]
    file.write_text("".join(json.dumps(line) + "\n" for line in (lines[0], lines[-1])))
    assert read_race(str(file))[1].article == "half \ufffd"

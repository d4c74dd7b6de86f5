"""Fine-tuning for tags, from files to tagged words, through the commands and from Python."""

import csv
import functools
import json
import shutil

import numpy as np
import pandas as pd
import processes
import pytest
import tagged_files
from random_xlnet import with_prefix, write_model_dir

import txl_tf
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.finetuner import Finetuner
from txl_tf.tasks.tagging import Tagging
from txl_tf.tasks.tagging.schemes import Tags, entity_scores

SETTINGS = {
    "data": {"batch_size": 8, "tgt_len": 16, "max_segments": 3},
    "eval": {"batch_size": 8, "jit_compile": False},
    "model": {"dropout": 0.0, "dropatt": 0.0, "mem_len": 32},
    "train": {"train_steps": 160, "learning_rate": 2e-2, "steps_per_loop": 20, "jit_compile": False, "warmup_steps": 0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pretrained model_dir and files."""
    folder = tmp_path_factory.mktemp("tagging")
    write_model_dir(folder / "xlnet", with_prefix(XLNetVocabulary), n_layer=1)
    tagged_files.write(folder / "train.conll", tagged_files.sentences(120, 1, words=24))
    tagged_files.write(folder / "dev.jsonl", tagged_files.sentences(30, 2, words=24))
    return folder


@pytest.fixture(scope="module")
def tuned(folder):
    """(model_dir, result) of a run."""
    files = [str(folder / name) for name in ("xlnet", "train.conll", "dev.jsonl")]
    tuner = Finetuner(files[0], "tagging", *files[1:], settings=SETTINGS)
    assert tuner.config.model.mem_len == 32
    assert any("by segments with memory" in remark for remark in tuner.corpus.train.remarks)
    return folder / "run", tuner.run(str(folder / "run"))


@pytest.fixture(scope="module")
def model(tuned):
    return txl_tf.load(str(tuned[0]), progress=False)


def test_it_learns_names(tuned):
    result = tuned[1]
    assert result["f1"] > 0.85
    assert {"precision", "recall", "accuracy", "loss"} <= set(result)
    assert 0 < result["most_frequent_tag"] < result["f1"] and result["f1_word_by_word"] > 0.8
    said = Tagging().worth(result)[1]
    assert said == (
        f"F1 {result['f1']:.1%}, the most frequent tag of each word alone {result['most_frequent_tag']:.1%}, "
        f"each word by itself (--eval_decoding=words) {result['f1_word_by_word']:.1%}"
    )


def test_its_errors_are_those_of_entities(tuned, model, folder):
    """By kind, and each wrong entity with what was found in its place, as they follow from the predictions."""
    with (tuned[0] / "classes.csv").open() as file:
        table = {row["class"]: row for row in csv.DictReader(file)}
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    found = model.predict([tuple(row["tokens"]) for row in rows])
    labels = sorted({tag for row in rows for tag in row["tags"]})
    known = Tags(labels, "iob")
    sides = [
        [(i, *one) for i, tags in enumerate(side) for one in known.entities([labels.index(tag) for tag in tags])]
        for side in ([row["tags"] for row in rows], [line["tags"] for line in found])
    ]
    assert set(table) == {kind for _, kind, _, _ in sides[0]}
    for kind, row in table.items():
        there, given = ({one for one in side if one[1] == kind} for side in sides)
        assert [int(row["examples"]), int(row["predicted"])] == [len(there), len(given)]
        assert float(row["f1"]) == pytest.approx(2 * len(there & given) / (len(there) + len(given)))
    with (tuned[0] / "worst.csv").open() as file:
        wrong = list(csv.DictReader(file))
    words = [row["tokens"] for row in rows]
    missed = {" ".join([kind, *words[i][first:end]]) for i, kind, first, end in set(sides[0]) - set(sides[1])}
    extra = {" ".join([kind, *words[i][first:end]]) for i, kind, first, end in set(sides[1]) - set(sides[0])}
    assert {one["label"] for one in wrong} - {""} <= missed and {one["prediction"] for one in wrong} - {""} <= extra
    sure = [float(one["probability"]) for one in wrong]
    assert len(wrong) >= min(max(len(missed), len(extra)), 20) and sure == sorted(sure, reverse=True)
    assert all(one["row"].startswith(f"{folder}/dev.jsonl, line ") for one in wrong)


def test_new_runs_give_legal_sequences_and_older_ones_each_word_by_itself(tuned, folder, tmp_path):
    """A run of an older version has no such setting; it is started again, and asked to change."""
    files = [str(folder / name) for name in ("xlnet", "train.conll", "dev.jsonl")]
    assert json.loads((tuned[0] / "config.json").read_text())["eval"]["decoding"] == "legal"
    shutil.copytree(tuned[0], tmp_path / "older")
    config = json.loads((tmp_path / "older" / "config.json").read_text())
    del config["eval"]["decoding"]
    (tmp_path / "older" / "config.json").write_text(json.dumps(config))
    for given, decoding in (({}, ""), ({"decoding": "legal"}, "legal"), ({"decoding": "words"}, "words")):
        settings = SETTINGS | {"eval": SETTINGS["eval"] | given}
        Finetuner(files[0], "tagging", *files[1:], settings=settings).run(str(tmp_path / "older"))
        assert json.loads((tmp_path / "older" / "config.json").read_text())["eval"]["decoding"] == decoding


@pytest.mark.parametrize("output", ["found.jsonl", "found.conll"])
def test_the_command_writes_tags_and_spans(tuned, folder, output):
    path = folder / output
    command = ["scripts/predict.py", f"--model_dir={tuned[0]}", f"--input={folder / 'dev.jsonl'}", f"--output={path}"]
    done = processes.run([*command, "--metrics"])
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stderr.splitlines()[-1])
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    if output.endswith(".conll"):
        texts = [[line.split("\t") for line in text.split("\n")] for text in path.read_text().strip().split("\n\n")]
        words, tags = ([[cells[i] for cells in text] for text in texts] for i in (0, 1))
    else:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        words, tags = ([one[name] for one in found] for name in ("tokens", "tags"))
        for one in found:
            assert [one["text"][begin:end] for begin, end in one["places"]] == one["tokens"]
            assert all(one["text"][name["begin"] : name["end"]] == name["text"] for name in one["entities"])
        assert any(name["label"] == "PLACE" and " " in name["text"] for one in found for name in one["entities"])
    assert words == [row["tokens"] for row in rows]
    right = [row["tags"] for row in rows]
    labels = sorted({tag for row in right + tags for tag in row})
    numbers = [[[labels.index(tag) for tag in row] for row in side] for side in (right, tags)]
    assert metrics["f1"] == pytest.approx(entity_scores(labels, *numbers, "iob")["f1"])


@pytest.mark.parametrize("output", ["o.csv", "o.xlsx", "o.parquet"])
def test_a_table_comes_back_with_the_names(tuned, model, tmp_path, output):
    """The row without a name has no probability. From Python, a DataFrame has the same columns."""
    texts = ["so the River 10", "", "so the one"]
    (tmp_path / "t.csv").write_text("id;text\n" + "".join(f"{i};{text}\n" for i, text in enumerate(texts) if text))
    command = ["scripts/predict.py", f"--model_dir={tuned[0]}", f"--input={tmp_path}/t.csv"]
    done = processes.run([*command, f"--output={tmp_path}/{output}"])
    assert done.returncode == 0, done.stderr
    read = {"csv": functools.partial(pd.read_csv, sep=";"), "xlsx": pd.read_excel, "parquet": pd.read_parquet}
    found = read[output.rpartition(".")[2]](tmp_path / output)
    wanted = [model.predict(text) for text in texts if text]
    assert list(found) == ["id", "text", "prediction", "probability"] and found["id"].astype(int).tolist() == [0, 2]
    for shown, one in zip(found.to_dict("records"), wanted, strict=True):
        names = [f"{name['label']} {name['text']}" for name in one["entities"]]
        cell = list(shown["prediction"]) if output.endswith("parquet") else shown["prediction"]
        assert cell == (names if output.endswith("parquet") else "|".join(names)) or (not names and pd.isna(cell))
        sure = [name["probability"] for name in one["entities"]]
        assert shown["probability"] == pytest.approx(min(sure), rel=1e-4) if sure else pd.isna(shown["probability"])
    assert wanted[0]["entities"] and "PLACE River 10" in str(found["prediction"][0])
    frame = model.predict(pd.DataFrame({"text": [texts[0]], "k": [1]}))
    assert frame["prediction"][0] == ["PLACE River 10"] and list(frame) == ["text", "k", "prediction", "probability"]


def into_table(tuned, path, *flags):
    """Predicts for a file into o.csv beside it."""
    line = ["scripts/predict.py", f"--model_dir={tuned[0]}", f"--input={path}", f"--output={path.parent}/o.csv"]
    return processes.run([*line, *flags])


@pytest.mark.parametrize("name", ["t.conll", "t.csv"])
def test_words_with_a_row_each_get_their_tags(tuned, tmp_path, name):
    """A text ends where an empty row is, as in CoNLL."""
    words = ["so", "River", "10", "", "the"]
    lines = (
        words
        if name == "t.conll"
        else ["text_id,word", *(f"{i // 4},{word}" if word else "," for i, word in enumerate(words))]
    )
    (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    done = into_table(tuned, tmp_path / name)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert [row["word"] for row in rows] == words and rows[3]["prediction"] == ""
    assert [row["prediction"] for row in rows][1:3] == ["B-PLACE", "I-PLACE"] and 0 < float(rows[1]["probability"]) <= 1


def test_rows_without_text_are_left_out_if_asked(tuned, tmp_path):
    """They keep their place in the table."""
    (tmp_path / "t.csv").write_text("id,text\n0,so the River 10\n1,\n2,so\n")
    done = into_table(tuned, tmp_path / "t.csv")
    assert (
        done.returncode and "t.csv, line 3 has no text: correct the row, remove it, or give --skip_empty" in done.stderr
    )
    done = into_table(tuned, tmp_path / "t.csv", "--skip_empty")
    assert done.returncode == 0 and "t.csv: 1 row without text left out\n" in done.stderr
    rows = list(csv.reader((tmp_path / "o.csv").read_text().splitlines()))
    assert rows[2] == ["1", "", "", ""] and rows[1][2] == "PLACE River 10" and rows[3][0] == "2"


def test_tables_of_tags_have_no_column_for_each_class(tuned, tmp_path):
    (tmp_path / "t.csv").write_text("text\nso\n")
    done = into_table(tuned, tmp_path / "t.csv", "--all_probabilities")
    assert done.returncode and "--all_probabilities is for classes and labels" in done.stderr


def test_from_python_long_texts_know_what_was_before(model):
    """In segments with memory; a word of the first segment changes what is thought of the last one's words."""
    ends = ["so the one dash " * 5] * 2
    one, other = model.predict([("River 10 " if i else "so the ") + end for i, end in enumerate(ends)])
    assert len(one["tags"]) == len(other["tags"]) == 22
    assert one["tokens"][2:] == other["tokens"][2:]
    assert np.abs(np.subtract(one["probabilities"], other["probabilities"])[-4:]).max() > 1e-6
    words = model.predict(("River", "10"))
    assert words["text"] == "River 10"
    sure = min(words["probabilities"])
    assert words["entities"] == [{"label": "PLACE", "text": "River 10", "begin": 0, "end": 8, "probability": sure}]


def test_the_run_records_how_tags_name_entities(tuned):
    assert json.loads((tuned[0] / "columns.json").read_text())["scheme"] == "iob"


def test_written_words_stay_one_line_each_and_a_text_may_have_none(tuned, folder):
    rows = [{"tokens": ["so", "im\nport\tall"]}, {"text": "\u200b"}, {"text": "River 10"}]
    (folder / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "odd.conll"
    done = processes.run(
        ["scripts/predict.py", f"--model_dir={tuned[0]}", f"--input={folder / 'odd.jsonl'}", f"--output={path}"]
    )
    assert done.returncode == 0, done.stderr
    words = [line.split("\t")[0] for line in path.read_text().split("\n")]
    assert words == ["so", "im port all", "", "", "River", "10", "", ""]


def test_files_to_tag_are_told_by_the_tags_that_the_model_knows(model, folder):
    (folder / "lines.txt").write_text("the River 10\nso fine End\n")
    (folder / "words.txt").write_text("the x O\nRiver x B-PLACE\n\nso x O\n")
    found = [[one["tokens"] for one in model.predict_file(str(folder / f"{name}.txt"))] for name in ("lines", "words")]
    assert found == [[["the", "River", "10"], ["so", "fine", "End"]], [["the", "River"], ["so"]]]


def test_words_are_cut_by_the_rules_of_the_version_that_trained(tuned, model, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(tuned[0], older)
    (older / "columns.json").unlink()  # as in runs of earlier versions
    texts = [one.predict("他在River 10")["tokens"] for one in (model, txl_tf.load(str(older), progress=False))]
    assert texts == [["他", "在", "River", "10"], ["他在River", "10"]]


def test_a_conll_name_is_for_tags_alone_and_unknown_columns_are_named(tuned, folder):
    command = ["scripts/predict.py", f"--model_dir={tuned[0]}", f"--input={folder / 'dev.jsonl'}", "--text_column=x"]
    done = processes.run(command)
    assert done.returncode == 1
    assert "has no column 'x': it has 'tokens', 'tags'; correct --text_column" in done.stderr

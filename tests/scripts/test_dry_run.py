"""finetune.py and predict.py --dry_run: what is understood of a file, before TensorFlow loads; nothing is written."""

import json

import processes
import pytest

FLAGS = ["--init=none", "--dry_run"]
QUESTION = {
    "question": "Where?",
    "context": "Oslo lies in Norway.",
    "answers": {"text": ["Norway"], "answer_start": [13]},
}
STARS = ["--label_column=stars"]
FILES = {
    "a.csv": "text;stars\n" + "".join(f"text {i};{i % 3}\n" for i in range(9)),
    "sets.csv": "text,label\na,\"['x', 'y']\"\nb,[]\n",
    "commas.csv": 'text,label\na,"x, y"\nb,"y, z"\nc,z\nd,"x, z"\n',
    "bits.csv": "text,x,y\na,1,0\nb,0,1\n",
    "squad.jsonl": json.dumps(QUESTION) + "\n" + json.dumps(QUESTION) + "\n",
    "race.json": json.dumps([{"article": "a", "question": "q", "options": ["a", "b"], "answer": "B"}]),
}


def finetune(folder, task, name, *flags):
    (folder / name).write_text(FILES[name])
    command = ["scripts/finetune.py", *FLAGS, f"--task={task}", f"--train={folder / name}", f"--model_dir={folder}/run"]
    done = processes.run([*command, *flags])
    assert not (folder / "run").exists()
    return done


@pytest.mark.parametrize(
    ("task", "name", "flags", "said"),
    [
        ("classification", "a.csv", STARS, "CSV with ';', text in 'text', label in 'stars': 9 rows, 3 classes"),
        ("regression", "a.csv", STARS, "CSV with ';', text in 'text', label in 'stars': 9 rows, scores from 0 to 2"),
        ("multi_label", "sets.csv", [], "CSV, text in 'text', label in 'label': 2 rows, 2 labels"),
        ("multi_label", "bits.csv", ["--label_columns=x,y"], "CSV, text in 'text', label in 'x,y': 2 rows, 2 labels"),
        ("answering", "squad.jsonl", [], "JSON lines: 2 questions"),
        ("multiple_choice", "race.json", [], "JSON: 1 question"),
    ],
)  # fmt: skip
def test_what_was_understood_is_said(tmp_path, task, name, flags, said):
    done = finetune(tmp_path, task, name, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / name}: {said}\n"


def test_another_separator_is_offered(tmp_path):
    done = finetune(tmp_path, "multi_label", "commas.csv")
    said = "no cell has '|', 3 of 4 have ',': give --label_separator=, if it separates labels"
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {tmp_path / 'commas.csv'}: {said}, or --label_separator='|' if each cell is one label\n"
    )
    assert finetune(tmp_path, "multi_label", "commas.csv", "--label_separator=,").returncode == 0


def test_columns_are_offered(tmp_path):
    done = finetune(tmp_path, "multi_label", "bits.csv")
    assert done.returncode == 1 and "give --label_columns=x,y" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_dry_run_needs_no_model(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(4)) + "Total,4\n"
    )
    flags = ["--task=classification", f"--train={tmp_path / 'a.csv'}"]
    done = processes.run(["scripts/finetune.py", "--dry_run", *flags])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].endswith(
        "a.csv: labels that may be mistakes or missing, with their rows: '4' (1)"
    )
    done = processes.run(["scripts/finetune.py", *flags])
    assert done.returncode == 1 and done.stderr.startswith("error: give --init: the pretrained model")


@pytest.mark.parametrize(
    ("label", "said"),
    [("\\N", "line 2 has the label '\\\\N', which stands for a missing value"), ("-", "rows: '-' (2)"), ("y", "")],
)
def test_signs_of_missing_values_are_said(tmp_path, label, said):
    rows = [("a", label), ("b", label), ("nan", "x"), ("c", "x"), ("d", "y"), ("-1.5", "y")]
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{own}\n" for text, own in rows))
    done = processes.run(["scripts/finetune.py", "--dry_run", "--task=classification", f"--train={tmp_path / 'a.tsv'}"])
    assert said in done.stdout + done.stderr
    if done.returncode == 0:
        assert "1 text such as 'nan' (line 4) may stand for a missing one" in done.stdout
        assert ("may be mistakes" in done.stdout) == (label == "-")


def test_quotes_that_stay_around_labels_are_said(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,'x'\nb,'y'\nc,'x'\nd,'y'\n")
    done = processes.run(["scripts/finetune.py", "--dry_run", "--task=classification", f"--train={tmp_path / 'a.csv'}"])
    assert done.returncode == 0 and """labels such as "'x'" are read as they stand""" in done.stdout

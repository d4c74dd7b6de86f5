"""scripts/finetune.py with one table: a tenth held out, parts, columns that predict.py then knows."""

import csv
import json
import re

import numpy as np
import openpyxl
import processes
import pytest
import random_xlnet

FLAGS = "--tgt_len=16 --batch_size=8 --train_steps=2 --nojit_compile --noeval_jit_compile"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small XLNet and a workbook with 60 messages."""
    folder = tmp_path_factory.mktemp("tables")
    random_xlnet.write_model_dir(folder / "init", random_xlnet.with_prefix(), n_layer=1)
    book = openpyxl.Workbook()
    book.active.append(["id", "message", "team"])
    for i in range(60):
        book.active.append([i, f"{('the', 'River')[i % 2]} so {'one ' * (i // 2)}", ("no", "yes")[i % 2]])
    book.save(folder / "tickets.xlsx")
    return folder


def finetune(folder, name, *flags):
    files = [f"--init={folder}/init", f"--train={folder}/tickets.xlsx", f"--model_dir={folder}/{name}"]
    columns = ["--text_column=message", "--label_column=team"]
    return processes.run(
        ["scripts/finetune.py", *files, "--task=classification", *columns, *FLAGS.split(), *flags], cwd=processes.ROOT
    )


def test_a_tenth_is_held_out_and_the_columns_are_known_to_predict(folder):
    done = finetune(folder, "run")
    assert done.returncode == 0, done.stderr
    said = f"dev: 6 examples of {folder}/tickets.xlsx are held out, a tenth by seed 1; --dev names another file"
    assert said in done.stdout.splitlines()
    assert json.loads(done.stdout.splitlines()[-1])["examples"] == 6
    counts = [row[1:] for row in csv.reader((folder / "run" / "confusion.csv").read_text().splitlines())]
    assert counts[0] == ["no", "yes"] and sum(int(count) for row in counts[1:] for count in row) == 6
    right = sum(int(counts[i + 1][i]) for i in range(2))
    assert right / 6 == pytest.approx(json.loads(done.stdout.splitlines()[-1])["accuracy"])
    header, *wrong = csv.reader((folder / "run" / "worst.csv").read_text().splitlines())
    assert header == ["row", "id", "label", "prediction", "probability", "loss", "text"] or not wrong
    assert len(wrong) == 6 - right
    for row, number, label, prediction, probability, loss, text in wrong:  # row 1 of the sheet has the names
        i = int(number)
        assert int(row) == i + 2 and {label, prediction} == {"no", "yes"} and label == ("no", "yes")[i % 2]
        assert text == f"{('the', 'River')[i % 2]} so {'one ' * (i // 2)}"
        assert np.exp(-float(loss)) == pytest.approx(1 - float(probability), abs=1e-4)
    card = processes.run(["scripts/describe_model.py", f"--model_dir={folder}/run"], cwd=processes.ROOT)
    text = card.stdout + (folder / "run" / "README.md").read_text()
    assert "## Errors" in text and f"| no | {counts[1][0]} | {counts[1][1]} |" in text
    output = folder / "answers.xlsx"
    command = ["scripts/predict.py", f"--model_dir={folder}/run", f"--input={folder}/tickets.xlsx"]
    done = processes.run([*command, f"--output={output}"], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    rows = list(openpyxl.load_workbook(output).active.iter_rows(values_only=True))
    assert rows[0] == ("id", "message", "team", "prediction", "probability")
    assert [row[0] for row in rows[1:]] == list(range(60)) and {row[3] for row in rows[1:]} <= {"no", "yes"}
    assert finetune(folder, "run").returncode == 0  # nothing is left to do: the same part is held out
    again = finetune(folder, "run", "--seeds=2")
    assert again.returncode and "run" in again.stderr


def test_another_run_with_the_same_settings(folder):
    """Its task and all its settings, but for the flags that are given."""
    assert finetune(folder, "first", "--dropout=0.3", "--learning_rate=3e-3").returncode == 0
    start = ["scripts/finetune.py", f"--init={folder}/init", f"--train={folder}/tickets.xlsx"]
    start += [f"--model_dir={folder}/second", "--text_column=message", "--label_column=team"]
    as_first = [*start, f"--settings_from={folder}/first"]
    done = processes.run([*as_first, "--train_steps=1", "--warmup_steps=0", "--seeds=2"], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    theirs, mine = (json.loads((folder / name / "config.json").read_text()) for name in ("first", "second"))
    theirs["train"] |= {"train_steps": 1, "warmup_steps": 0, "seed": 2}
    assert mine == theirs and mine["model"]["dropout"] == 0.3
    for given, said in (
        ([*as_first, "--preset=race"], "give --preset or --settings_from, not both"),
        ([*as_first, "--task=multi_label"], "has learned classification: omit --task=multi_label"),
        ([*start, f"--settings_from={folder}/init"], f"--settings_from={folder}/init is not a fine-tuned run: give"),
        ([*start, f"--settings_from={folder}"], "has no config.json: give the model_dir of a run"),
    ):
        refused = processes.run(given, cwd=processes.ROOT)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr


def test_folds_have_mean_and_deviation(folder):
    done = finetune(folder, "three", "--folds=3")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert [run["fold"] for run in line["runs"]] == [1, 2, 3] and line["examples"] == 60
    found = [run["accuracy"] for run in line["runs"]]
    assert line["accuracy"] == pytest.approx(np.mean(found))
    assert line["accuracy_std"] == pytest.approx(np.std(found, ddof=1))
    assert re.search(r"^3 folds: accuracy \d\.\d{4}, standard deviation \d\.\d{4}$", done.stdout, re.MULTILINE)
    assert (folder / "three" / "fold-3" / "config.json").exists()
    done = finetune(folder, "many", "--folds=1000000000")
    assert done.returncode and "too few examples to hold out one of 1,000,000,000 parts" in done.stderr
    assert not (folder / "many").exists()
    for flags in (["--folds=1"], ["--folds=2", "--seeds=1,2"], ["--folds=2", f"--dev={folder}/tickets.xlsx"]):
        done = finetune(folder, "none", *flags)
        assert done.returncode and "must be 2 or more; it takes only one seed, and no --dev" in done.stderr

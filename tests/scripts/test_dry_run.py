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


def test_a_guess_is_said(tmp_path):
    done = finetune(tmp_path, "multi_label", "commas.csv")
    assert done.stdout.splitlines()[1].endswith(
        "no cell has '|', 3 of 4 have ',': give --label_separator=, if it separates labels"
    )


def test_columns_are_offered(tmp_path):
    done = finetune(tmp_path, "multi_label", "bits.csv")
    assert done.returncode == 1 and "give --label_columns=x,y" in done.stderr and len(done.stderr.splitlines()) == 1

"""finetune and predict report all faults of a file at once, before TensorFlow loads."""

import json
import os
import pathlib
import subprocess
import sys

import processes
import pytest
import tuned_models

from txl_tf.inference.tasks.predictor import Predictor

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    tuned_models.write_model_dir(folder / "texts", "classification", ("bad", "good"))
    tuned_models.write_model_dir(folder / "answers", "answering")
    return folder


@pytest.fixture
def without_tensorflow(tmp_path):
    """Runs a command where TensorFlow cannot be loaded: its exit status and the lines on standard error."""
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was loaded')")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])

    def run(script, *flags):
        command = [sys.executable, f"scripts/{script}.py", *flags]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": path}
        )
        return done.returncode, done.stderr.splitlines()

    return run


def test_finetune_says_all_faults_of_a_table(without_tensorflow, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label\ngreat,good\n,bad\nfine\nwhat a mess,bad\nextra,good,column\n \t,good\nlovely,good\n")
    flags = ["--init=none", "--task=classification", f"--train={table}", f"--dev={table}", f"--model_dir={tmp_path}/m"]
    status, lines = without_tensorflow("finetune", *flags)
    assert status == 1 and lines[-1] == f"error: 4 faults in {table}" and len(lines) == 5
    for line, begin in zip(
        lines, ("3 has no text", "4 has 1 column,", "6 has 3 columns", "7 has no text"), strict=False
    ):
        assert line.startswith(f"{table}, line {begin}")
    status, lines = without_tensorflow("finetune", *flags, "--skip_empty")
    assert status == 1 and lines[-1] == f"error: 2 faults in {table}"
    assert without_tensorflow("finetune", *flags, "--label_column=text") == (
        1,
        ["error: --label_column and --text_column are both 'text': name a different column for each"],
    )
    table.write_text("text,score\ngreat,1.5\nfine,NaN\n")
    flags[1] = "--task=regression"
    status, (line,) = without_tensorflow("finetune", *flags, "--label_column=Score")
    assert status == 1 and line.endswith(
        "t.csv, line 1 has no column 'Score' but 'text', 'score': give --label_column='score'"
    )
    status, (line,) = without_tensorflow("finetune", *flags, "--label_column=score")
    assert status == 1 and "t.csv, line 3 has the label 'NaN'" in line


def test_an_encoding_of_no_file_is_one_line(without_tensorflow, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label\ngreat,good\n")
    flags = ["--init=none", "--task=classification", f"--train={table}", f"--dev={table}", f"--model_dir={tmp_path}/m"]
    status, (line,) = without_tensorflow("finetune", *flags, "--encoding=punycode")
    assert status == 1 and line.startswith(
        "error: --encoding=punycode is unknown as an encoding of text: give one such"
    )


def test_predict_says_all_faults_of_a_file(without_tensorflow, tuned, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label\ngreat,good\n")
    flags = [f"--model_dir={tuned}/texts", f"--input={table}"]
    for name in ("text_b_column", "label_column"):
        status, (line,) = without_tensorflow("predict", *flags, f"--{name}=misspelt")
        assert status == 1 and "t.csv, line 1 has no column 'misspelt'" in line
    questions = tmp_path / "q.json"
    questions.write_text(json.dumps([{"question": "a", "context": " "}, {"context": "b"}]))
    flags = [f"--model_dir={tuned}/answers", f"--input={questions}"]
    status, lines = without_tensorflow("predict", *flags)
    assert status == 1 and lines[-1] == f"error: 2 faults in {questions}"
    assert "data[0].context must not be empty" in lines[0] and "data[1] has no 'question'" in lines[1]
    status, (line,) = without_tensorflow("predict", *flags, "--text_column=a")
    assert status == 1 and "--text_column is not used here, since answering reads question, context and answers" in line


def test_predict_reads_what_a_spreadsheet_program_writes(tuned, tmp_path):
    """A separator of its own, an encoding of its own, no header, rows without content; what is left out is said."""
    table, texts = tmp_path / "t.csv", ["caf\u00e9, one", "the River"]
    table.write_bytes("sep=;\r\n1;caf\u00e9, one\r\n;\r\n2;the River\r\n3;\r\n".encode("cp1252"))
    flags = ["--no_header", "--text_column=2", "--encoding=cp1252", "--skip_empty"]
    done = processes.run(["scripts/predict.py", f"--model_dir={tuned}/texts", f"--input={table}", *flags], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    wanted = Predictor.load(str(tuned / "texts")).predict(texts)
    for line, prediction in zip(done.stdout.splitlines(), wanted, strict=True):
        assert json.loads(line)["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-6)
    assert done.stderr.splitlines()[:-1] == [  # the last names the checkpoint
        f"{table}: CSV with ';', text in '2': 2 rows",
        f"{table}: 1 row without any content left out (line 3)",
        f"{table}: 1 row without text left out (line 5)",
    ]


def test_lines_of_json_with_nan_become_lines_of_json(tuned, tmp_path):
    """Python reads NaN, which is not JSON."""
    (tmp_path / "t.jsonl").write_text('{"text": "the River", "size": NaN, "more": [Infinity]}\n')
    files = [f"--input={tmp_path}/t.jsonl", f"--output={tmp_path}/o.jsonl"]
    done = processes.run(["scripts/predict.py", f"--model_dir={tuned}/texts", *files], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "o.jsonl").read_text(), parse_constant=pytest.fail)
    assert found["size"] is None and found["more"] == [None] and found["prediction"] in ("bad", "good")


def test_half_an_emoji_is_the_replacement_character_and_said_once(tuned, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"text": "the River \\ud83d"}\n{"text": "so \\ud83d", "text_b": null, "label": null}\n')
    done = processes.run(["scripts/predict.py", f"--model_dir={tuned}/texts", f"--input={file}"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[:-1] == [
        "half a surrogate pair (such as half an emoji) is not a character: it is read as U+FFFD",
        f"{file}: JSON lines, text in 'text', second text in 'text_b': 2 rows",
        f"{file}: 2 texts such as 'the River \ufffd' (line 1) may have lost letters (U+FFFD): save the file again as "
        "UTF-8 from its source",
    ]
    predictor = Predictor.load(str(tuned / "texts"))
    assert predictor.predict("the River \ud83d") == predictor.predict("the River \ufffd")
    predictor = Predictor.load(str(tuned / "answers"))
    asked = [{"question": f"so {sign}", "context": f"the River {sign} one"} for sign in ("\ud83d", "\ufffd")]
    assert predictor.predict(asked[0]) == predictor.predict(asked[1])

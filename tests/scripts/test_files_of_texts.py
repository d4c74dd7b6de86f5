"""Whole files through commands: evaluate.py --text_file, generate.py --prompts_jsonl, score.py on tables."""

import csv
import json
import math

import pytest
from processes import ROOT
from processes import run as run_command

from txl_tf.inference.causal.language_model import LanguageModel

PLAIN = f"{ROOT}/tests/model_dir_ce09e14/plain"
TEXT = "line 1 of 9\nno line at all\n" * 40


@pytest.fixture(scope="module")
def model():
    return LanguageModel.load(PLAIN)


def run(script, *flags):
    return run_command([f"scripts/{script}.py", f"--model_dir={PLAIN}", *flags], cwd=ROOT)


def test_a_text_is_evaluated_without_a_corpus(model, tmp_path):
    """With memory of the whole text, the loss is that of the text's own scores, except for its first token."""
    (tmp_path / "any.txt").write_text(TEXT)
    flags = [f"--text_file={tmp_path}/any.txt", "--nojit_compile", f"--mem_len={2 * len(TEXT)}"]
    done = run("evaluate", *flags)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr  # no lane begins without the text before it
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["batch_size"] == 1 and line["bytes"] == len(TEXT) and line["unknown_share"] == 0
    assert line["tokens"] == len(TEXT) - 1 and line["split"] == "text" and line["text_file"].endswith("any.txt")
    (score,) = LanguageModel.load(PLAIN, mem_len=2 * len(TEXT)).score([TEXT])
    loss = -score.log_probs[1:].mean()
    assert line["bits_per_byte"] == pytest.approx(line["loss"] / math.log(2))
    assert line["loss"] == pytest.approx(loss, rel=0.02)
    for given, said in (
        ([], "give either --data_dir, a corpus, or --text_file"),
        (["--text_file=x", "--data_dir=y"], "give either --data_dir"),
        (["--text_file=x", "--split=test"], "--text_file has no splits"),
        ([f"--text_file={tmp_path}/none.txt"], "none.txt"),
    ):
        done = run("evaluate", *given)
        assert done.returncode and said in done.stderr and len(done.stderr.splitlines()) == 1, given


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_ends_of_lines_change_no_loss(tmp_path, end):
    (tmp_path / "lf.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_bytes(TEXT.replace("\n", end).encode())
    done = [run("evaluate", f"--text_file={tmp_path}/{name}.txt", "--nojit_compile") for name in ("lf", "other")]
    losses = [json.loads(one.stdout.splitlines()[-1])["bits_per_byte"] for one in done]
    assert losses[0] == losses[1]
    assert r"other.txt: 80 line ends with \r read as \n" in done[1].stderr


def test_that_letters_of_json_are_read_is_said(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "line 1"}\n' * 9)
    done = run("evaluate", f"--text_file={tmp_path}/rows.jsonl", "--nojit_compile")
    assert done.returncode == 0 and "rows.jsonl: the letters of JSON are read" in done.stderr, done.stderr


def test_a_prompt_may_be_utf_16(tmp_path):
    (tmp_path / "utf8.txt").write_text("line 1")
    (tmp_path / "utf16.txt").write_bytes("line 1".encode("utf-16"))
    done = [run("generate", f"--prompt_file={tmp_path}/{name}.txt", "--max_tokens=4") for name in ("utf8", "utf16")]
    assert done[0].returncode == 0 and done[0].stdout == done[1].stdout


def test_many_prompts_are_continued(model, tmp_path):
    prompts = ["line 1", "no", "", "line 1"]
    lines = [{"prompt": prompt, "id": i} for i, prompt in enumerate(prompts[:3])] + [prompts[3]]
    lines[2] |= {"continuation": "own", "number": math.nan}
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = [f"--prompts_jsonl={tmp_path}/p.jsonl", "--max_tokens=6", "--seed=5"]
    done = run("generate", *flags)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    *wanted, second = model.generate([*prompts, "no"], 6, seed=[5, 5, 5, 5, 6])
    assert found[2].pop("continuation") == "own" and found[2].pop("number") is None
    found[2]["continuation"] = found[2].pop("continuation_2")
    assert [line["continuation"] for line in found] == wanted and wanted[0] == wanted[3]
    assert [(line["prompt"], line.get("id")) for line in found] == list(zip(prompts, (0, 1, 2, None), strict=True))
    found = [json.loads(line) for line in run("generate", *flags, "--num_samples=2").stdout.splitlines()]
    assert [line["continuations"][0] for line in found] == wanted
    assert found[1]["continuations"][1] == second
    (tmp_path / "bad.jsonl").write_text('{"prompt": 1}\n{}\n"a"\n')
    done = run("generate", f"--prompts_jsonl={tmp_path}/bad.jsonl")
    assert done.returncode and "bad.jsonl, line 1" in done.stderr and "bad.jsonl, line 2" in done.stderr
    for more, said in ((["--prompt=a"], "one of --prompt, --prompt_file"), (["--beam_size=2"], "--beam_size=2 is for")):
        assert said in run("generate", *flags, *more).stderr


def test_a_text_of_no_likelihood_has_no_perplexity(tmp_path):
    """exp(1,000) is too large for a float; and the folder of --output is made."""
    (tmp_path / "t.txt").write_text("a\n")
    flags = [f"--model_dir={PLAIN}", f"--input={tmp_path}/t.txt", f"--output={tmp_path}/new/folder/o.jsonl"]
    program = (
        "import runpy, sys; from txl_tf.inference.causal import language_model as module; "
        "module.LanguageModel.score = lambda self, texts: [module.Score([1], [-1e3], -1e3) for _ in texts]; "
        f"sys.argv = {['score.py', *flags]!r}; runpy.run_path('scripts/score.py', run_name='__main__')"
    )
    done = run_command(["-c", f"import sys; sys.path.insert(0, 'scripts'); {program}"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    line = json.loads((tmp_path / "new" / "folder" / "o.jsonl").read_text())
    assert line == {"text": "a", "tokens": 1, "total": -1000.0, "ppl": None}


def test_a_column_of_a_table_is_scored(model, tmp_path):
    (tmp_path / "t.csv").write_text("id;review\n1;line 1\n;\n2;no line\n")
    flags = [f"--input={tmp_path}/t.csv", "--text_column=review"]
    done = run("score", *flags, f"--output={tmp_path}/o.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader((tmp_path / "o.csv").read_text().splitlines(), delimiter=";"))
    assert rows[0] == ["id", "review", "tokens", "total", "ppl"] and rows[2] == [""] * 5
    scores = model.score(["line 1", "no line"])
    for row, score in zip((rows[1], rows[3]), scores, strict=True):
        assert int(row[2]) == len(score.ids) and float(row[3]) == pytest.approx(score.total, abs=1e-4)
    lines = [json.loads(line) for line in run("score", *flags).stdout.splitlines()]
    assert [line["text"] for line in lines] == ["line 1", "no line"]
    (tmp_path / "json.txt").write_text('{"text": "line"}\n')
    done = run("score", f"--input={tmp_path}/json.txt")
    assert done.returncode == 0 and "json.txt: JSON is scored with its marks; give its texts in" in done.stderr
    (tmp_path / "t.txt").write_text("line\n")
    for given, said in (
        ([f"--input={tmp_path}/t.csv"], "no column 'text' but 'id', 'review'"),
        ([f"--input={tmp_path}/t.txt", "--text_column=a"], "--text_column is for tables"),
        ([f"--input={tmp_path}/t.txt", "--output=o.csv"], "would hold JSON lines"),
        ([*flags, "--per_token", "--output=p.csv"], "--per_token is for JSON lines"),
    ):
        done = run("score", *given)
        assert done.returncode and said in done.stderr and len(done.stderr.splitlines()) == 1, given

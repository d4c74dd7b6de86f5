"""scripts/fill.py, and what it and other scripts say to a model of the other family."""

import json
import pathlib
import subprocess
import sys

import processes
import pytest
import random_xlnet

from txl_tf.data.vocabularies import CharVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn

ROOT = pathlib.Path(__file__).parents[3]
OTHER = ROOT / "tests" / "model_dir_ce09e14" / "plain"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A model_dir of an XLNet of one layer, over letters."""
    path = tmp_path_factory.mktemp("model_dir")
    random_xlnet.write_model_dir(path, CharVocabulary("abcde .\n"), n_layer=1)
    return path


def run(script, *arguments):
    return processes.run([f"scripts/{script}.py", *arguments], cwd=ROOT)


def test_fillings_and_scores_are_printed(model_dir, tmp_path):
    model = FillIn.load(str(model_dir), jit_compile=False)
    (tmp_path / "texts.txt").write_text("a?b?*2\n\n?c\n")
    flags = [f"--model_dir={model_dir}", "--blank=?", "--beam_size=4", "--top=2", "--order=confident"]
    done = run("fill", *flags, f"--text_file={tmp_path}/texts.txt", "--json", "--context=ab")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    model = FillIn(model.model, model.vocabulary, marker="?", jit_compile=False)
    texts = model.fill(["a?b?*2", "?c"], order="confident", beam_size=4, top=2, context="ab")
    for line, filling in zip(lines, [filling for fillings in texts for filling in fillings], strict=True):
        assert (line["text"], line["ids"]) == (filling.text, filling.ids.tolist())
        assert line["total"] == pytest.approx(filling.total, abs=1e-4)
        assert "".join(line["fillings"]) == "".join(filling.pieces[1::2])
    done = run("fill", *flags[:1], "--text=a cab", "--score")
    assert done.stdout == f"{model.score('a cab').total:.4f}\ta cab\n"


@pytest.mark.parametrize(
    ("script", "flags", "reason"),
    [
        ("fill", ["--text=abc"], "error: there is no blank in 'abc': write ____ where"),
        (
            "score",
            [f"--input={ROOT}/LICENSE"],
            "holds an XLNet, which is not trained to continue texts: use scripts/fill.py",
        ),
        (
            "export_savedmodel",
            ["--nosame_length", "--export_dir=/nowhere"],
            "--same_length: not for an XLNet, which reads each",
        ),
        (
            "evaluate",
            ["--same_length", "--data_dir=/nowhere"],
            "error: --same_length is a setting of Transformer-XL, and",
        ),
    ],
)
def test_wrong_requests_get_one_line(model_dir, script, flags, reason):
    done = run(script, f"--model_dir={model_dir}", *flags)
    assert done.returncode == 1 and reason in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_transformer_xl_fills_nothing(model_dir):
    # From nothing: no message of TensorFlow's start may show.
    command = [sys.executable, "scripts/fill.py", f"--model_dir={OTHER}", "--text=a ____"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "holds a Transformer-XL, which fills no blanks: use scripts/generate.py" in done.stderr
    with pytest.raises(InputError, match="has no separator token"):
        Encoder.load(str(model_dir))


@pytest.mark.slow
def test_an_export_of_either_family_is_written(model_dir, tmp_path):
    done = run("export_savedmodel", f"--model_dir={model_dir}", f"--export_dir={tmp_path}/model")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "README.md").read_text().startswith("# An XLNet")

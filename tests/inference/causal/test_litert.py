"""A Transformer-XL in LiteRT, which runs here without TensorFlow's own runtime, against the model with mems."""

import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import processes
import pytest
from ai_edge_litert.interpreter import Interpreter
from processes import ROOT
from random_model import CONFIG, random_model, read

import txl_tf
from txl_tf.errors import InputError
from txl_tf.inference.causal.litert import TokenReader, export_litert
from txl_tf.runs.model_dir import load_trained

TRAINED = pathlib.Path(ROOT) / "tests" / "model_dir_ce09e14"
FORMS = {
    "zeros": {},
    "empty": {"mem_init": "empty", "same_length": True, "same_length_window": "pytorch", "activation": "gelu"},
    "pre_lnorm": {"pre_lnorm": True, "untie_r": False},
    "adaptive": {"cutoffs": (40, 100), "div_val": 2},
    "adaptive, one table": {"cutoffs": (40, 100), "d_embed": 8},
}


class Text:
    """A text that is read token by token by the content of a .tflite file; its memory begins with any numbers."""

    def __init__(self, content):
        self.interpreter = Interpreter(model_content=content)
        self.token = self.interpreter.get_signature_runner("token")
        shapes = {name: detail["shape"] for name, detail in self.token.get_input_details().items()}
        draw = np.random.default_rng(1)
        self.memory = {name: draw.normal(size=shapes[name]).astype(np.float32) for name in ("keys", "values")}
        self.memory["length"] = np.zeros([1], np.int32)

    def read(self, token):
        """Log-probabilities [V] of the next token."""
        found = self.token(tokens=np.array([[token]], np.int32), **self.memory)
        self.memory = {name: found[name] for name in self.memory}
        return found["log_probs"][0]

    def log_probs(self, ids):
        return np.stack([self.read(token) for token in ids])


@pytest.mark.parametrize("form", FORMS)
def test_log_probabilities_are_those_of_the_model_with_mems(form):
    model = random_model(dataclasses.replace(CONFIG, mem_len=10, **FORMS[form]))
    text, ids = Text(TokenReader(model, model.config.reach).converted()), np.random.default_rng(0).integers(0, 256, 30)
    exact = random_model(dataclasses.replace(CONFIG, mem_len=10, dtype="float64", **FORMS[form]))
    exact.set_weights(model.get_weights())
    expected, _ = read(exact, ids, [1] * 30)
    np.testing.assert_allclose(text.log_probs(ids), expected, rtol=1e-5, atol=1e-4)
    assert text.memory["length"] == 30
    operations = {operation["op_name"] for operation in text.interpreter._get_ops_details()}
    assert not {name for name in operations if "Flex" in name or "CUSTOM" in name.upper()}, operations


def test_the_command_and_the_example_continue_a_text_as_the_model_does(tmp_path):
    """The example has a process that never imports TensorFlow."""
    folder, model_dir = tmp_path / "lite", TRAINED / "plain"
    done = processes.run(
        ["scripts/export_savedmodel.py", f"--model_dir={model_dir}", f"--export_dir={folder}", "--litert"], cwd=ROOT
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.startswith(f"step 200 exported to {folder}: model.tflite (0.")
    assert {path.name for path in folder.iterdir()} == {"model.tflite", "tokens.json", "README.md"}
    model, prompt = txl_tf.load(str(model_dir), jit_compile=False, progress=False), "the "
    expected = prompt + model.generate(prompt, max_tokens=20, temperature=0)
    program = ["examples/generate_litert.py", str(folder), prompt, "--max_tokens=20", "--temperature=0"]
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
        "assert not {'tensorflow', 'txl_tf'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == expected + "\n", done.stderr
    assert done.stderr.endswith(" ms a token\n")
    about = json.loads((folder / "tokens.json").read_text())
    assert about["unit"] == "char" and "".join(about["tokens"]) == model.vocabulary.decode(range(37))
    text = Text((folder / "model.tflite").read_bytes())
    ids = model.vocabulary.encode(expected)
    scored = model.score(expected).log_probs
    found = text.log_probs([model.vocabulary.start_token, *ids[:-1]])[np.arange(len(ids)), ids]
    assert f"{list(text.memory['keys'].shape)}" in (folder / "README.md").read_text()
    np.testing.assert_allclose(found, scored, atol=1e-4)


@pytest.mark.parametrize("content", [None, b"", b"damaged" * 100])
def test_the_example_says_in_one_line_that_there_is_no_model(tmp_path, content):
    if content is not None:
        (tmp_path / "model.tflite").write_bytes(content)
        (tmp_path / "tokens.json").write_text("{}")
    program = ["examples/generate_litert.py", str(tmp_path), "the "]
    done = subprocess.run([sys.executable, *program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path} has no model as export_savedmodel.py --litert")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_int8_costs_less_than_a_hundredth_of_the_loss(tmp_path):
    """The model is trained, and large enough for its matrices to be rounded."""
    run = tmp_path / "run"
    flags = (
        "--preset=demo --n_layer=2 --d_model=64 --d_embed=64 --n_head=4 --d_head=16 --d_inner=128 --mem_len=16 "
        "--tgt_len=16 --train_steps=150 --warmup_steps=20 --learning_rate=0.005 --batch_size=8 --nojit_compile"
    )
    paths = [f"--data_dir={TRAINED}/corpus", f"--model_dir={run}"]
    done = processes.run(["scripts/train.py", *flags.split(), *paths], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    bits, sizes = {}, {}
    for quantize in (None, "int8"):
        trained = load_trained(str(run), dtype="float32", quantize=quantize)
        sizes[quantize] = export_litert(trained, str(tmp_path / f"lite {quantize}"), mem_len=32)
        ids = trained.vocabulary.encode((TRAINED / "text" / "test.txt").read_text()[:500])
        text = Text((tmp_path / f"lite {quantize}" / "model.tflite").read_bytes())
        bits[quantize] = -np.mean(text.log_probs(ids[:-1])[np.arange(len(ids) - 1), ids[1:]]) / math.log(2)
    assert bits[None] < 3.5, "it has learned"
    assert abs(bits["int8"] / bits[None] - 1) < 0.01 and bits["int8"] != bits[None]
    assert sizes["int8"] < 0.5 * sizes[None]


def test_what_cannot_be_exported_is_one_line(tmp_path):
    flags = [f"--model_dir={TRAINED}/plain", f"--export_dir={tmp_path}/new", "--litert"]
    for flag, message in (
        (
            "--dtype=mixed_bfloat16",
            "error: --dtype=mixed_bfloat16: LiteRT computes in float32, or with --quantize=int8",
        ),
        ("--mem_len=0", "error: mem_len=0: a file for LiteRT needs a memory, so give --mem_len=1 or more"),
        ("--nojit_compile", "error: --jit_compile is for SavedModels, not for --litert"),
    ):
        done = processes.run(["scripts/export_savedmodel.py", *flags, flag], cwd=ROOT)
        assert done.returncode == 1 and done.stderr == f"{message}\n"
    trained = load_trained(str(TRAINED / "plain"))
    shaw = dataclasses.replace(
        trained, model=random_model(dataclasses.replace(CONFIG, attn_type="shaw", max_klen=40, clamp_len=-1))
    )
    with pytest.raises(InputError, match="attn_type=shaw keeps no keys: only transformer_xl can be exported"):
        export_litert(shaw, str(tmp_path / "new"))

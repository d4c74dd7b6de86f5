"""examples/whole_model.py: it computes what the package computes."""

import dataclasses
import importlib.util
import json
import pathlib

import numpy as np
import processes
import pytest
import tensorflow as tf
from random_model import random_model, read

import txl_tf
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.trainer import by_group

ROOT = pathlib.Path(__file__).parents[2]
TEXT = "Once upon a time there lived a king who had three sons.\nThe eldest said to his father: 'Let me go.'\n" * 5


@pytest.fixture(scope="module")
def whole():
    spec = importlib.util.spec_from_file_location("whole_model", ROOT / "examples" / "whole_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_has_nothing_of_the_package():
    source = (ROOT / "examples" / "whole_model.py").read_text()
    assert len(source.splitlines()) <= 300 and "import txl_tf" not in source and "from txl_tf" not in source


@pytest.mark.parametrize("div_val", [1, 2])
@pytest.mark.parametrize("untie_r", [False, True])
def test_log_probabilities_with_an_adaptive_softmax_and_memory(whole, div_val, untie_r):
    config = TransformerXLConfig(
        vocab_size=60, cutoffs=(20, 40), div_val=div_val, untie_r=untie_r, dropout=0.0, mem_len=9, n_layer=2
    )
    sizes = {"d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 24}
    config = dataclasses.replace(config, **sizes)
    model, ids = random_model(config), np.random.default_rng(1).integers(0, 60, 24).astype(np.int32)
    weights = {v.path.removeprefix("transformer_xl/"): tf.constant(v.value) for v in model.trainable_variables}
    theirs, _ = read(model, ids, [8, 8, 8])
    memory, ours = whole.new_memory(dataclasses.asdict(config), 1), []
    for segment in np.split(ids, 3):
        log_probs, memory = whole.read(weights, dataclasses.asdict(config), tf.constant(segment[None]), memory)
        ours.append(log_probs[0].numpy())
    np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("other", "file"),
    [({"pre_lnorm": True}, "sentencepiece.model"), ({"eval_clamp_len": 820}, "sentencepiece.model"), ({}, "vocab.txt")],
)
def test_a_run_that_it_would_read_wrongly_is_refused(whole, tmp_path, other, file):
    """Its settings, or its vocabulary, are not those that the program knows."""
    config = TransformerXLRunConfig(TransformerXLConfig(vocab_size=60), eval=EvalConfig(clamp_len=-1))
    config = config.replace(**by_group(config, other))
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    (tmp_path / file).touch()
    with pytest.raises(SystemExit, match=r"has vocab\.txt, or settings") as raised:
        whole.read_run(tmp_path)
    assert str(raised.value).endswith(f"{[name.removeprefix('eval_') for name in other]}")


def test_loss_and_greedy_text_of_a_run(whole):
    model = txl_tf.load("fairy_tales", progress=False)
    config, weights = whole.read_run(model.trained.model_dir)
    encode, decode = whole.tokenizer(model.trained.model_dir)
    ids, theirs = encode(TEXT), model.score(TEXT)
    assert ids.tolist() == theirs.ids.tolist() and len(ids) > 100
    read = np.concatenate([[model.vocabulary.start_token], ids]).astype(np.int32)  # a text stands after this token
    assert whole.evaluate(weights, config, read) == pytest.approx(-theirs.log_probs.mean(), abs=1e-5)
    made = decode(whole.sample(weights, config, encode("Once upon a time"), 30, temperature=0))
    assert made == model.generate("Once upon a time", 30, temperature=0.0)


def test_as_a_program_it_learns_a_text_and_continues_it(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 10)
    code = "import sys, runpy; sys.argv[0] = 'whole_model'; import whole_model as w; "
    code += "w.SMALL |= {'n_layer': 1, 'd_model': 16, 'd_inner': 16, 'd_head': 8, 'mem_len': 8}; w.main()"
    environment = {"PYTHONPATH": str(ROOT / "examples")}
    done = processes.run(["-c", code, "--text=text.txt", "--steps=50"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    step, loss = (float(line.split(": ")[1].split()[0]) for line in done.stdout.splitlines()[:2])
    assert loss < 4.5 and step < 5.5  # 5.5 nats: nothing is known

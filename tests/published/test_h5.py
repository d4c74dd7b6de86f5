"""tf_model.h5 of Hugging Face's TensorFlow classes, with what those classes answered (tf_models/README.md)."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
import xlnet_models

from txl_tf.errors import InputError
from txl_tf.families import make_model
from txl_tf.published.importing import configure, open_checkpoint
from txl_tf.published.layout import load

MODELS = pathlib.Path(__file__).parent / "tf_models"
FILES = {path.parent.name: path for path in sorted(MODELS.glob("*/expected.npz"))}


def imported(name):
    checkpoint = open_checkpoint("huggingface", str(MODELS / name))
    config = configure(checkpoint, None, {"dropout": 0.0, "dropatt": 0.0}, {})
    model = make_model(config)
    load(model, checkpoint)
    return model, config, dict(np.load(FILES[name]))


@pytest.mark.parametrize("name", ["transfo_xl_lm", "transfo_xl_tied"])
def test_transformer_xl(name):
    """All log-probabilities of two segments, and the memory after each."""
    model, config, expected = imported(name)
    reach, mems = config.for_evaluation()[1], None
    for step in range(2):
        hidden, mems = model(expected[f"ids_{step}"], mems, reach=reach)
        theirs = expected[f"prediction_scores_{step}"]
        np.testing.assert_allclose(model.log_prob(hidden), theirs, rtol=0, atol=2e-5)
        for i in range(model.config.n_layer):
            newest = expected[f"mems_{step}_{i}"].transpose(1, 0, 2)[:, -len(expected[f"ids_{step}"][0]) :]
            found = np.asarray(mems.hidden[i])[:, -newest.shape[1] :]
            np.testing.assert_allclose(found, newest, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["xlnet_lm", "xlnet_body"])
def test_xlnet(name):
    """Two segments, the second with the memory of the first: logits, or the last hidden states."""
    model, config, expected = imported(name)
    assert config.task == "permutation_lm" and config.model.mem_len == 10
    memory = None
    for step in range(2):
        ids = expected[f"ids_{step}"]
        streams = xlnet_models.read(model, ids, memory)
        hidden = np.stack([one.output for one in streams])
        if name == "xlnet_lm":
            logits = expected[f"logits_{step}"]
            theirs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            np.testing.assert_allclose(model.log_prob(tf.constant(hidden, tf.float32)), theirs, rtol=0, atol=2e-5)
        else:
            np.testing.assert_allclose(hidden, expected[f"last_hidden_state_{step}"], rtol=0, atol=2e-5)
        memory = [expected[f"mems_{step}_{i}"].transpose(1, 0, 2) for i in range(model.config.n_layer)]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("xlnet_classifier", "classification"),
        ("xlnet_tagger", "tagging"),
        ("xlnet_choice", "multiple_choice"),
        ("xlnet_answers", "answering"),
    ],
)
def test_heads_of_xlnet(name, task):
    model, config, expected = imported(name)
    assert config.task == task
    ids = tf.constant(expected["ids_0"])
    given = {"segments": tf.zeros_like(ids), "padding": tf.zeros_like(ids, tf.bool)}
    if task == "answering":
        nothing = tf.zeros([len(ids)], tf.int32)
        logits = model(ids, allowed=tf.ones_like(ids, tf.bool), cls_index=nothing, start=nothing, **given)
        np.testing.assert_allclose(logits.start, expected["start_logits_0"], rtol=0, atol=2e-5)
        np.testing.assert_allclose(logits.end, expected["end_logits_0"], rtol=0, atol=2e-5)
        return
    logits = model(ids, **given).numpy()
    logits = logits[..., 0] if task == "multiple_choice" else logits
    np.testing.assert_allclose(logits, expected["logits_0"], rtol=0, atol=2e-5)


def test_labels_come_along():
    assert open_checkpoint("huggingface", str(MODELS / "xlnet_tagger")).labels == ("bad", "fair", "good")


@pytest.mark.parametrize(("name", "head"), [("classifier", "a classifier's head"), ("body", "no head")])
def test_other_heads_of_transformer_xl_are_refused(name, head):
    with pytest.raises(InputError, match=rf"tf_model\.h5 has {head}: .* only language models are supported"):
        open_checkpoint("huggingface", str(MODELS / f"transfo_xl_{name}"))


def test_damage_is_one_line(tmp_path):
    source = MODELS / "xlnet_lm"
    shutil.copy(source / "config.json", tmp_path)
    content = (source / "tf_model.h5").read_bytes()
    for damaged in (content[: len(content) // 2], b"nothing", b""):
        (tmp_path / "tf_model.h5").write_bytes(damaged)
        with pytest.raises(InputError, match=r"tf_model\.h5 is damaged, or not an HDF5 file \(.*\): fetch it again"):
            open_checkpoint("huggingface", str(tmp_path))
    import h5py

    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file["other"] = [1]
    with pytest.raises(InputError, match=r"tf_model\.h5 holds no weights of a model of Hugging Face"):
        open_checkpoint("huggingface", str(tmp_path))


def test_other_weights_come_first(tmp_path):
    """As in a folder that has several."""
    assert json.loads((MODELS / "xlnet_lm" / "config.json").read_text())["model_type"] == "xlnet"
    shutil.copytree(MODELS / "xlnet_lm", tmp_path / "both")
    (tmp_path / "both/model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        open_checkpoint("huggingface", str(tmp_path / "both"))


@pytest.mark.slow
def test_the_program_of_the_page(tmp_path, monkeypatch):
    """docs/which_command.md, after their program: load, call with mems, fit, save."""
    page = (pathlib.Path(__file__).parents[2] / "docs/which_command.md").read_text()
    part = page.split("### TFTransfoXL")[1].split("\n## ")[0]
    theirs, ours = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    assert "TFTransfoXLLMHeadModel" in theirs
    shutil.copytree(MODELS / "transfo_xl_lm", tmp_path / "saved")
    (tmp_path / "saved/vocab.txt").write_text("\n".join(["<eos>", "<unk>", *(f"w{i}" for i in range(35))]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXL_TF_CACHE", str(tmp_path / "cache"))
    expected = dict(np.load(FILES["transfo_xl_lm"]))
    first, second = expected["ids_0"], expected["ids_1"]
    batches = tf.data.Dataset.from_tensors((first, second)).repeat(2)
    names = {"first": first, "second": second, "batches": batches}
    exec(ours, names)
    np.testing.assert_allclose(names["scores"], expected["prediction_scores_1"], rtol=0, atol=2e-5)
    tuned = open_checkpoint("huggingface", "tuned")
    table = tuned.file.read("transformer.word_emb.emb_layers.0.weight")
    before = open_checkpoint("huggingface", "saved").file.read("transformer.word_emb.emb_layers.0.weight")
    assert table.shape == before.shape and not np.array_equal(table, before)
    np.testing.assert_array_equal(table, names["model"].get_weights()[0])

"""XLNets as published checkpoints, and in again; and the commands for both."""

import dataclasses
import json
import pathlib

import numpy as np
import processes
import published_files as files
import pytest
import xlnet_models
import xlnet_tokens
from xlnet_files import (
    HEADS,
    D,
    H,
    V,
    head_weights,
    huggingface_tensors,
    official_tensors,
    random_weights,
    write_hugging_face,
    write_official,
    write_zip,
)

from txl_tf.data.vocabularies import ByteVocabulary, XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.published.huggingface.xlnet import export
from txl_tf.published.importing import import_checkpoint, open_checkpoint
from txl_tf.published.vocabularies import read_xlnet_vocabulary
from txl_tf.runs.checkpoints import read_checkpoint, variables_by_path
from txl_tf.runs.model_dir import load_trained

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, status=0):
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def pieces():
    return xlnet_tokens.small_model()


@pytest.fixture(scope="module")
def vocab_size(pieces):
    return XLNetVocabulary(pieces).vocab_size


@pytest.mark.parametrize("task", ["permutation_lm", *HEADS])
def test_out_and_in_again_bit_for_bit(tmp_path, rng, pieces, vocab_size, task):
    """Every tensor of the exported file, every weight and setting of the model_dir, and the vocabulary."""
    kind, n_class = HEADS.get(task, ("XLNetLMHeadModel", None))
    weights = random_weights(rng, vocab_size=vocab_size) | ({} if n_class is None else head_weights(rng, n_class))
    tensors = huggingface_tensors(weights)
    write_hugging_face(tmp_path / "hf", tensors, architectures=[kind], vocab_size=vocab_size, summary_type="mean")
    (tmp_path / "hf" / "spiece.model").write_bytes(pieces)
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "keep_accents": True}))
    source, trained = tmp_path / "hf", []
    for turn in ("first", "second"):
        vocabulary = read_xlnet_vocabulary(str(source / "spiece.model"), "text")
        checkpoint = open_checkpoint("huggingface", str(source))
        import_checkpoint(checkpoint, vocabulary, str(tmp_path / turn), dataset="text")
        trained.append(load_trained(str(tmp_path / turn)))
        source = tmp_path / f"{turn}_out"
        export(trained[-1], str(source))
        file = open_checkpoint("huggingface", str(source)).file
        assert set(file.shapes) == set(tensors)
        for name, tensor in tensors.items():
            assert file.read(name).tobytes() == tensor.tobytes(), name
    one, other = trained
    assert one.config.task == task
    assert one.config.model == other.config.model
    assert one.vocabulary_identity == other.vocabulary_identity
    assert one.vocabulary_identity["spec"]["lower_case"] and one.vocabulary_identity["spec"]["keep_accents"]
    assert one.vocabulary.encode("The RIVER").tolist() == one.vocabulary.encode("the river").tolist()
    for variable, copy in zip(one.model.variables, other.model.variables, strict=True):
        np.testing.assert_array_equal(variable.numpy(), copy.numpy(), err_msg=variable.path)


@pytest.mark.slow
def test_the_commands(tmp_path, rng, pieces, vocab_size, monkeypatch):
    """The zip as it was published to a model_dir, a fine-tuned model's body from that, and out again."""
    weights = random_weights(rng, vocab_size=vocab_size)
    write_official(tmp_path / "model", official_tensors(weights), n_token=vocab_size)
    (tmp_path / "model" / "spiece.model").write_bytes(pieces)
    write_zip(tmp_path / "model.zip", tmp_path / "model")
    common = ["scripts/import_checkpoint.py", "--format=official_xlnet", f"--source={tmp_path}/model.zip"]
    output = run(*common, f"--model_dir={tmp_path}/run", "--mem_len=5", "--nolower_case")
    assert f"{vocab_size:,} tokens, for permutation_lm" in output and "not in the checkpoint" not in output
    assert "gelu_tanh, layer_norm_epsilon 1e-12, mem_len 5, reuse_len 256, clamp_len -1, mem_init zeros" in output
    trained = load_trained(f"{tmp_path}/run")
    expected = xlnet_models.make_model(weights, dtype="float32").get_weights()
    for one, other in zip(trained.model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    body = XLNet(dataclasses.replace(trained.config.model), predicts=False)
    read_checkpoint(f"{tmp_path}/run/ckpt-0", model=variables_by_path(body))
    np.testing.assert_array_equal(body.mask_embedding, weights["mask_embedding"].astype(np.float32))
    monkeypatch.setenv("TXL_TF_CACHE", f"{tmp_path}/cache")  # the zip as it is
    direct, by_import = (
        run("scripts/fill.py", f"--model_dir={tmp_path}/{name}", "--text=so ____ dash") for name in ("model.zip", "run")
    )
    assert [line.split("\t")[1] for line in direct.splitlines()] == [
        line.split("\t")[1] for line in by_import.splitlines()
    ]
    output = run("scripts/export_checkpoint.py", f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/out")
    assert "different there: memory starts empty" in output
    exported = open_checkpoint("huggingface", f"{tmp_path}/out")
    for name, tensor in huggingface_tensors(weights).items():
        assert exported.file.read(name).tobytes() == tensor.tobytes()
    assert exported.architecture["activation"] == "gelu_tanh" and exported.settings["mem_len"] == 5
    error = run(*common, f"--model_dir={tmp_path}/other", "--cutoffs=3", status=1)
    assert error == "error: --cutoffs is not a setting of an imported XLNet: omit it\n"
    error = run("scripts/evaluate.py", f"--model_dir={tmp_path}/run", f"--data_dir={tmp_path}/model", status=1)
    assert error.startswith("error: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"untie_r": False}, "untie_r=False"),
        ({"d_head": 6}, "d_head=6 with 2 heads of d_model=8"),
        ({"dtype": "float64"}, "dtype=float64"),
    ],
)
def test_what_cannot_be_exported(tmp_path, settings, what):
    sizes = {"vocab_size": V, "n_layer": 1, "d_model": D, "n_head": H, "d_head": 4, "d_inner": 12}
    model = XLNet(XLNetConfig(**sizes | settings))
    with pytest.raises(InputError, match=f"Hugging Face's XLNet has no {what}: this model cannot be exported"):
        export(files.not_saved(model, ByteVocabulary(range(V)), "permutation_lm"), str(tmp_path))


def test_a_vocabulary_of_its_own(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"spiece.model: not a SentencePiece model: give"):
        read_xlnet_vocabulary(str(tmp_path / "spiece.model"), "text")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(InputError, match=r"do_lower_case, .* must be true or false"):
        read_xlnet_vocabulary(str(tmp_path / "spiece.model"), "text")


def test_a_classifier_by_the_commands(tmp_path, rng, pieces, vocab_size):
    """Its classes have the names of config.json; what is not stated is said; null is a default; added tokens are."""
    weights = random_weights(rng, vocab_size=vocab_size) | head_weights(rng, 2)
    named = {"id2label": {"1": "good", "0": "bad"}, "vocab_size": vocab_size, "summary_type": "mean"}
    write_hugging_face(tmp_path / "hf", huggingface_tensors(weights), **named)
    (tmp_path / "hf" / "spiece.model").write_bytes(pieces)
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": null, "keep_accents": true}')
    common = ["scripts/import_checkpoint.py", "--format=huggingface"]
    output = run(*common, f"--source={tmp_path}/hf", f"--model_dir={tmp_path}/run", "--mem_len=5")
    assert "classes: bad, good" in output
    assert "summary_type=mean depends on padding: here texts are padded on the left to 128 tokens\n" in output
    assert "does not state reuse_len: 256 is used; --reuse_len sets another" in output and "state mem_len" not in output
    trained = load_trained(f"{tmp_path}/run")
    assert trained.labels == ("bad", "good") and not trained.vocabulary.spec["lower_case"]
    weights = random_weights(rng, vocab_size=vocab_size + 2)
    write_hugging_face(tmp_path / "more", huggingface_tensors(weights), vocab_size=vocab_size + 2)
    (tmp_path / "more" / "spiece.model").write_bytes(pieces)
    (tmp_path / "more" / "added_tokens.json").write_text(json.dumps({"<a>": vocab_size, "<b>": vocab_size + 1}))
    error = run(*common, f"--source={tmp_path}/more", f"--model_dir={tmp_path}/other", status=1)
    assert "2 tokens were added to the model (<a>, <b>), which txl_tf does not support" in error
    assert f"resize_token_embeddings({vocab_size})" in error and error.count("\n") == 1

"""Imported checkpoints against the codes they come from: log-probabilities over several segments with memory."""

import collections
import dataclasses
import json

import numpy as np
import published_files as files
import pytest
from published_reference import Sizes, tf_log_probs, tf_others, tf_tensors, torch_log_probs, torch_tensors

from txl_tf.errors import InputError
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.config import EvalConfig, Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.published.importing import configure, open_checkpoint
from txl_tf.published.layout import load

PLAIN = Sizes()
WIKITEXT = Sizes(cutoffs=(5, 9, 17), div_val=2, untie_r=True, share=True)
ONE_BILLION = Sizes(cutoffs=(5, 9), div_val=2, untie_r=True, proj_same_dim=False)
NARROW = Sizes(cutoffs=(5, 9, 17), d_embed=6, share=True, same_length=False, clamp_len=-1)
NARROW_UNTIED = dataclasses.replace(NARROW, share=False)
ONE_TABLE = Sizes(cutoffs=(5, 9, 17))


def imported(source, format, sizes, **model):
    """The model in float64 and how it is to be evaluated."""
    checkpoint = open_checkpoint(format, str(source))
    asked = {"mem_len": sizes.mem_len, "clamp_len": sizes.clamp_len, "same_length": sizes.same_length}
    config = configure(checkpoint, None, {"dtype": "float64", "dropout": 0.0, **model}, asked)
    transformer = TransformerXL(config.model)
    load(transformer, checkpoint)
    return transformer, config.for_evaluation()[1]


def log_probs(model, reach, lanes):
    """[B, T, V] of each segment [B, T]."""
    mems, found = None, []
    for segment in lanes:
        hidden, mems = model(np.array(segment, np.int32), mems, reach=reach)
        found.append(model.log_prob(hidden).numpy())
    return found


def assert_equal_to(reference, model, reach, sizes, rng):
    """Three segments of two lanes, the last one shorter: all log-probabilities."""
    lanes = [rng.integers(0, sizes.vocab_size, [2, length]) for length in (4, 4, 3)]
    found = log_probs(model, reach, lanes)
    for lane in range(2):
        wanted = reference([segment[lane] for segment in lanes])
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours[lane], theirs, rtol=0, atol=3e-6)  # our angles are float32


@pytest.mark.parametrize(
    "sizes",
    [PLAIN, dataclasses.replace(PLAIN, d_embed=6, untie_r=True), WIKITEXT, ONE_BILLION, NARROW, NARROW_UNTIED],
)
def test_official_tf(tmp_path, rng, sizes):
    weights = tf_tensors(sizes, rng)
    files.write_tf(str(tmp_path / "model.ckpt-7"), weights | tf_others(weights))
    model, reach = imported(tmp_path / "model.ckpt-7", "official_tf", sizes)
    assert reach == Reach(sizes.mem_len, sizes.clamp_len, sizes.same_length, "tf", "zeros")
    assert_equal_to(lambda lane: tf_log_probs(weights, sizes, lane), model, reach, sizes, rng)


@pytest.mark.parametrize(
    ("sizes", "write"),
    [
        (PLAIN, files.write_torch),
        (ONE_TABLE, files.write_torch),
        (dataclasses.replace(WIKITEXT, untie_r=False), files.write_torch_legacy),
        (NARROW, files.write_torch),
        (NARROW_UNTIED, files.write_torch_legacy),
    ],
)
def test_official_pytorch_state_dict(tmp_path, rng, sizes, write):
    weights = torch_tensors(sizes, rng)
    named, storages = files.as_torch(weights)
    write(tmp_path / "state.pt", collections.OrderedDict(named), storages)
    model, reach = imported(tmp_path / "state.pt", "official_pytorch", sizes, cutoffs=sizes.cutoffs)
    assert reach == Reach(sizes.mem_len, sizes.clamp_len, sizes.same_length, "pytorch", "empty")
    assert_equal_to(lambda lane: torch_log_probs(weights, sizes, lane), model, reach, sizes, rng)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        (PLAIN, "model.safetensors"),
        (WIKITEXT, "model.safetensors"),
        (WIKITEXT, "pytorch_model.bin"),
        (NARROW, "legacy"),
    ],
)
def test_huggingface(tmp_path, rng, sizes, name):
    weights = torch_tensors(sizes, rng, hugging_face=True)
    write_hugging_face(tmp_path, weights, sizes, name)
    model, reach = imported(tmp_path, "huggingface", sizes)
    assert reach == Reach(sizes.mem_len, sizes.clamp_len, sizes.same_length, "pytorch", "zeros")
    reference = dataclasses.replace(sizes)
    assert_equal_to(lambda lane: torch_log_probs(weights, reference, lane, True), model, reach, sizes, rng)


def write_hugging_face(folder, weights, sizes, name):
    if name == "model.safetensors":
        files.write_safetensors(folder / name, files.without_copies(weights))
    else:
        write = files.write_torch_legacy if name == "legacy" else files.write_torch
        named, storages = files.as_torch(weights)
        write(folder / "pytorch_model.bin", collections.OrderedDict(named), storages)
    config = dataclasses.asdict(sizes)
    share = config.pop("share")
    config |= {"model_type": "transfo-xl", "tie_projs": [False] + [share] * len(sizes.cutoffs), "dropout": 0.1}
    (folder / "config.json").write_text(json.dumps(config))


def test_whole_pytorch_model(tmp_path, rng):
    """model.pt as the official train.py saves it, by a pickle of modules; its attributes tell what shapes cannot."""
    weights = torch_tensors(ONE_TABLE, rng)
    named, storages = files.as_torch(weights, parameter=True)
    module = files.pickled_module(
        named,
        {
            "": {"attn_type": 0, "mem_len": 5, "clamp_len": 4, "same_length": True, "tgt_len": 8},
            "word_emb": {"cutoffs": [5, 9, 17, 23]},
            "layers.0.dec_attn": {"pre_lnorm": False},
        },
    )
    files.write_torch(tmp_path / "model.pt", module, storages)
    checkpoint = open_checkpoint("official_pytorch", str(tmp_path / "model.pt"))
    assert checkpoint.evaluation == {"tgt_len": 8, "mem_len": 5, "clamp_len": 4, "same_length": True}
    config = configure(checkpoint, None, {"dtype": "float64"}, {})
    model = TransformerXL(config.model)
    load(model, checkpoint)
    reach = config.for_evaluation()[1]
    assert_equal_to(lambda lane: torch_log_probs(weights, ONE_TABLE, lane), model, reach, ONE_TABLE, rng)
    preset = dataclasses.replace(PRESETS["demo"], config=dataclasses.replace(config, eval=EvalConfig(mem_len=9)))
    assert configure(checkpoint, preset, {}, {}).eval.mem_len == 9  # the pickle's 5 is that of training
    assert configure(checkpoint, preset, {}, {"mem_len": 7}).eval.mem_len == 7


def test_a_directory_with_one_checkpoint_or_several(tmp_path, rng):
    weights = tf_tensors(PLAIN, rng)
    files.write_tf(str(tmp_path / "model.ckpt-7"), weights)
    assert open_checkpoint("official_tf", str(tmp_path)).file.path == str(tmp_path / "model.ckpt-7")
    assert open_checkpoint("official_tf", str(tmp_path / "model.ckpt-7.index")).file.shapes.keys() == weights.keys()
    files.write_tf(str(tmp_path / "model.ckpt-8"), weights)
    with pytest.raises(InputError, match="holds 2 TensorFlow checkpoints"):
        open_checkpoint("official_tf", str(tmp_path))


def test_every_tensor_is_accounted_for(tmp_path, rng):
    weights = tf_tensors(WIKITEXT, rng)
    del weights["transformer/layer_1/rel_attn/o/kernel"]
    weights["transformer/layer_0/ff/layer_1/bias"] = np.zeros(11, np.float32)
    weights["transformer/layer_0/ff/layer_3/kernel"] = np.zeros([2, 2], np.float32)
    files.write_tf(str(tmp_path / "model.ckpt-7"), weights)
    with pytest.raises(InputError) as error:
        imported(tmp_path / "model.ckpt-7", "official_tf", WIKITEXT)
    message = str(error.value)
    assert "1 missing: transformer/layer_1/rel_attn/o/kernel" in message
    assert "1 left over: transformer/layer_0/ff/layer_3/kernel" in message
    assert "1 of another shape: transformer/layer_0/ff/layer_1/bias [11], expected [10]" in message


def test_tied_tensors_must_be_equal(tmp_path, rng):
    weights = torch_tensors(WIKITEXT, rng, hugging_face=True)
    weights["crit.out_projs.2"] = weights["crit.out_projs.2"] + 1
    write_hugging_face(tmp_path, weights, WIKITEXT, "pytorch_model.bin")
    with pytest.raises(InputError, match=r"1 not equal.*: crit.out_projs.2 and transformer.word_emb.emb_projs.2"):
        imported(tmp_path, "huggingface", WIKITEXT)


def test_configuration_is_checked(tmp_path, rng):
    weights = torch_tensors(WIKITEXT, rng, hugging_face=True)
    write_hugging_face(tmp_path, weights, WIKITEXT, "model.safetensors")
    checkpoint = open_checkpoint("huggingface", str(tmp_path))
    with pytest.raises(InputError, match=r"not the model that was asked for: .*n_layer=18 \(the checkpoint: 2\)"):
        configure(checkpoint, PRESETS["wt103_large"], {}, {})
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"n_layer": 2', '"n_layer": 3'))
    with pytest.raises(InputError, match=r"config.json does not fit these tensors: n_layer=3 \(2 in the tensors\)"):
        open_checkpoint("huggingface", str(tmp_path))


def test_what_nobody_says_is_asked_for(tmp_path, rng):
    named, storages = files.as_torch(torch_tensors(ONE_TABLE, rng))
    files.write_torch(tmp_path / "state.pt", named, storages)
    checkpoint = open_checkpoint("official_pytorch", str(tmp_path / "state.pt"))
    with pytest.raises(InputError, match="--mem_len"):
        configure(checkpoint, None, {}, {})
    with pytest.raises(InputError, match="--cutoffs"):
        configure(checkpoint, None, {}, {"mem_len": 5})


@pytest.mark.parametrize("format", ["official_tf", "official_pytorch", "huggingface"])
def test_no_checkpoint_there(tmp_path, format):
    with pytest.raises(InputError, match=str(tmp_path)):
        open_checkpoint(format, str(tmp_path))

"""Files of published XLNets: where they are, what is wrong with them, and what their settings say."""

import collections
import json
import pathlib
import zipfile

import numpy as np
import published_files as files
import pytest
from xlnet_files import (
    D,
    head_weights,
    huggingface_tensors,
    imported,
    official_head,
    official_tensors,
    random_weights,
    write_hugging_face,
    write_official,
)

from txl_tf.errors import InputError
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.published.huggingface import files as huggingface_files
from txl_tf.published.importing import configure, open_checkpoint
from txl_tf.runs.model_dir import load_trained


def test_official_sources(tmp_path, rng):
    """A prefix, a directory, the directory around it, and the zip as it was published give the same weights."""
    tensors = official_tensors(random_weights(rng))
    inner = tmp_path / "published" / "xlnet_cased_L-2"
    write_official(inner, tensors)
    archive = tmp_path / "cased.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(inner.iterdir()):
            packed.write(path, f"../{inner.name}/{path.name}")  # a place outside is not written to
        packed.writestr(f"{inner.name}/spiece.model", b"pieces")
    expected = imported(inner, "official_xlnet")[0].get_weights()
    for source in (inner / "xlnet_model.ckpt", inner.parent, archive):
        for one, other in zip(imported(source, "official_xlnet")[0].get_weights(), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    checkpoint = open_checkpoint("official_xlnet", str(archive))
    assert checkpoint.file.path == str(archive)
    unpacked = pathlib.Path(checkpoint.source)
    assert (unpacked / "spiece.model").read_bytes() == b"pieces"
    del checkpoint
    assert not unpacked.exists()
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("other/xlnet_config.json", "{}")
    with pytest.raises(InputError, match="holds several models: unpack it"):
        open_checkpoint("official_xlnet", str(archive))
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(InputError, match=r"is damaged .*not a zip file"):
        open_checkpoint("official_xlnet", str(archive))


def test_another_family_or_format(tmp_path, rng):
    weights = random_weights(rng)
    write_official(tmp_path / "tf", official_tensors(weights))
    with pytest.raises(InputError, match="is an XLNet: give --format=official_xlnet"):
        open_checkpoint("official_tf", str(tmp_path / "tf"))
    files.write_tf(str(tmp_path / "xl.ckpt"), {"transformer/r_w_bias": np.zeros([2, 3], np.float32)})
    with pytest.raises(InputError, match="is a Transformer-XL: give --format=official_tf"):
        open_checkpoint("official_xlnet", str(tmp_path / "xl.ckpt"))
    write_hugging_face(tmp_path / "hf", huggingface_tensors(weights), model_type="bert")
    with pytest.raises(InputError, match="is of model_type 'bert': only transfo-xl and xlnet"):
        open_checkpoint("huggingface", str(tmp_path / "hf"))
    checkpoint = open_checkpoint("official_xlnet", str(tmp_path / "tf"))
    with pytest.raises(InputError, match="is of the family XLNet, the preset of Transformer-XL: give another --preset"):
        configure(checkpoint, PRESETS["demo"], {}, {})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"n_layer": 3}, r"n_layer=3 \(2 in the tensors\)"),
        ({"d_head": 8}, r"xlnet_config.json does not fit these tensors: d_head=8 \(4 in the tensors\)"),
        ({"ff_activation": "swish"}, "ff_activation is 'swish'; .* one of gelu, relu"),
        ({"untie_r": 1}, "untie_r is 1; .* untie_r true or false"),
        ({"attn_type": "bi"}, r"it lacks \[\], and has \['attn_type'\], which is not known"),
    ],
)
def test_official_settings_are_checked(tmp_path, rng, config, message):
    write_official(tmp_path, official_tensors(random_weights(rng)), **config)
    with pytest.raises(InputError, match=message):
        imported(tmp_path, "official_xlnet")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"attn_type": "uni"}, "attn_type='uni': only 'bi' is imported"),
        ({"ff_activation": "swish"}, "ff_activation='swish': only gelu_new, gelu, relu"),
        ({"d_inner": 13}, r"config.json does not fit these tensors: d_inner=13 \(12 in the tensors\)"),
        ({"dropout": "much"}, "config.json: dropout must be a number, got 'much'"),
    ],
)
def test_hugging_faces_settings_are_checked(tmp_path, rng, config, message):
    write_hugging_face(tmp_path, huggingface_tensors(random_weights(rng)), **config)
    with pytest.raises(InputError, match=message):
        open_checkpoint("huggingface", str(tmp_path))


def test_heads_that_there_are_not(tmp_path, rng):
    weights = random_weights(rng) | head_weights(rng, 2)
    write_hugging_face(tmp_path / "relu", huggingface_tensors(weights), summary_activation=None)
    with pytest.raises(InputError, match="summary_activation=None: only tanh is imported"):
        open_checkpoint("huggingface", str(tmp_path / "relu"))
    tensors = official_head(weights, "classification")
    tensors["model/regression_b/logit/kernel"] = np.zeros([D, 1], np.float32)
    write_official(tmp_path / "two", tensors)
    with pytest.raises(InputError, match=r"has several heads, .*: only one is imported"):
        open_checkpoint("official_xlnet", str(tmp_path / "two"))


@pytest.mark.parametrize(
    ("n_class", "config", "message"),
    [
        (3, {"problem_type": "regression"}, "'regression' with 3 outputs: .* several scores"),
        (2, {"id2label": {"0": "good"}}, "id2label must name the 2 classes"),
        (2, {"id2label": {"0": "good", "1": "good"}}, "id2label gives two classes one name"),
        (2, {"id2label": ["good", "bad"]}, "id2label must name the 2 classes"),
    ],
)
def test_heads_with_other_outputs(tmp_path, rng, n_class, config, message):
    write_hugging_face(tmp_path, huggingface_tensors(random_weights(rng) | head_weights(rng, n_class)), **config)
    with pytest.raises(InputError, match=rf"config.json.*{message}"):
        open_checkpoint("huggingface", str(tmp_path))


@pytest.mark.parametrize("ending", ["model.safetensors", "pytorch_model.bin"])
def test_shards(tmp_path, rng, ending):
    """The tensors of an index's files; without a file, or with a wrong index, one line says so."""
    tensors = huggingface_tensors(random_weights(rng))
    write_hugging_face(tmp_path, {}, ending)
    (tmp_path / ending).unlink()
    stem, suffix = ending.split(".")
    places, names = {}, sorted(tensors)
    for i, part in enumerate((names[::2], names[1::2]), 1):
        shard = f"{stem}-0000{i}-of-00002.{suffix}"
        places |= dict.fromkeys(part, shard)
        own = {name: tensors[name] for name in part}
        if suffix == "safetensors":
            files.write_safetensors(tmp_path / shard, own)
        else:
            named, storages = files.as_torch(own)
            files.write_torch(tmp_path / shard, collections.OrderedDict(named), storages)
    index = tmp_path / f"{ending}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    file = open_checkpoint("huggingface", str(tmp_path)).file
    assert set(file.shapes) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(file.read(name), tensor)
    for wrong, message in (
        ({name: f"../{place}" for name, place in places.items()}, "weight_map must name files of its own directory"),
        (places | {"more": shard}, "looks for more in .*, which does not have it"),
        ({name: place for name, place in places.items() if name != names[0]}, f"does not list {names[0]}"),
        (places | {names[0]: "gone.bin"}, "names missing files, gone.bin: copy them there"),
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(InputError, match=message):
            open_checkpoint("huggingface", str(tmp_path))


def test_shards_of_safetensors_come_before_a_whole_file_of_torch():
    shard, index = "model-00001-of-00001.safetensors", "model.safetensors.index.json"
    names = ["config.json", "pytorch_model.bin", shard, index]
    assert huggingface_files.needed(names, "owner/name") == ["config.json", index, shard]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xlnet.safetensors", ": if xlnet.safetensors holds its weights, rename it to model.safetensors"),
        ("weights.bin", ": if weights.bin holds its weights, rename it to pytorch_model.bin"),
        ("._model.safetensors", "tf_model.h5$"),
    ],
)
def test_weights_under_another_name(tmp_path, rng, name, message):
    write_hugging_face(tmp_path, huggingface_tensors(random_weights(rng)))
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(InputError, match=f"has none of model.safetensors, .*{message}"):
        open_checkpoint("huggingface", str(tmp_path))


def test_data_under_another_name(tmp_path, rng):
    write_official(tmp_path, official_tensors(random_weights(rng)))
    (data,) = tmp_path.glob("*.data-*")
    other = data.rename(tmp_path / "weights.data-00000-of-00001")
    with pytest.raises(InputError, match=f"has no {data.name} next to it: if {other} is this file, rename it"):
        open_checkpoint("official_xlnet", str(tmp_path))
    other.unlink()
    with pytest.raises(InputError, match=f"has no {data.name} next to it, which holds the weights"):
        open_checkpoint("official_xlnet", str(tmp_path))


def test_what_a_mac_adds(tmp_path, rng):
    """A zip and a folder with __MACOSX/ and ._NAME give the same weights; messages name the zip."""
    inner = tmp_path / "given" / "xlnet"
    write_official(inner, official_tensors(random_weights(rng)))
    expected = imported(inner, "official_xlnet")[0].get_weights()
    (tmp_path / "given" / "__MACOSX").mkdir()
    archive = tmp_path / "xlnet.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(inner.iterdir()):
            packed.write(path, f"xlnet/{path.name}")
            packed.writestr(f"__MACOSX/xlnet/._{path.name}", b"Mac OS X")
            (tmp_path / "given" / "__MACOSX" / f"._{path.name}").write_bytes(b"Mac OS X")
            path.with_name(f"._{path.name}").write_bytes(b"Mac OS X")
    for source in (archive, inner, inner.parent):
        for one, other in zip(imported(source, "official_xlnet")[0].get_weights(), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    with zipfile.ZipFile(tmp_path / "wrong.zip", "w") as packed:
        for path in sorted(inner.glob("xlnet_model*")):
            packed.write(path, f"xlnet/{path.name}")
        packed.writestr("xlnet/xlnet_config.json", "{")
    with pytest.raises(InputError, match=r"^\S+/wrong\.zip: xlnet_config.json"):
        open_checkpoint("official_xlnet", str(tmp_path / "wrong.zip"))


def test_a_config_of_2019(tmp_path, rng):
    """Without model_type and untie_r it is an XLNet's if the tensors are."""
    write_hugging_face(tmp_path, huggingface_tensors(random_weights(rng)))
    about = json.loads((tmp_path / "config.json").read_text())
    for name in ("model_type", "untie_r"):
        del about[name]
    (tmp_path / "config.json").write_text(json.dumps(about))
    assert open_checkpoint("huggingface", str(tmp_path)).config.family == "xlnet"


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_a_wrappers_prefix_is_left_out(tmp_path, rng, capsys, prefix):
    tensors = huggingface_tensors(random_weights(rng))
    write_hugging_face(tmp_path, {prefix + name: tensor for name, tensor in tensors.items()})
    file = open_checkpoint("huggingface", str(tmp_path)).file
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(file.read(name), tensor)
    said = f"{file.path}: {prefix} stands before all names of tensors, and is left out\n"
    assert capsys.readouterr().err == said
    files.write_safetensors(tmp_path / "model.safetensors", tensors | {f"{prefix}more": np.zeros(1)})
    assert f"{prefix}more" in open_checkpoint("huggingface", str(tmp_path)).file.shapes  # not before all of them


def test_a_model_one_folder_down_is_named(tmp_path, rng):
    write_hugging_face(tmp_path / "up/checkpoint-500", huggingface_tensors(random_weights(rng)))
    message = rf"{tmp_path}/up has no config\.json, but {tmp_path}/up/checkpoint-500 has: give that"
    with pytest.raises(InputError, match=message):
        open_checkpoint("huggingface", str(tmp_path / "up"))
    with pytest.raises(InputError, match=rf"up has no config\.json: {tmp_path}/up/checkpoint-500 has one"):
        load_trained(str(tmp_path / "up"))

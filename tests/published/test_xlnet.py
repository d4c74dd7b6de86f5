"""XLNet's published checkpoints, in both formats, against tests/references/reference_xlnet.py, and back out again."""

import collections
import dataclasses
import json
import pathlib
import zipfile

import numpy as np
import processes
import published_files as files
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models
import xlnet_tokens
from xlnet_files import (
    ANSWERS,
    B,
    D,
    H,
    M,
    N,
    T,
    V,
    huggingface_tensors,
    imported,
    official_tensors,
    random_weights,
    to_float32,
    write_hugging_face,
    write_official,
    write_zip,
)

from txl_tf import families
from txl_tf.data.vocabularies import ByteVocabulary, XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.published.huggingface.xlnet import export
from txl_tf.published.importing import configure, import_checkpoint, open_checkpoint
from txl_tf.published.layout import load
from txl_tf.published.vocabularies import read_xlnet_vocabulary
from txl_tf.runs.checkpoints import read_checkpoint, variables_by_path
from txl_tf.runs.model_dir import load_trained

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, status=0):
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def head_weights(rng, n_class=0):
    """Weights of a summary and C logits, or of an answer (n_class 0), by the reference's names."""

    def dense(name, rows, columns):
        return {f"{name}/kernel": 0.3 * rng.normal(size=[rows, columns]), f"{name}/bias": rng.normal(size=[columns])}

    if n_class:
        return to_float32(dense("summary", D, D) | dense("logits", D, n_class))
    weights = dense("start", D, 1) | dense("end/inner", 2 * D, D) | dense("end/outer", D, 1)
    weights |= {"end/norm/gamma": rng.normal(size=[D]), "end/norm/beta": rng.normal(size=[D])}
    weights |= dense("impossible/inner", 2 * D, D) | dense("impossible/outer", D, 1)
    del weights["impossible/outer/bias"]
    return to_float32(weights)


def assert_equal_to_the_reference(model, weights, rng, activation, **options):
    """Both streams in every layer, new memory and log-probabilities, with segments, memory, padding and an order."""
    inputs = {
        "tokens": rng.integers(0, V, [B, T]),
        "memory": [rng.normal(size=[B, M, D]) for _ in range(N)],
        "segments": rng.integers(0, 3, [B, T]),
        "visible": rng.random([B, T, T]) < 0.5,
        "real": np.arange(T) < np.array([[T], [T - 1]]),
        "targets": np.array([[0, 2, 5], [4, 1, -1]]),
    }
    rows = xlnet_models.read(model, **inputs)
    for b, row in enumerate(rows):
        lane = {name: value[b] for name, value in inputs.items() if name != "memory"}
        memory = [layer[b] for layer in inputs["memory"]]
        want = reference.xlnet(weights, memory=memory, mem_len=M, reuse_len=2, activation=activation, **lane, **options)
        for mine, theirs in zip(row, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)  # our angles are float32
        found = model.log_prob(tf.constant(row.output))
        np.testing.assert_allclose(found, reference.log_probs(weights, want.output), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("untie_r", "activation"), [(True, "gelu"), (False, "gelu"), (True, "relu")])
def test_official(tmp_path, rng, untie_r, activation):
    weights = random_weights(rng, untie_r=untie_r)
    write_official(tmp_path, official_tensors(weights), untie_r=untie_r, ff_activation=activation)
    model, config = imported(tmp_path, "official_xlnet", mem_len=M, reuse_len=2)
    function = {"gelu": reference.gelu_tanh, "relu": reference.relu}[activation]
    assert_equal_to_the_reference(model, weights, rng, function)
    assert (config.model.mem_init, config.model.layer_norm_epsilon) == ("zeros", 1e-12)
    assert (config.model.mem_len, config.model.reuse_len, config.objective.perm_size) == (384, 256, 256)
    assert config.data.bi_data and config.task == "permutation_lm"


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


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_huggingface(tmp_path, rng, name, activation):
    weights = random_weights(rng)
    own = {"ff_activation": activation, "layer_norm_eps": 1e-2, "clamp_len": 2, "bi_data": False, "dropout": 0.3}
    write_hugging_face(tmp_path, huggingface_tensors(weights), name, **own)
    model, config = imported(tmp_path, "huggingface", mem_len=M, reuse_len=2)
    functions = {"gelu": reference.gelu, "gelu_new": reference.gelu_tanh, "relu": reference.relu}
    assert_equal_to_the_reference(model, weights, rng, functions[activation], epsilon=1e-2, clamp_len=2)
    assert config.model.mem_init == "empty" and not config.data.bi_data
    told = configure(open_checkpoint("huggingface", str(tmp_path)), None, {}, {}).model
    assert (told.dropout, told.dropatt, told.mem_len, told.reuse_len) == (0.3, 0.3, 384, 256)


def test_huggingface_states_what_is_remembered(tmp_path, rng):
    """The order of a run that would be continued fits into what is remembered."""
    weights = random_weights(rng)
    write_hugging_face(tmp_path, huggingface_tensors(weights), mem_len=5, reuse_len=3)
    config = configure(open_checkpoint("huggingface", str(tmp_path)), None, {}, {})
    assert (config.model.mem_len, config.model.reuse_len, config.objective.perm_size) == (5, 3, 3)


def test_a_body_alone(tmp_path, rng):
    """XLNetModel's names have no prefix, and it has no bias of the softmax, whose weights stay as they begin."""
    weights = random_weights(rng)
    write_hugging_face(tmp_path / "hf", huggingface_tensors(weights, prefix=""))
    tensors = official_tensors(weights)
    for name in [name for name in tensors if "lm_loss" in name or "mask_emb" in name]:
        del tensors[name]
    write_official(tmp_path / "tf", tensors)
    for format, folder, lacking in (
        ("huggingface", "hf", ["lm_loss.bias"]),
        ("official_xlnet", "tf", ["model/transformer/mask_emb/mask_emb", "model/lm_loss/bias"]),
    ):
        checkpoint = open_checkpoint(format, str(tmp_path / folder))
        model = families.make_model(configure(checkpoint, None, {}, {}))
        assert load(model, checkpoint) == lacking
        np.testing.assert_array_equal(model.embedding.tables[0], weights["embedding"])
        assert not model.softmax.biases[0].numpy().any()


@pytest.mark.parametrize(
    ("format", "write", "tensors", "names"),
    [
        (
            "official_xlnet",
            write_official,
            official_tensors,
            ("model/transformer/layer_1/rel_attn/o/kernel", "model/transformer/layer_0/ff/layer_1/kernel"),
        ),
        (
            "huggingface",
            write_hugging_face,
            huggingface_tensors,
            ("transformer.layer.1.rel_attn.o", "transformer.layer.0.ff.layer_1.weight"),
        ),
    ],
)
def test_every_tensor_is_accounted_for(tmp_path, rng, format, write, tensors, names):
    tensors, (missing, reshaped) = tensors(random_weights(rng)), names
    del tensors[missing]
    tensors[reshaped] = np.zeros([D, 7], np.float32)
    tensors["model/transformer/surplus"] = np.zeros([2], np.float32)
    write(tmp_path, tensors)
    with pytest.raises(InputError) as error:
        imported(tmp_path, format)
    message = str(error.value)
    assert "\n" not in message
    assert f"1 missing: {missing};" in message
    assert "1 left over: model/transformer/surplus;" in message
    assert f"1 of another shape: {reshaped} [8, 7], expected [" in message


def test_the_softmax_is_tied(tmp_path, rng):
    tensors = huggingface_tensors(random_weights(rng))
    tensors["lm_loss.weight"] = tensors["transformer.word_embedding.weight"] + 1
    write_hugging_face(tmp_path, tensors)
    with pytest.raises(InputError, match=r"1 not equal.*: lm_loss.weight and transformer.word_embedding.weight"):
        imported(tmp_path, "huggingface")


HEADS = {
    "classification": ("XLNetForSequenceClassification", 3),
    "regression": ("XLNetForSequenceClassification", 1),
    "multiple_choice": ("XLNetForMultipleChoice", 1),
    "answering": ("XLNetForQuestionAnswering", 0),
}


def official_head(weights, task):
    """The variables of a fine-tuned model of the official code, without the language model's."""
    tensors = {
        name: tensor
        for name, tensor in official_tensors(weights).items()
        if "lm_loss" not in name and "mask_emb" not in name
    }
    scope = {"multiple_choice": "logits/dense"}.get(task, f"model/{task}_sts-b/logit")
    names = {ours: theirs.replace(".", "/") for ours, theirs in ANSWERS.items()}
    names |= {"summary": "model/sequnece_summary/summary", "logits": scope}
    for ours, theirs in names.items():
        for part in ("kernel", "bias"):
            if f"{ours}/{part}" in weights:
                tensors[f"{theirs}/{part}"] = weights[f"{ours}/{part}"].astype(np.float32)
    for part in ("gamma", "beta"):
        if f"end/norm/{part}" in weights:
            tensors[f"end_logits/LayerNorm/{part}"] = weights[f"end/norm/{part}"].astype(np.float32)
    return tensors


@pytest.mark.parametrize("format", ["huggingface", "official_xlnet"])
@pytest.mark.parametrize("task", HEADS)
def test_heads(tmp_path, rng, task, format):
    kind, n_class = HEADS[task]
    weights = random_weights(rng) | head_weights(rng, n_class)
    if format == "huggingface":
        write_hugging_face(
            tmp_path, huggingface_tensors(weights), architectures=[kind], summary_type="first", end_n_top=2
        )
    else:
        write_official(tmp_path, official_head(weights, task))
    model, config = imported(tmp_path, format)
    assert config.task == task
    tokens, segments = rng.integers(0, V, [B, T]), rng.integers(0, 3, [B, T])
    real = np.arange(T) >= np.array([[0], [2]])
    given = {"segments": tf.constant(segments), "padding": tf.constant(~real)}
    function = reference.gelu if format == "huggingface" else reference.gelu_tanh
    hidden = [
        reference.xlnet(weights, tokens[b], segments=segments[b], real=real[b], activation=function).output
        for b in range(B)
    ]
    if n_class:
        found = model(tf.constant(tokens), **given)
        where = "first" if format == "huggingface" else "last"
        wanted = [reference.summary_logits(weights, states, where) for states in hidden]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
        return
    cls_index, start = np.array([T - 1, T - 2]), np.array([3, 2])
    found = model(tf.constant(tokens), tf.constant(real), tf.constant(cls_index), tf.constant(start), **given)
    for b, states in enumerate(hidden):
        wanted = (
            reference.start_logits(weights, states, real[b]),
            reference.end_logits(weights, states, real[b], start[b]),
            reference.impossible_logit(weights, states, real[b], cls_index[b]),
        )
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine[b], theirs, rtol=0, atol=1e-6)
    assert config.model.end_n_top == (2 if format == "huggingface" else 5)


def test_an_official_summary_by_attention(tmp_path, rng):
    """All of its weights find their places; tests/models/test_heads.py has what is computed."""
    weights = random_weights(rng) | head_weights(rng, 3)
    tensors, scope = official_head(weights, "classification"), "model/sequnece_summary"
    kernels = {part: rng.normal(size=[D, H, 4]).astype(np.float32) for part in "qkvo"}
    tensors |= {f"{scope}/abs_attn/{part}/kernel": kernel for part, kernel in kernels.items()}
    vectors = {"summary_bias": "query", "abs_attn/LayerNorm/gamma": "attention_norm/gamma"}
    vectors |= {"abs_attn/LayerNorm/beta": "attention_norm/beta"}
    tensors |= {f"{scope}/{name}": rng.normal(size=[D]).astype(np.float32) for name in vectors}
    write_official(tmp_path, tensors)
    model, config = imported(tmp_path, "official_xlnet")
    assert config.model.summary_type == "attn"
    own = {path.partition("/")[2]: variable.numpy() for path, variable in variables_by_path(model).items()}
    for theirs, ours in vectors.items():
        np.testing.assert_array_equal(own[f"head/summary/{ours}"], tensors[f"{scope}/{theirs}"])
    np.testing.assert_array_equal(own["head/summary/attention/value_kernel"], kernels["v"])
    np.testing.assert_array_equal(own["head/summary/attention/output_kernel"], np.einsum("Dhd->hdD", kernels["o"]))
    with pytest.raises(InputError, match=r"Hugging Face's XLNet has no .*summary_type=attn"):
        export(files.not_saved(model, ByteVocabulary(range(V)), "classification"), str(tmp_path / "out"))


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
        ({"dropout": "much"}, "config.json: dropout must be of type float, got 'much'"),
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


def test_a_model_of_several_labels_at_once(tmp_path, rng):
    """Theirs has the tensors of a classifier, and says in config.json what it is; so does our export."""
    weights = random_weights(rng) | head_weights(rng, 3)
    named = {"problem_type": "multi_label_classification", "id2label": {"0": "b", "1": "a", "2": "c"}}
    write_hugging_face(tmp_path / "in", huggingface_tensors(weights), **named)
    model, config = imported(tmp_path / "in", "huggingface")
    assert config.task == "multi_label" and open_checkpoint("huggingface", str(tmp_path / "in")).labels == (
        "b",
        "a",
        "c",
    )
    objective = families.fine_tuning_of(config).objective(model, config)
    tokens = rng.integers(0, V, [1, T])
    batch = {"tokens": tokens, "segments": np.zeros([1, T], int), "padding": np.zeros([1, T], bool)}
    batch = {name: tf.constant(value) for name, value in batch.items()} | {"label": tf.constant([[1, 0, 1]])}
    hidden = reference.xlnet(weights, tokens[0], segments=np.zeros(T, int), activation=reference.gelu).output
    right = 1 / (1 + np.exp(-reference.summary_logits(weights, hidden, "last")))
    found = objective.outputs(batch)
    np.testing.assert_allclose(found["probabilities"][0], right, rtol=0, atol=1e-6)
    loss = -np.mean(np.log([right[0], 1 - right[1], right[2]]))
    np.testing.assert_allclose(found["loss"][0], loss, rtol=0, atol=1e-6)
    single = families.make_model(configure(open_checkpoint("huggingface", str(tmp_path / "in")), None, {}, {}))
    export(files.not_saved(single, ByteVocabulary(range(V)), "multi_label", ("b", "a", "c")), str(tmp_path / "out"))
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["problem_type"] == named["problem_type"] and told["id2label"] == named["id2label"]


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


def test_summaries_without_a_projection(tmp_path, rng):
    """Their class applies tanh all the same, unless summary_activation is null; an export says which it is."""
    weights = random_weights(rng) | head_weights(rng, 3)
    tensors = huggingface_tensors(weights)
    tensors = {name: tensor for name, tensor in tensors.items() if "summary" not in name}
    hidden = rng.normal(size=[B, T, D])
    for activation, function in (("tanh", np.tanh), (None, lambda value: value)):
        folder = tmp_path / str(activation)
        write_hugging_face(folder, tensors, summary_use_proj=False, summary_activation=activation)
        model, _ = imported(folder, "huggingface")
        wanted = function(hidden[:, -1]) @ weights["logits/kernel"] + weights["logits/bias"]
        np.testing.assert_allclose(model.head(tf.constant(hidden)), wanted, rtol=0, atol=1e-6)
        assert bool(open_checkpoint("huggingface", str(folder)).notes) == bool(activation)
    single = families.make_model(configure(open_checkpoint("huggingface", str(folder)), None, {}, {}))
    export(files.not_saved(single, ByteVocabulary(range(V)), "classification"), str(tmp_path / "out"))
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (told["summary_use_proj"], told["summary_activation"]) == (False, None)


def test_settings_that_older_and_odd_files_have(tmp_path, rng):
    """No model_type, untie_r that their classes ignore, no memory, bi_data: each is understood or said."""
    weights = random_weights(rng)
    write_hugging_face(tmp_path, huggingface_tensors(weights), untie_r=False, reuse_len=None, bi_data=True)
    about = json.loads((tmp_path / "config.json").read_text())
    del about["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(about))
    checkpoint = open_checkpoint("huggingface", str(tmp_path))
    assert checkpoint.unstated == ("mem_len", "reuse_len") and not checkpoint.notes
    model, config = imported(tmp_path, "huggingface", mem_len=M, reuse_len=2)
    assert_equal_to_the_reference(model, weights, rng, reference.gelu)
    assert config.data.bi_data and config.model.untie_r
    own = XLNet(dataclasses.replace(config.model, dtype="float32"))
    about = files.not_saved(own, ByteVocabulary(range(V)), "permutation_lm", bi_data=config.data.bi_data)
    export(about, str(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["bi_data"] is True
    write_hugging_face(tmp_path / "head", huggingface_tensors(weights | head_weights(rng, 2)), bi_data=True)
    checkpoint = open_checkpoint("huggingface", str(tmp_path / "head"))
    assert "bi_data is true" in checkpoint.notes[0]
    config = configure(checkpoint, None, {}, {})
    about = files.not_saved(
        families.make_model(config), ByteVocabulary(range(V)), config.task, bi_data=config.data.bi_data
    )
    export(about, str(tmp_path / "out2"))
    assert json.loads((tmp_path / "out2" / "config.json").read_text())["bi_data"] is True


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


def test_a_token_classifier_in_and_out(tmp_path, rng):
    """Its outputs are those of the reference; out again, tensors and names are the same."""
    weights = random_weights(rng)
    kernel, bias = rng.normal(size=[D, 4]), rng.normal(size=[4])
    tensors = {name: tensor for name, tensor in huggingface_tensors(weights).items() if "lm_loss" not in name}
    tensors |= {"classifier.weight": kernel.T.astype(np.float32), "classifier.bias": bias.astype(np.float32)}
    labels = {"0": "O", "1": "B-X", "2": "I-X", "3": "B-Y"}
    write_hugging_face(tmp_path, tensors, architectures=["XLNetForTokenClassification"], id2label=labels, reuse_len=3)
    model, config = imported(tmp_path, "huggingface")
    assert (config.task, config.model.n_class, config.model.reuse_len) == ("tagging", 4, 0)
    tokens, segments = rng.integers(0, V, [B, T]), rng.integers(0, 3, [B, T])
    real = np.arange(T) >= np.array([[0], [2]])
    found = model(tf.constant(tokens), segments=tf.constant(segments), padding=tf.constant(~real))
    for b in range(B):
        hidden = reference.xlnet(
            weights, tokens[b], segments=segments[b], real=real[b], activation=reference.gelu
        ).output
        np.testing.assert_allclose(found[b], hidden @ kernel + bias, rtol=0, atol=1e-5)
    single = families.make_model(config.replace(model={"dtype": "float32"}))
    load(single, open_checkpoint("huggingface", str(tmp_path)))
    about = files.not_saved(single, ByteVocabulary(range(V)), "tagging", tuple(labels.values()))
    export(about, str(tmp_path / "out"))
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["architectures"], written["id2label"]) == (["XLNetForTokenClassification"], labels)
    again, _ = imported(tmp_path / "out", "huggingface")
    for mine, other in zip(model.variables, again.variables, strict=True):
        np.testing.assert_array_equal(mine, other)

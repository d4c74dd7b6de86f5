"""XLNet's published checkpoints, in both formats, against tests/references/reference_xlnet.py."""

import dataclasses
import json

import numpy as np
import published_files as files
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models
from xlnet_files import (
    HEADS,
    B,
    D,
    H,
    M,
    N,
    T,
    V,
    head_weights,
    huggingface_tensors,
    imported,
    official_head,
    official_tensors,
    random_weights,
    write_hugging_face,
    write_official,
)

from txl_tf import families
from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.errors import InputError
from txl_tf.models.xlnet.model import XLNet
from txl_tf.published.huggingface.xlnet import export
from txl_tf.published.importing import configure, open_checkpoint
from txl_tf.published.layout import load
from txl_tf.runs.checkpoints import variables_by_path


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
    tokens = rng.integers(0, V, [1, T])
    batch = {"tokens": tokens, "segments": np.zeros([1, T], int), "padding": np.zeros([1, T], bool)}
    batch = {name: tf.constant(value) for name, value in batch.items()} | {"label": tf.constant([[1, 0, 1]])}
    hidden = reference.xlnet(weights, tokens[0], segments=np.zeros(T, int), activation=reference.gelu).output
    right = 1 / (1 + np.exp(-reference.summary_logits(weights, hidden, "last")))
    found = families.task_of(config).outputs(model, batch, config)
    np.testing.assert_allclose(found["probabilities"][0], right, rtol=0, atol=1e-6)
    loss = -np.mean(np.log([right[0], 1 - right[1], right[2]]))
    np.testing.assert_allclose(found["loss"][0], loss, rtol=0, atol=1e-6)
    single = families.make_model(configure(open_checkpoint("huggingface", str(tmp_path / "in")), None, {}, {}))
    export(files.not_saved(single, ByteVocabulary(range(V)), "multi_label", ("b", "a", "c")), str(tmp_path / "out"))
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["problem_type"] == named["problem_type"] and told["id2label"] == named["id2label"]


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

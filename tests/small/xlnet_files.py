"""Small XLNets with random weights as the files of both published codes, and what the importer makes of files."""

import collections
import dataclasses
import json
import zipfile

import numpy as np
import published_files as files
import reference_xlnet as reference

from txl_tf import families
from txl_tf.models.xlnet.model import XLNet
from txl_tf.published.importing import configure, open_checkpoint
from txl_tf.published.layout import load

B, T, M, P, V, D, H, N = 2, 6, 4, 3, 11, 8, 2, 2
OFFICIAL = {"d_head": 4, "d_inner": 12, "d_model": D, "ff_activation": "gelu", "n_head": H, "n_layer": N, "n_token": V}
PROJECTIONS = {"q": "query", "k": "key", "v": "value", "r": "position"}
BIASES = {"r_w_bias": "content_bias", "r_r_bias": "position_bias", "r_s_bias": "segment_bias"}
ANSWERS = {"start": "start_logits.dense", "end/inner": "end_logits.dense_0", "end/outer": "end_logits.dense_1"}
ANSWERS |= {"impossible/inner": "answer_class.dense_0", "impossible/outer": "answer_class.dense_1"}


def random_weights(rng, **options):
    """The reference's weights, exact in float32."""
    return to_float32(reference.random_weights(rng, options.pop("vocab_size", V), N, D, H, **options))


def to_float32(weights):
    if isinstance(weights, dict):
        return {name: to_float32(part) for name, part in weights.items()}
    if isinstance(weights, list):
        return [to_float32(part) for part in weights]
    return weights.astype(np.float32).astype(np.float64)


def huggingface_tensors(weights, prefix="transformer."):
    """A state_dict; which head is told by the weights."""
    tensors = {f"{prefix}word_embedding.weight": weights["embedding"]}
    tensors[f"{prefix}mask_emb"] = weights["mask_embedding"][None, None]
    for i, layer in enumerate(weights["layers"]):
        attention, feed_forward = f"{prefix}layer.{i}.rel_attn", f"{prefix}layer.{i}.ff"
        tensors |= {f"{attention}.{theirs}": layer[f"{ours}_kernel"] for theirs, ours in PROJECTIONS.items()}
        tensors[f"{attention}.o"] = np.einsum("hdD->Dhd", layer["output_kernel"])
        tensors |= {f"{attention}.{theirs}": layer[ours] for theirs, ours in BIASES.items()}
        tensors[f"{attention}.seg_embed"] = layer["segment_table"]
        for theirs, ours in (("weight", "gamma"), ("bias", "beta")):
            tensors[f"{attention}.layer_norm.{theirs}"] = layer[f"attention_norm/{ours}"]
            tensors[f"{feed_forward}.layer_norm.{theirs}"] = layer[f"feed_forward_norm/{ours}"]
        for theirs, ours in (("layer_1", "inner"), ("layer_2", "outer")):
            tensors[f"{feed_forward}.{theirs}.weight"] = layer[f"feed_forward/{ours}/kernel"].T
            tensors[f"{feed_forward}.{theirs}.bias"] = layer[f"feed_forward/{ours}/bias"]
    others = {"summary": "sequence_summary.summary", "logits": "logits_proj", "positions": "qa_outputs"}
    for ours, theirs in (ANSWERS | others).items():
        if f"{ours}/kernel" in weights:
            tensors[f"{theirs}.weight"] = weights[f"{ours}/kernel"].T
        if f"{ours}/bias" in weights:
            tensors[f"{theirs}.bias"] = weights[f"{ours}/bias"]
    if "end/norm/gamma" in weights:
        tensors["end_logits.LayerNorm.weight"] = weights["end/norm/gamma"]
        tensors["end_logits.LayerNorm.bias"] = weights["end/norm/beta"]
    if prefix and not {"start/kernel", "logits/kernel", "positions/kernel"} & set(weights):
        tensors["lm_loss.bias"] = weights["softmax_bias"]
    return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}


def write_hugging_face(folder, tensors, name="model.safetensors", **config):
    folder.mkdir(parents=True, exist_ok=True)
    if name == "model.safetensors":
        files.write_safetensors(folder / name, tensors)
    else:
        if "lm_loss.bias" in tensors:
            tensors = tensors | {"lm_loss.weight": tensors["transformer.word_embedding.weight"]}
        named, storages = files.as_torch(tensors)
        files.write_torch(folder / name, collections.OrderedDict(named), storages)
    about = {name: value for name, value in OFFICIAL.items() if name != "n_token"}
    about |= {"model_type": "xlnet", "vocab_size": V, "untie_r": True, "attn_type": "bi", "mem_len": None}
    (folder / "config.json").write_text(json.dumps(about | config))


def official_tensors(weights):
    """The official code's variables, with what its optimizer leaves beside them."""
    tensors = {"transformer/word_embedding/lookup_table": weights["embedding"]}
    tensors["transformer/mask_emb/mask_emb"] = weights["mask_embedding"][None, None]
    tensors["lm_loss/bias"] = weights["softmax_bias"]
    layers = weights["layers"]
    for theirs, ours in BIASES.items():
        tied = weights.get(ours)
        tensors[f"transformer/{theirs}"] = np.stack([layer[ours] for layer in layers]) if tied is None else tied
    tensors["transformer/seg_embed"] = np.stack([layer["segment_table"] for layer in layers])
    for i, layer in enumerate(layers):
        attention, feed_forward = f"transformer/layer_{i}/rel_attn", f"transformer/layer_{i}/ff"
        for theirs, ours in PROJECTIONS.items():
            tensors[f"{attention}/{theirs}/kernel"] = layer[f"{ours}_kernel"]
        tensors[f"{attention}/o/kernel"] = np.einsum("hdD->Dhd", layer["output_kernel"])
        for part in ("gamma", "beta"):
            tensors[f"{attention}/LayerNorm/{part}"] = layer[f"attention_norm/{part}"]
            tensors[f"{feed_forward}/LayerNorm/{part}"] = layer[f"feed_forward_norm/{part}"]
        for part in ("kernel", "bias"):
            tensors[f"{feed_forward}/layer_1/{part}"] = layer[f"feed_forward/inner/{part}"]
            tensors[f"{feed_forward}/layer_2/{part}"] = layer[f"feed_forward/outer/{part}"]
    tensors = {f"model/{name}": tensor.astype(np.float32) for name, tensor in tensors.items()}
    slots = {
        "model/lm_loss/bias/adam_m": np.zeros([V], np.float32),
        "model/lm_loss/bias/adam_v": np.ones([V], np.float32),
    }
    slots |= {"model/lm_loss/bias/Adam_1": np.ones([V], np.float32), "beta1_power": np.float32(0.9)}
    return tensors | slots | {"global_step": np.int64(7)}


def write_official(folder, tensors, **config):
    """The files of a published model, without its vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_tf(str(folder / "xlnet_model.ckpt"), tensors)
    (folder / "xlnet_config.json").write_text(json.dumps(OFFICIAL | {"untie_r": True} | config))


def write_zip(path, folder, form="xlnet_cased/{}"):
    """The files of a folder in a zip, in a folder of their own there, as the authors publish a model."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir()):
            packed.write(file, form.format(file.name))


def imported(source, format, **settings):
    """The model in float64 and its Config; what the model remembers is set as the test wants it."""
    checkpoint = open_checkpoint(format, str(source))
    config = configure(checkpoint, None, {"dtype": "float64", "dropout": 0.0, "dropatt": 0.0}, {})
    own = dataclasses.replace(config.model, **settings)
    model = XLNet(own) if settings else families.make_model(config)
    load(model, checkpoint)
    return model, config


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


HEADS = {
    "classification": ("XLNetForSequenceClassification", 3),
    "regression": ("XLNetForSequenceClassification", 1),
    "multiple_choice": ("XLNetForMultipleChoice", 1),
    "answering": ("XLNetForQuestionAnswering", 0),
}
"""Hugging Face's class and the number of outputs for each task; 0: an answer."""


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

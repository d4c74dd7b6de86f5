"""Not a test: XLNets that other code made, with results, against tests/references/reference_xlnet.py or our model.

    python tests/published/xlnet_oracles.py [--network=ours|imported] [--dtype=float32] FOLDER [FOLDER ..]

Each FOLDER holds cases, a folder each, of either kind:
    xlnet_config.json, xlnet_model.ckpt.*, *.npy    the official format: the tiny checkpoints of CyberZHG/keras-xlnet
    case.json, config.json, model.safetensors, ..   as huggingface_xlnet.py writes them

Prints the largest difference of every case: of all hidden states (both streams, every layer), of log-probabilities (or
of what a head returns) and of new memory. Exit status 1 where one is above --tolerance. "reference" and "ours" get the
weights by this file, in float64; "imported" is what txl_tf.published makes of the folder, heads included, and Hugging
Face's are exported again, where every tensor must have the bits that it came with.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf

sys.path.extend(str(pathlib.Path(__file__).parents[1] / name) for name in ("references", "small"))
import published_files
import reference_xlnet as reference

from txl_tf import families
from txl_tf.models.xlnet.model import Text
from txl_tf.objectives.answering import Answering

HUGGINGFACE_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
OFFICIAL_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
SIMPLE = "XLNetForQuestionAnsweringSimple"
ATTENTION = {"query_kernel": "q", "key_kernel": "k", "value_kernel": "v", "position_kernel": "r"}
BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias"}


def official_weights(read, n_layer, untie_r):
    """The reference's weights from the official code's.

    Args:
        read: a function from a name without "model/" to an array, or to None where there is no such variable.
        n_layer, untie_r: of xlnet_config.json.
    """
    mask, bias = read("transformer/mask_emb/mask_emb"), read("lm_loss/bias")
    weights = {"embedding": read("transformer/word_embedding/lookup_table"), "layers": []}
    weights |= {} if mask is None else {"mask_embedding": mask[0, 0]}
    weights |= {} if bias is None else {"softmax_bias": bias}
    biases = {ours: read(f"transformer/{theirs}") for ours, theirs in BIASES.items()}
    weights |= {} if untie_r else biases
    for i in range(n_layer):
        where = f"transformer/layer_{i}/"
        layer = {ours: read(f"{where}rel_attn/{theirs}/kernel") for ours, theirs in ATTENTION.items()}
        layer |= {name: bias[i] for name, bias in biases.items()} if untie_r else {}
        layer["output_kernel"] = read(f"{where}rel_attn/o/kernel").transpose(1, 2, 0)
        layer["segment_table"] = read("transformer/seg_embed")[i]
        for part in ("gamma", "beta"):
            layer[f"attention_norm/{part}"] = read(f"{where}rel_attn/LayerNorm/{part}")
            layer[f"feed_forward_norm/{part}"] = read(f"{where}ff/LayerNorm/{part}")
        for part in ("kernel", "bias"):
            layer[f"feed_forward/inner/{part}"] = read(f"{where}ff/layer_1/{part}")
            layer[f"feed_forward/outer/{part}"] = read(f"{where}ff/layer_2/{part}")
        weights["layers"].append(layer)
    return weights


def huggingface_weights(tensors, n_layer):
    """The reference's weights, heads included, from Hugging Face's state dict."""
    weights = {
        "embedding": tensors["transformer.word_embedding.weight"],
        "mask_embedding": tensors["transformer.mask_emb"][0, 0],
        "layers": [],
    }
    for i in range(n_layer):
        attention, inner = f"transformer.layer.{i}.rel_attn.", f"transformer.layer.{i}.ff."
        layer = {ours: tensors[attention + theirs] for ours, theirs in (ATTENTION | BIASES).items()}
        layer["output_kernel"] = tensors[attention + "o"].transpose(1, 2, 0)
        layer["segment_table"] = tensors[attention + "seg_embed"]
        for ours, theirs in (("gamma", "weight"), ("beta", "bias")):
            layer[f"attention_norm/{ours}"] = tensors[f"{attention}layer_norm.{theirs}"]
            layer[f"feed_forward_norm/{ours}"] = tensors[f"{inner}layer_norm.{theirs}"]
        for ours, theirs in (("inner", "layer_1"), ("outer", "layer_2")):
            layer[f"feed_forward/{ours}/kernel"] = tensors[f"{inner}{theirs}.weight"].T
            layer[f"feed_forward/{ours}/bias"] = tensors[f"{inner}{theirs}.bias"]
        weights["layers"].append(layer)
    dense = {
        "summary": "sequence_summary.summary",
        "logits": "logits_proj",
        "tags": "classifier",
        "start": "start_logits.dense",
        "end/inner": "end_logits.dense_0",
        "end/outer": "end_logits.dense_1",
        "impossible/inner": "answer_class.dense_0",
        "impossible/outer": "answer_class.dense_1",
        "positions": "qa_outputs",
    }
    for ours, theirs in dense.items():
        if f"{theirs}.weight" in tensors:
            weights[f"{ours}/kernel"] = tensors[f"{theirs}.weight"].T
        if f"{theirs}.bias" in tensors:
            weights[f"{ours}/bias"] = tensors[f"{theirs}.bias"]
    if "end_logits.LayerNorm.weight" in tensors:
        weights["end/norm/gamma"] = tensors["end_logits.LayerNorm.weight"]
        weights["end/norm/beta"] = tensors["end_logits.LayerNorm.bias"]
    if "lm_loss.bias" in tensors:
        weights["softmax_bias"] = tensors["lm_loss.bias"]
    return weights


def largest(found, expected):
    """The largest absolute difference of two arrays of one shape."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"{found.shape} instead of {expected.shape}"
    return float(np.abs(found - expected).max(initial=0))


def by_reference(weights, tokens, settings, memory=None, directions=None, **inputs):
    """A batch through tests/references/reference_xlnet.py: a list of Streams, one for each lane.

    Args:
        weights: the reference's.
        tokens: int [B, T].
        settings: mem_len, reuse_len, clamp_len, activation, epsilon of the reference; what is missing is its default.
        memory: N arrays [B, M, D], or None.
        directions: 1 or -1 for each lane; None: 1.
        inputs: the reference's others, with a first axis of lanes; None: as if not given.
    """
    functions = {"gelu_tanh": reference.gelu_tanh, "gelu": reference.gelu, "relu": reference.relu}
    settings = settings | {"activation": functions[settings["activation"]]}
    return [
        reference.xlnet(
            weights,
            tokens[b],
            memory=memory and [layer[b] for layer in memory],
            direction=1 if directions is None else directions[b],
            **{name: None if value is None else value[b] for name, value in inputs.items()},
            **settings,
        )
        for b in range(len(tokens))
    ]


def by_our_model(weights, tokens, settings, memory=None, directions=None, **inputs):
    """The same through our model, in float64; of `is_target` only the targets' rows."""
    import xlnet_models

    renamed = {name: value for name, value in settings.items() if name != "epsilon"}
    renamed["layer_norm_epsilon"] = settings.get("epsilon", 1e-12)
    model = xlnet_models.make_model(weights, mem_init="empty", **renamed)
    return xlnet_models.read(model, tokens, memory, directions=directions, **inputs)


def imported(folder, format, dtype, mem_len, reuse_len):
    """The model that the importer makes of a folder, without dropout, and the Checkpoint."""
    from txl_tf.models.xlnet.model import XLNet
    from txl_tf.published.importing import configure, open_checkpoint
    from txl_tf.published.layout import load

    checkpoint = open_checkpoint(format, str(folder))
    config = configure(checkpoint, None, {"dtype": dtype, "dropout": 0.0, "dropatt": 0.0}, {})
    settings = dataclasses.replace(config.model, mem_len=mem_len, reuse_len=reuse_len, mem_init="empty")
    if config.task == "permutation_lm":
        model = XLNet(settings)
    else:
        one_segment = {"max_segments": 1} if config.task == "tagging" else {}  # others may do without memory
        model = families.make_model(dataclasses.replace(config.replace(data=one_segment), model=settings))
    load(model, checkpoint)
    return model, checkpoint


def by_import(model, tokens, settings, memory=None, directions=None, **inputs):
    """A batch through an imported model, which has its own settings."""
    import xlnet_models

    del settings
    return xlnet_models.read(getattr(model, "body", model), tokens, memory, directions=directions, **inputs)


def log_probs(weights, hidden):
    """Log-probabilities by the reference, or by a model in place of weights."""
    if isinstance(weights, dict):
        return reference.log_probs(weights, hidden)
    return weights.log_prob(tf.constant(hidden, weights.compute_dtype)).numpy()


def imported_head_outputs(kind, model, arrays):
    """The outputs of an imported model's head for these inputs, by Hugging Face's names."""
    shape = arrays["input_ids_shape"]
    given = {
        "tokens": tf.constant(arrays["input_ids"].reshape(shape), tf.int32),
        "segments": tf.constant(arrays["token_type_ids"].reshape(shape), tf.int32),
        "padding": tf.constant(arrays["input_mask"].reshape(shape) == 1),
    }
    if kind == SIMPLE:
        nothing = tf.zeros([shape[0]], tf.int32)
        logits = model(allowed=tf.ones(shape, tf.bool), cls_index=nothing, start=nothing, **given)
        wanted = {name: tf.constant(arrays[f"{name}_positions"]) for name in ("start", "end")}
        loss = np.mean(Answering.losses(logits, wanted))
        return {"start_logits": logits.start.numpy(), "end_logits": logits.end.numpy(), "loss": loss}
    if kind != "XLNetForQuestionAnswering":
        logits = model(**given).numpy()
        return {"logits": logits[..., 0] if kind == "XLNetForMultipleChoice" else logits}
    given["allowed"], given["cls_index"] = tf.constant(arrays["p_mask"] == 0), tf.constant(arrays["cls_index"])
    hidden, _, _ = model.body(given["tokens"], text=Text(given["segments"], padding=given["padding"]))
    if "start_positions" in arrays:
        # Their loss: of the answer class they take the true beginning's state.
        start = tf.constant(arrays["start_positions"])
        logits = model(start=start, **given)
        states = (tf.gather(hidden, at, batch_dims=1) for at in (start, given["cls_index"]))
        logit = model.head.impossible_logit(*states).numpy()
        rows = np.arange(len(logit))
        losses = [
            -reference.log_softmax(part.numpy().astype(np.float64))[rows, arrays[name]]
            for part, name in ((logits.start, "start_positions"), (logits.end, "end_positions"))
        ]
        impossible = np.logaddexp(0, logit) - arrays["is_impossible"] * logit
        return {"loss": sum(map(np.mean, losses)) / 2 + np.mean(impossible) / 2}
    tops = model.config.start_n_top, model.config.end_n_top
    best = model.head.best(hidden, given["allowed"], given["cls_index"], *tops)
    flat = [len(logit := best.impossible.numpy()), -1]
    return {
        "start_top_index": best.start.numpy(),
        "start_top_log_probs": np.exp(best.start_log_prob.numpy()),  # theirs are probabilities, by ends, then starts
        "end_top_index": best.end.numpy().transpose(0, 2, 1).reshape(flat),
        "end_top_log_probs": np.exp(best.end_log_prob.numpy()).transpose(0, 2, 1).reshape(flat),
        "cls_logits": logit,
    }


def changed_by_export(model, checkpoint, expected):
    """Exports an imported model, and names the tensors that differ from those that it came from, bit for bit."""
    from txl_tf.data.vocabularies import ByteVocabulary
    from txl_tf.published.huggingface.xlnet import export
    from txl_tf.published.tensor_files import open_safetensors

    with tempfile.TemporaryDirectory() as folder:
        export(published_files.not_saved(model, ByteVocabulary(range(256)), checkpoint.config.task), folder)
        file = open_safetensors(f"{folder}/model.safetensors")
        names = set(file.shapes) ^ set(expected)
        return names | {
            name for name in set(file.shapes) & set(expected) if file.read(name).tobytes() != expected[name].tobytes()
        }


NETWORKS = {"reference": by_reference, "ours": by_our_model, "imported": by_import}


def compare_official(folder, network, dtype):
    """The differences of a case in the official format: {what: number}."""
    settings = json.loads((folder / "xlnet_config.json").read_text())
    reader = tf.train.load_checkpoint(str(folder / "xlnet_model.ckpt"))

    def read(name):
        name = f"model/{name}"
        return reader.get_tensor(name).astype(np.float64) if reader.has_tensor(name) else None

    weights = official_weights(read, settings["n_layer"], settings["untie_r"])
    arrays = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    tokens, is_target = arrays["input_ids"], arrays.get("input_query")
    t_len = tokens.shape[1]
    memory = [arrays[f"mems_{i}"] for i in range(settings["n_layer"])] if "mems_0" in arrays else None
    if network == "imported":
        weights, _ = imported(folder, "official_xlnet", dtype, memory[0].shape[1] if memory else 0, 0)
    # The results were made with attn_type "uni"; with a query stream, no position saw itself.
    visible = np.tril(np.ones([t_len, t_len], bool), 0 if is_target is None else -1)
    rows = NETWORKS[network](
        weights,
        tokens,
        {"mem_len": memory[0].shape[1] if memory else 0, "activation": OFFICIAL_ACTIVATIONS[settings["ff_activation"]]},
        memory=memory,
        segments=arrays["seg_ids"],
        visible=[visible] * len(tokens),
        is_target=is_target,
    )
    differences = collections.Counter()
    for b, streams in enumerate(rows):
        output, expected = streams.output, arrays[f"{folder.name}_output"][b]
        if is_target is not None:
            output = np.exp(log_probs(weights, output))
            expected = expected if network == "reference" else expected[is_target[b] == 1]
        kind = "hidden" if is_target is None else "probabilities"
        differences[kind] = max(differences[kind], largest(output, expected))
        for i, layer in enumerate(streams.memory if memory else []):
            expected = arrays[f"{folder.name}_new_mems_{i}"][b]
            differences["memory"] = max(differences["memory"], largest(layer, expected))
    return dict(differences)


def rows_of(network, arrays, weights, settings, memory):
    """A step's inputs through a network: a list of Streams."""
    mapping, batch_size = arrays.get("target_mapping"), len(arrays["input_ids"])
    targets = mapping
    if mapping is not None:
        targets = [[int(row.argmax()) if row.any() else -1 for row in lane] for lane in mapping]
    own = {
        "clamp_len": settings["clamp_len"],
        "mem_len": settings["mem_len"] or 0,
        "reuse_len": settings["reuse_len"] or 0,
        "activation": HUGGINGFACE_ACTIVATIONS[settings["ff_activation"]],
        "epsilon": settings["layer_norm_eps"],
    }
    directions = [reference.direction(b, batch_size, settings["bi_data"]) for b in range(batch_size)]
    return NETWORKS[network](
        weights,
        arrays["input_ids"],
        own,
        memory=memory,
        segments=arrays.get("token_type_ids"),
        visible=arrays["perm_mask"] == 0 if "perm_mask" in arrays else None,
        real=arrays["input_mask"] == 0 if "input_mask" in arrays else None,
        targets=targets,
        directions=directions if settings["bi_data"] else None,
    )


def hidden_states(streams):
    """In Hugging Face's order: h and g of each layer, one layer after the other, the embeddings first."""
    if not streams.query:
        return streams.content
    return [hidden for pair in zip(streams.content, streams.query, strict=True) for hidden in pair]


def answering(weights, hidden, arrays, settings):
    """What Hugging Face's question answering returns of a batch [B, T, D], in its own order of beams."""
    found = collections.defaultdict(list)
    for b, states in enumerate(hidden):
        allowed, cls_index = arrays["p_mask"][b] == 0, arrays["cls_index"][b]
        begin = reference.start_logits(weights, states, allowed)
        if "start_positions" in arrays:
            start, end = arrays["start_positions"][b], arrays["end_positions"][b]
            found["starts"].append(-reference.log_softmax(begin)[start])
            found["ends"].append(-reference.log_softmax(reference.end_logits(weights, states, allowed, start))[end])
            pair = np.concatenate([states[start], states[cls_index]]) @ weights["impossible/inner/kernel"]
            logit = np.tanh(pair + weights["impossible/inner/bias"]) @ weights["impossible/outer/kernel"]
            found["classes"].append(np.logaddexp(0, logit[0]) - arrays["is_impossible"][b] * logit[0])
            continue
        starts = np.argsort(-begin)[: settings["start_n_top"]]
        found["start_top_index"].append(starts)
        found["start_top_log_probs"].append(np.exp(reference.log_softmax(begin))[starts])
        ends = [reference.end_logits(weights, states, allowed, start) for start in starts]
        best = np.stack([np.argsort(-logits)[: settings["end_n_top"]] for logits in ends], axis=1)
        found["end_top_index"].append(best.ravel())
        probabilities = np.exp(reference.log_softmax(np.stack(ends)))
        found["end_top_log_probs"].append(probabilities[np.arange(len(starts)), best].ravel())
        found["cls_logits"].append(reference.impossible_logit(weights, states, allowed, cls_index))
    if "starts" in found:
        return {"loss": (np.mean(found["starts"]) + np.mean(found["ends"])) / 2 + np.mean(found["classes"]) / 2}
    return dict(found)


def head_outputs(kind, weights, hidden, arrays, settings):
    """The outputs of a head for a batch's last hidden states [B, T, D], by Hugging Face's names."""
    if kind == "XLNetLMHeadModel":
        return {}
    if kind == "XLNetForQuestionAnswering":
        return answering(weights, hidden, arrays, settings)
    if kind == SIMPLE:
        logits = np.stack(hidden) @ weights["positions/kernel"] + weights["positions/bias"]
        found, rows = {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}, np.arange(len(logits))
        losses = [
            -reference.log_softmax(found[f"{name}_logits"])[rows, arrays[f"{name}_positions"]]
            for name in ("start", "end")
        ]
        return found | {"loss": np.mean(losses)}
    if kind == "XLNetForTokenClassification":
        return {"logits": np.stack([states @ weights["tags/kernel"] + weights["tags/bias"] for states in hidden])}
    logits = np.stack([reference.summary_logits(weights, states, settings["summary_type"]) for states in hidden])
    if kind == "XLNetForMultipleChoice":
        logits = logits.reshape(arrays["input_ids_shape"][:2])
    found = {"logits": logits}
    if "labels" in arrays:
        labels = arrays["labels"]
        if logits.shape[1] == 1:
            found["loss"] = np.mean((logits[:, 0] - labels) ** 2)
        elif settings.get("problem_type") == "multi_label_classification":
            found["loss"] = np.mean(np.logaddexp(0, logits) - labels * logits)
        else:
            found["loss"] = -np.mean(reference.log_softmax(logits)[np.arange(len(labels)), labels])
    return found


def compare_huggingface(folder, network, dtype):
    """The differences of a case of huggingface_xlnet.py: {what: number}."""
    from txl_tf.published.tensor_files import open_safetensors

    case, settings = (json.loads((folder / name).read_text()) for name in ("case.json", "config.json"))
    file = open_safetensors(str(folder / "model.safetensors"))
    stored = {name: file.read(name) for name in file.shapes}
    weights = huggingface_weights({name: part.astype(np.float64) for name, part in stored.items()}, settings["n_layer"])
    differences, memory = collections.Counter(), None
    if network == "imported":
        reach = [settings[name] or 0 for name in ("mem_len", "reuse_len")]
        changed = changed_by_export(*imported(folder, "huggingface", "float32", *reach), stored)
        if changed:
            raise SystemExit(f"{folder}: exported otherwise than imported: {sorted(changed)}")
        weights, _ = imported(folder, "huggingface", dtype, *reach)
    for step in range(case["steps"]):
        arrays = dict(np.load(folder / f"step-{step}.npz"))
        arrays["input_ids_shape"] = arrays["input_ids"].shape
        for name in ("input_ids", "input_mask", "token_type_ids"):
            if name in arrays:
                arrays[name] = arrays[name].reshape(-1, arrays[name].shape[-1])
        batch_size = len(arrays["input_ids"])
        if memory is None and settings["mem_len"] and case["start"] == "zeros":
            memory = [np.zeros([batch_size, settings["mem_len"], settings["d_model"]])] * settings["n_layer"]
        rows = rows_of(network, arrays, weights, settings, memory)
        memory = [np.stack(layer) for layer in zip(*(row.memory for row in rows), strict=True)]

        def note(kind, found, name, arrays=arrays):
            differences[kind] = max(differences[kind], largest(found, arrays[f"out/{name}"]))

        for i, hidden in enumerate(zip(*map(hidden_states, rows), strict=True)):
            note("hidden", np.stack(hidden), f"hidden_{i}")
        if settings["mem_len"]:
            for i, layer in enumerate(memory):
                note("memory", layer, f"mems_{i}")
        output = np.stack([row.output for row in rows])
        if case["class"] == "XLNetLMHeadModel":
            arrays["out/log_probs"] = reference.log_softmax(arrays["out/logits"])
            note("log_probs", log_probs(weights, output), "log_probs")
        if network != "imported":
            heads = head_outputs(case["class"], weights, output, arrays, settings)
        elif case["class"] == "XLNetLMHeadModel":
            heads = {}
        else:
            heads = imported_head_outputs(case["class"], weights, arrays)
        for name, found in heads.items():
            note("head", found, name)
    return dict(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER", help="where cases are")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="largest difference that is allowed")
    parser.add_argument("--network", choices=NETWORKS, default="reference", help="what the results are compared with")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="of imported models")
    args = parser.parse_args()
    worst = 0.0
    for folder in args.folders:
        for case in sorted(path for path in folder.iterdir() if path.is_dir()):
            compare = compare_huggingface if (case / "case.json").exists() else compare_official
            differences = compare(case, args.network, args.dtype)
            print(
                f"{case.name:28}" + "".join(f"  {name} {value:.1e}" for name, value in differences.items()), flush=True
            )
            worst = max(worst, *differences.values())
    print(f"largest difference {worst:.1e}")
    sys.exit(worst > args.tolerance)


if __name__ == "__main__":
    main()

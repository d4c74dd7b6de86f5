"""Not a test: XLNets that other code made, with results, against tests/references/reference_xlnet.py or our model.

    python tests/published/xlnet_oracles.py [--network=ours|imported] [--dtype=float32] FOLDER [FOLDER ..]

Each FOLDER holds cases, a folder each, of either kind:
    xlnet_config.json, xlnet_model.ckpt.*, *.npy    the official format: the tiny checkpoints of CyberZHG/keras-xlnet
    case.json, config.json, model.safetensors, ..   as huggingface_xlnet.py writes them

Prints the largest difference of every case: of all hidden states (both streams, every layer), of log-probabilities (or
of what a head returns) and of new memory. Exit status 1 where one is above --tolerance. "reference" and "ours" get the
weights by oracle_weights.py, in float64; "imported" is what txl_tf.published makes of the folder, heads included, and
Hugging Face's are exported again, where every tensor must have the bits that it came with.
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
from oracle_heads import head_outputs, imported_head_outputs
from oracle_weights import huggingface_weights, official_weights

from txl_tf import families

HUGGINGFACE_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
OFFICIAL_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}


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

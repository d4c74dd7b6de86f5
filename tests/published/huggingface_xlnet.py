"""Not a test: XLNets of Hugging Face's transformers with random weights, and what they make of given inputs.

    python -m venv hf && hf/bin/pip install torch transformers==4.35.2 'numpy<2' safetensors
    hf/bin/python tests/published/huggingface_xlnet.py FOLDER

Needs PyTorch and transformers 4, and nothing of this project. With --compare, FOLDER has a model that was fine-tuned
here and exported by `tuned_xlnet.py`. The program prints the largest difference of Hugging Face's predictions, and its
exit status is 1 if this is above 1e-5. Without --compare, every case becomes a folder of its own:

    config.json, model.safetensors, pytorch_model.bin    as save_pretrained writes them, float32
    case.json                                             class, settings of the case, number of steps
    step-I.npz                                            inputs by argument, and outputs as out/NAME, batch-major

The weights are large (normal, 0.2; norms and biases, too), so that every term counts. Computed in float64, the
sinusoids as well. `xlnet_oracles.py` compares other code with these files.
"""

import itertools
import json
import pathlib
import sys
from unittest import mock

import numpy as np
import torch
import transformers

B, T, P, V, SCALE = 4, 12, 4, 37, 0.2
SIZES = {"vocab_size": V, "d_model": 16, "n_layer": 3, "n_head": 2, "d_inner": 24, "ff_activation": "gelu_new"}


def network(kind, seed, **settings):
    """A model of class `kind` in float64, its weights exact in float32."""
    config = transformers.XLNetConfig(
        **SIZES | {"dropout": 0.0, "summary_last_dropout": 0.0, "mem_len": None} | settings
    )
    model = getattr(transformers, kind)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(SCALE * torch.randn(weight.shape, generator=generator, dtype=torch.float32))
            if name.endswith(("norm.weight", "LayerNorm.weight")):
                weight.add_(1)
    return model


def batch(draw, steps=1, **inputs):
    """The inputs of some steps; each of `inputs` is a value, or a function of `draw` that makes one."""
    return [
        {"input_ids": draw.integers(0, V, [B, T])}
        | {name: value(draw) if callable(value) else value for name, value in inputs.items()}
        for _ in range(steps)
    ]


def permutation(halves):
    """perm_mask, 1 = hidden, by random factorization orders; with halves the second sees all of the first."""

    def make(draw):
        hidden = np.zeros([B, T, T])
        cuts = [0, T // 2, T] if halves else [0, T]
        for b in range(B):
            for begin, end in itertools.pairwise(cuts):
                place = draw.permutation(end - begin)
                place[place < (end - begin) // 3] = -1  # context: seen by all, sees context
                hidden[b, begin:end, end:] = 1
                for i in range(begin, end):
                    for j in range(begin, end):
                        before = place[j - begin] < max(place[i - begin], 0)
                        hidden[b, i, j] = not before
        return hidden

    return make


def mapping(padded=0):
    """target_mapping: P rows at random positions in ascending order, the last `padded` of them zeros."""

    def make(draw):
        rows = np.zeros([B, P, T])
        for b in range(B):
            for p, position in enumerate(sorted(draw.choice(T, P, replace=False))[: P - padded]):
                rows[b, p, position] = 1
        return rows

    return make


def segments(draw):
    """Three segments in a row, of random lengths."""
    cuts = np.sort(draw.integers(1, T, [B, 2]), axis=1)
    return (np.arange(T)[None] >= cuts[:, :1]).astype(int) + (np.arange(T)[None] >= cuts[:, 1:])


def left_padding(draw):
    """input_mask, 1 = padding, on the left; no row is all padding."""
    return (np.arange(T)[None] < draw.integers(0, T // 2, [B, 1])).astype(float)


def right_padding(draw):
    """The same on the right."""
    return left_padding(draw)[:, ::-1].copy()


PREDICTING = {"perm_mask": permutation(halves=False), "target_mapping": mapping()}
HALVES = {"perm_mask": permutation(halves=True), "target_mapping": mapping(padded=1)}
LM = {
    "content": ({}, {}, 1),
    "permuted_content": ({}, {"perm_mask": permutation(halves=False)}, 1),
    "permutation": ({}, PREDICTING, 1),
    "padded_predictions": ({}, {**PREDICTING, "target_mapping": mapping(padded=2)}, 1),
    "no_mask_with_predictions": ({}, {"target_mapping": mapping()}, 1),
    "memory": ({"mem_len": 10}, PREDICTING, 3),
    "memory_one_stream": ({"mem_len": 16}, {}, 3),
    "memory_grows_from_nothing": ({"mem_len": 20}, PREDICTING, 3),
    "reuse": ({"mem_len": 10, "reuse_len": 6}, HALVES, 3),
    "segments": ({}, {**PREDICTING, "token_type_ids": segments}, 1),
    "segments_and_memory": ({"mem_len": 10}, {**PREDICTING, "token_type_ids": segments}, 3),
    "bi_data": ({"bi_data": True}, PREDICTING, 1),
    "bi_data_and_memory": ({"bi_data": True, "mem_len": 10}, PREDICTING, 3),
    "left_padding": ({}, {"input_mask": left_padding, "token_type_ids": segments}, 1),
    "right_padding": ({}, {"input_mask": right_padding}, 1),
    "padding_and_permutation": ({"mem_len": 10}, {**PREDICTING, "input_mask": right_padding}, 3),
    "clamp_len": ({"clamp_len": 5, "mem_len": 10}, PREDICTING, 3),
    "clamp_len_and_bi_data": ({"clamp_len": 3, "bi_data": True, "mem_len": 10}, PREDICTING, 2),
    "gelu_with_erf": ({"ff_activation": "gelu"}, PREDICTING, 1),
    "relu": ({"ff_activation": "relu"}, PREDICTING, 1),
    "pretraining": (
        {"mem_len": 10, "reuse_len": 6, "bi_data": True},
        {**HALVES, "token_type_ids": segments},
        3,
    ),
}
"""XLNetLMHeadModel: case -> (config, inputs, steps)."""

CLASSIFIED = {"input_mask": left_padding, "token_type_ids": segments}
HEADS = {
    "classification": ("XLNetForSequenceClassification", {"num_labels": 3}, {"labels": np.array([0, 2, 1, 2])}),
    "classification_first": ("XLNetForSequenceClassification", {"num_labels": 3, "summary_type": "first"}, {}),
    "classification_mean": ("XLNetForSequenceClassification", {"num_labels": 3, "summary_type": "mean"}, {}),
    "regression": (
        "XLNetForSequenceClassification",
        {"num_labels": 1},
        {"labels": np.array([0.5, -1.0, 2.0, 0.0])},
    ),
    "multi_label": (
        "XLNetForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        {"labels": np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])},
    ),
    "multiple_choice": ("XLNetForMultipleChoice", {}, {"labels": np.array([1, 0])}),
    "tagging": ("XLNetForTokenClassification", {"num_labels": 5}, {}),
    "answering": ("XLNetForQuestionAnswering", {"start_n_top": 3, "end_n_top": 2}, {}),
    "simple_answering": (
        "XLNetForQuestionAnsweringSimple",
        {},
        {"start_positions": np.array([7, 11, 3, 5]), "end_positions": np.array([9, 11, 0, 6])},
    ),
    "answering_in_training": ("XLNetForQuestionAnswering", {"start_n_top": 3, "end_n_top": 2}, {}),
}


def head_inputs(name, draw):
    """The inputs of a case of HEADS besides its labels."""
    if not name.startswith("answering"):
        (inputs,) = batch(draw, **CLASSIFIED)
        if name == "multiple_choice":  # two questions of two options
            inputs = {key: value.reshape(2, 2, T) for key, value in inputs.items()}
        return inputs
    (inputs,) = batch(draw, input_mask=right_padding, token_type_ids=segments)
    length = (inputs["input_mask"] == 0).sum(1)
    inputs["cls_index"] = length - 1
    at = np.arange(T)[None]
    inputs["p_mask"] = 1.0 - ((at < (length - 3)[:, None]) | (at == inputs["cls_index"][:, None]))
    if name == "answering_in_training":
        inputs["start_positions"] = np.array([0, 1, 0, length[3] - 1])
        inputs["end_positions"] = np.array([1, 2, 0, length[3] - 1])
        inputs["is_impossible"] = np.array([0.0, 0.0, 0.0, 1.0])
    return inputs


def tensors(inputs):
    """The inputs as PyTorch wants them."""
    return {name: torch.from_numpy(np.asarray(value)) for name, value in inputs.items()}


def outputs(result):
    """The arrays of a result, batch-major: hidden states and mems by layer."""
    arrays = {}
    for name, value in result.items():
        if name == "mems":
            arrays |= {f"out/mems_{i}": memory.numpy().transpose(1, 0, 2) for i, memory in enumerate(value)}
        elif name == "hidden_states":
            arrays |= {f"out/hidden_{i}": hidden.numpy() for i, hidden in enumerate(value)}
        else:
            arrays["out/" + name] = value.numpy()
    return arrays


def write(folder, kind, seed, settings, steps, zero_mems):
    """Runs one case and writes its folder."""
    model = network(kind, seed, **settings)
    folder.mkdir(parents=True)
    model.save_pretrained(folder, safe_serialization=False)
    model.save_pretrained(folder, safe_serialization=True)
    model = model.double()
    torch.set_default_dtype(torch.float64)
    remembers = settings.get("mem_len") is not None
    d_model, n_layer, mem_len = SIZES["d_model"], SIZES["n_layer"], settings.get("mem_len")
    mems = [torch.zeros(mem_len, B, d_model)] * n_layer if remembers and zero_mems else None
    for i, inputs in enumerate(steps):
        # torch.float is what the sinusoids are computed in.
        with torch.no_grad(), mock.patch.object(torch, "float", torch.float64):
            result = model(
                **tensors(inputs), mems=mems, use_mems=remembers, output_hidden_states=True, return_dict=True
            )
        arrays = outputs(result)
        if remembers:
            mems = list(result["mems"])
        np.savez(folder / f"step-{i}.npz", **inputs, **arrays)
    torch.set_default_dtype(torch.float32)
    about = {"class": kind, "steps": len(steps), "start": "zeros" if zero_mems else "empty", "settings": settings}
    (folder / "case.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{folder.name}: {kind}, {len(steps)} steps")


def main(folder):
    transformers.logging.set_verbosity_error()
    for seed, (name, (settings, inputs, steps)) in enumerate(LM.items()):
        draw = np.random.default_rng(seed)
        write(
            folder / name,
            "XLNetLMHeadModel",
            seed,
            settings,
            batch(draw, steps, **inputs),
            zero_mems=name != "memory_grows_from_nothing",
        )
    for seed, (name, (kind, settings, labels)) in enumerate(HEADS.items(), 100):
        draw = np.random.default_rng(seed)
        write(folder / name, kind, seed, settings, [head_inputs(name, draw) | labels], zero_mems=False)


def compare(folder):
    """The largest difference between our predictions and the exported model's: of probabilities, scores and positions.

    None if the model cannot be loaded as it is.
    """
    (kind,) = json.loads((folder / "config.json").read_text())["architectures"]
    model, loading = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    if any(loading.values()):
        print(f"{folder}: not loaded as it is: {loading}")
        return None
    arrays = dict(np.load(folder / "predicted.npz"))
    given = {name: value for name, value in arrays.items() if not name.startswith("out/")}
    ours = {name.removeprefix("out/"): value for name, value in arrays.items() if name.startswith("out/")}
    ours = {name: np.exp(value) if "log_prob" in name else value for name, value in ours.items()}
    if kind == "XLNetForQuestionAnsweringSimple":  # which takes neither
        excluded, cls = given.pop("p_mask"), given.pop("cls_index")
    with torch.no_grad():
        result = model.eval()(**tensors(given), return_dict=True)
    if "score" in ours:
        theirs = {"score": result["logits"][:, 0]}
    elif "log_probs" in ours:
        theirs = {"log_probs": result["logits"].softmax(-1)}
    elif "probabilities" in ours:
        theirs = {"probabilities": result["logits"].sigmoid()}
    elif kind == "XLNetForQuestionAnsweringSimple":
        hides, rows = torch.from_numpy(excluded == 1), torch.arange(len(excluded))
        starts, ends = (result[f"{name}_logits"].masked_fill(hides, -1e30).softmax(-1) for name in ("start", "end"))
        at_start, at_end = (torch.from_numpy(ours[name]).long() for name in ("start", "end"))
        theirs = {"start_log_prob": starts.gather(1, at_start), "impossible": starts[rows, cls] * ends[rows, cls]}
        theirs["end_log_prob"] = ends[:, None].expand(-1, at_end.shape[1], -1).gather(2, at_end)
        ours["end_log_prob"] = np.where(ours["end_log_prob"] > 0, ours["end_log_prob"], theirs["end_log_prob"])
        ours["impossible"] = 1 / (1 + np.exp(-ours["impossible"]))
    else:  # theirs are probabilities, by ends, then starts
        shape = [len(ours["start"]), -1, ours["start"].shape[1]]
        ends = [result[f"end_top_{name}"].reshape(shape).transpose(1, 2) for name in ("index", "log_probs")]
        theirs = {"start": result["start_top_index"], "start_log_prob": result["start_top_log_probs"]}
        theirs |= {"end": ends[0], "end_log_prob": ends[1], "impossible": result["cls_logits"].sigmoid()}
        ours["impossible"] = 1 / (1 + np.exp(-ours["impossible"]))
    worst = 0.0
    for name, value in theirs.items():
        # The order of positions that are not allowed is arbitrary.
        possible = ours.get(f"{name}_log_prob", np.ones(ours[name].shape)) > 0
        worst = max(worst, np.abs(ours[name] - value.numpy())[possible].max())
    print(f"{folder}: {kind}, {len(given['input_ids'])} examples, largest difference {worst:.2e}")
    return worst


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        differences = [compare(pathlib.Path(folder)) for folder in sys.argv[2:]]
        sys.exit(any(difference is None or difference > 1e-5 for difference in differences))
    main(pathlib.Path(sys.argv[1]))

"""Not a test: writes the models of this folder with Hugging Face's TensorFlow classes; README.md has the command."""

import pathlib
import shutil

import numpy as np
import tensorflow as tf
import transformers

HERE = pathlib.Path(__file__).parent
B, T, SCALE = 2, 6, 0.3
XLNET = {"vocab_size": 37, "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 12, "ff_activation": "gelu_new"}
TRANSFO_XL = {
    "vocab_size": 37,
    "cutoffs": [11, 23],
    "d_model": 8,
    "d_embed": 8,
    "n_head": 2,
    "d_head": 4,
    "d_inner": 12,
    "n_layer": 2,
    "div_val": 2,
    "mem_len": 5,
    "clamp_len": 7,
}
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
MODELS = {
    "xlnet_lm": ("TFXLNetLMHeadModel", {"mem_len": 10}, 2),
    "xlnet_body": ("TFXLNetModel", {"mem_len": 10}, 2),
    "xlnet_classifier": ("TFXLNetForSequenceClassification", LABELS, 1),
    "xlnet_tagger": ("TFXLNetForTokenClassification", LABELS, 1),
    "xlnet_choice": ("TFXLNetForMultipleChoice", {}, 1),
    "xlnet_answers": ("TFXLNetForQuestionAnsweringSimple", {}, 1),
    "transfo_xl_lm": ("TFTransfoXLLMHeadModel", {}, 2),
    "transfo_xl_tied": ("TFTransfoXLLMHeadModel", {}, 2),
    "transfo_xl_body": ("TFTransfoXLModel", {}, 2),
    "transfo_xl_classifier": ("TFTransfoXLForSequenceClassification", {}, 0),
}
"""By folder: class, settings, and how many segments are read one after the other."""


def made(name, number):
    kind, settings, steps = MODELS[name]
    is_xlnet, draw = "XLNet" in kind, np.random.default_rng(number)
    config_class = transformers.XLNetConfig if is_xlnet else transformers.TransfoXLConfig
    config = config_class(**(XLNET if is_xlnet else TRANSFO_XL) | {"pad_token_id": 0} | settings)
    model = getattr(transformers, kind)(config)
    shape = (B, 2, T) if "Choice" in kind else (B, T)
    batches = [draw.integers(3, config.vocab_size, shape).astype(np.int32) for _ in range(max(steps, 1))]
    model(batches[0])
    for weight in model.weights:
        value = SCALE * draw.normal(size=weight.shape)
        weight.assign(value + (1 if "norm" in weight.name.lower() and "gamma" in weight.name else 0))
    if name == "transfo_xl_tied":  # as in models of the PyTorch class, which ties; the TensorFlow class does not
        by_name = {weight.name.split("/", 1)[1]: weight for weight in model.weights}
        for i in range(3):
            table = by_name[f"transformer/word_emb/emb_layers_._{i}/embeddings:0"]
            by_name[f"crit/out_layers_._{i}_._weight:0"].assign(table)
            if i:
                by_name[f"crit/out_projs_._{i}:0"].assign(by_name[f"transformer/word_emb/emb_projs_._{i}:0"])
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    found, mems = {}, None
    for step, ids in enumerate(batches[:steps]):
        given = {"use_mems": True} if is_xlnet and steps > 1 else {}
        out = model(ids, mems=mems, **given) if steps > 1 else model(ids)
        mems = out.get("mems")
        found[f"ids_{step}"] = ids
        for key, value in out.items():
            if key != "mems":
                found[f"{key}_{step}"] = value.numpy()
            elif steps > 1:
                found |= {f"mems_{step}_{i}": one.numpy() for i, one in enumerate(value)}
    if found:
        np.savez_compressed(folder / "expected.npz", **found)
    print(kind, sum(tf.size(weight).numpy() for weight in model.weights), {k: v.shape for k, v in found.items()})


if __name__ == "__main__":
    for place, folder in enumerate(MODELS):
        made(folder, place)

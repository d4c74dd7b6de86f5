r"""Measures fine-tuning and prediction of an XLNet classifier beside Hugging Face's, in alternating rounds.

    python evidence/bench/finetune.py --peer=huggingface=PYTHON

The workload: two layers with the widths of a published XLNet, or narrow ones, two classes, T 128 and 512, two segments,
padding on the left of up to a quarter of a sequence, float32. Training has dropout and dropatt 0.1, Adam and clipping
by the global norm. `ours_bfloat16` is the same in mixed bfloat16.

train.py tells how to create the environment of the peer and how rounds alternate. One JSON line has, for each of the
tasks train_128, train_512, predict_128 and predict_512, tokens per second, padding included, and their ratios.
Hugging Face draws a dropout mask of the positions for each lane, ours has one for all lanes. In the last layer ours
computes only the token that the head reads, which saves a larger share with 2 layers than with 12.
"""

import functools
import sys

from beside import side_by_side, sizes, training

NAMES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size", "batch_size")
NAMED = {
    "base": dict(zip(NAMES, (2, 768, 12, 64, 3072, 32000, 8), strict=True)),
    "large": dict(zip(NAMES, (2, 1024, 16, 64, 4096, 32000, 4), strict=True)),
    "narrow": dict(zip(NAMES, (4, 256, 4, 64, 1024, 5000, 16), strict=True)),
}
N, D, H, D_HEAD, D_INNER, V, B = sizes.chosen(NAMED).values()
LENGTHS = 128, 512
STEPS = {"train": 3, "predict": 6}  # in a round, with 512 tokens a sequence; with 128 tokens four times these
DROPOUT, CLIP = 0.1, 1.0


def examples(t_len):
    """Tokens, ids of segments, padding [B, T] and labels [B]."""
    import numpy as np

    draw = np.random.default_rng(t_len)
    tokens = draw.integers(0, V, [B, t_len])
    segments = np.zeros([B, t_len], int)
    segments[:, t_len // 2 :], segments[:, -1] = 1, 2
    padding = np.arange(t_len) < draw.integers(0, t_len // 4, [B, 1])
    return tokens, segments, padding, draw.integers(0, 2, [B])


def in_rounds(train, predict):
    """The tasks of an implementation, from functions of T that return a function of n, which runs n steps."""
    makers = {"train": functools.cache(train), "predict": functools.cache(predict)}

    def task(kind, t_len):
        return lambda: makers[kind](t_len)(steps(kind, t_len))

    return {f"{kind}_{t_len}": task(kind, t_len) for t_len in LENGTHS for kind in makers}


def steps(kind, t_len):
    return STEPS[kind] * LENGTHS[-1] // t_len


def ours(dtype="float32"):
    import tensorflow as tf

    from txl_tf.devices import distribute
    from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
    from txl_tf.models.xlnet.with_head import XLNetWithLogits
    from txl_tf.settings.run import TrainConfig
    from txl_tf.tasks.classification import Classification, XLNetClassificationConfig

    sizes = {"n_layer": N, "d_model": D, "n_head": H, "d_head": D_HEAD, "d_inner": D_INNER, "vocab_size": V}

    def objective(t_len):
        config = XLNetLogitsConfig(
            dropout=DROPOUT, dropatt=DROPOUT, mem_len=0, reuse_len=0, n_class=2, dtype=dtype, **sizes
        )
        run = XLNetClassificationConfig(config).replace(data={"tgt_len": t_len})
        return Classification().objective(XLNetWithLogits(config), run)

    def batch(t_len):
        tokens, segments, padding, label = examples(t_len)
        return {
            "tokens": tf.constant(tokens, tf.int32),
            "segments": tf.constant(segments, tf.int32),
            "padding": tf.constant(padding),
            "label": tf.constant(label, tf.int32),
            "weight": tf.ones([B]),
        }

    def train(t_len):
        return training.our_steps(lambda: objective(t_len), TrainConfig(clip=CLIP), batch(t_len))

    def predict(t_len):
        predicting, inputs = objective(t_len), batch(t_len)
        del inputs["label"]
        compiled = distribute.compiles(distribute.make_strategy("one_device"))
        step = functools.partial(Classification().outputs, predicting.model, config=predicting.config)
        outputs = tf.function(step, jit_compile=compiled)

        def run(count):
            for _ in range(count):
                outputs(inputs)["log_probs"].numpy()

        return run

    return in_rounds(train, predict)


def huggingface():
    import torch
    from transformers import XLNetConfig, XLNetForSequenceClassification

    device = training.torch_device()
    config = XLNetConfig(
        vocab_size=V,
        n_layer=N,
        d_model=D,
        n_head=H,
        d_inner=D_INNER,
        ff_activation="gelu_new",
        dropout=DROPOUT,
        summary_last_dropout=DROPOUT,
        num_labels=2,
    )

    def inputs(t_len):
        tokens, segments, padding, label = (torch.tensor(part, device=device) for part in examples(t_len))
        return {"input_ids": tokens, "token_type_ids": segments, "input_mask": padding.float()}, label

    def train(t_len):
        batch, labels = inputs(t_len)
        model = XLNetForSequenceClassification(config).to(device)
        return training.torch_steps(model, CLIP, lambda model: model(**batch, labels=labels).loss)

    def predict(t_len):
        batch, _ = inputs(t_len)
        model = XLNetForSequenceClassification(config).to(device).eval()

        def run(count):
            with torch.inference_mode():
                for _ in range(count):
                    model(**batch, use_mems=False).logits.log_softmax(-1).cpu()

        return run

    return in_rounds(train, predict)


def report(measured):
    """The JSON line of the results of `side_by_side.measure`."""
    lengths = {f"{kind}_{t_len}": (kind, t_len) for t_len in LENGTHS for kind in STEPS}
    return {
        task: training.speeds(rounds, B * lengths[task][1] * steps(*lengths[task])) for task, rounds in measured.items()
    }


if __name__ == "__main__":
    own = {"ours": ours, "ours_bfloat16": functools.partial(ours, "mixed_bfloat16")}
    sys.exit(side_by_side.run(__doc__, own, {"huggingface": huggingface}, report, NAMED))

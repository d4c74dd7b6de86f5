"""Recipes for fine-tuning: the commands of the official code and table 8 of the paper, with their published results."""

from __future__ import annotations

from txl_tf.families.base import Recipe


def _recipe(
    task: str, source: str, published: str, sizes: tuple[int, int, int, int, float], **train: float | str
) -> Recipe:
    """A recipe, with the settings that all share: dropout and dropatt 0.1, linear decay to 0, clipping at norm 1.

    `sizes` are tgt_len, batch_size, train_steps, warmup_steps and learning_rate; `train` are further settings.
    """
    tgt_len, batch_size, train_steps, warmup_steps, learning_rate = sizes
    shared = {
        "train_steps": train_steps,
        "warmup_steps": warmup_steps,
        "learning_rate": learning_rate,
        "lr_schedule": "linear",
        "min_lr_ratio": 0.0,
        "adam_epsilon": 1e-6,
        "weight_decay": 0.0,
        "bias_correction": True,
        "layer_decay": 1.0,
        "clip": 1.0,
    }
    data = {"tgt_len": tgt_len, "batch_size": batch_size}
    model = {"dropout": 0.1, "dropatt": 0.1}
    return Recipe(task, source, published, {"model": model, "data": data, "train": shared | train})


def _code(task: str, what: str, published: str, sizes: tuple[int, int, int, int, float], **train: float) -> Recipe:
    """The recipe of a command of the official code, where layer decay multiplies the gradient."""
    source = f"command of zihangdai/xlnet for {what}"
    return _recipe(task, source, published, sizes, layer_decay_of="gradient", **train)


def _paper(corpus: str, published: str, sizes: tuple[int, int, int, int, float]) -> Recipe:
    """A recipe of the paper for classification, where layer decay multiplies the rate.

    With weight decay the official code does not correct Adam's bias.
    """
    table = f"arXiv 1906.08237, last version, table 8: {corpus}, XLNet-Large"
    source, decay = f"{table}; warmup ours, a tenth of the steps", {"weight_decay": 0.01, "bias_correction": False}
    return _recipe("classification", source, published, sizes, layer_decay_of="rate", **decay)


RECIPES: dict[str, Recipe] = {
    "sts_b": _code(
        "regression", "STS-B, XLNet-Large on 4 V100", "Pearson 0.916", (128, 32, 1_200, 120, 5e-5), adam_epsilon=1e-8
    ),
    "imdb": _code(
        "classification",
        "IMDB, XLNet-Large on a TPU v3-8",
        "accuracy 0.962",
        (512, 32, 4_000, 500, 2e-5),
        adam_epsilon=1e-8,
    ),
    "squad2_large": _code(
        "answering",
        "SQuAD 2.0, XLNet-Large on a TPU v3-8",
        "F1 88.6 (median)",
        (512, 48, 8_000, 1_000, 3e-5),
        layer_decay=0.75,
    ),
    "squad2_base": _code(
        "answering",
        "SQuAD 2.0, XLNet-Base on 3 GPUs",
        "EM 80.18 (official README, of the released XLNet-Base)",
        (512, 24, 12_000, 1_000, 2e-5),
        layer_decay=0.75,
    ),
    "race": _code(
        "multiple_choice", "RACE, XLNet-Large on a TPU v3-32", "accuracy 81.75", (512, 32, 12_000, 1_000, 2e-5)
    ),
    "mnli": _paper("MNLI", "accuracy 90.8 (matched)", (128, 128, 10_000, 1_000, 2e-5)),
    "yelp5": _paper("Yelp-5", "error rate 27.05", (512, 128, 10_000, 1_000, 1e-5)),
}
"""The recipes by name."""

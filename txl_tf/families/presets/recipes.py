"""Recipes for fine-tuning: the commands of the official code and table 8 of the paper, with their published results."""

from __future__ import annotations

from txl_tf.families.presets.base import Recipe


def _recipe(
    task: str,
    source: str,
    published: str,
    sizes: tuple[int, int, int, int, float],
    adam_epsilon: float = 1e-6,
    weight_decay: float = 0.0,
    layer_decay: float = 1.0,
) -> Recipe:
    """A recipe, with the settings that all share: dropout and dropatt 0.1, linear decay to 0, clipping at norm 1.

    With weight decay the official code does not correct Adam's bias. Layer decay multiplies the gradient in recipes
    that are commands of the official code, and the rate in the paper's recipes. `sizes` are tgt_len, batch_size,
    train_steps, warmup_steps and learning_rate.
    """
    tgt_len, batch_size, train_steps, warmup_steps, learning_rate = sizes
    train = {
        "train_steps": train_steps,
        "warmup_steps": warmup_steps,
        "learning_rate": learning_rate,
        "lr_schedule": "linear",
        "min_lr_ratio": 0.0,
        "adam_epsilon": adam_epsilon,
        "weight_decay": weight_decay,
        "bias_correction": not weight_decay,
        "layer_decay": layer_decay,
        "layer_decay_of": "rate" if source.startswith("arXiv") else "gradient",
        "clip": 1.0,
    }
    data = {"tgt_len": tgt_len, "batch_size": batch_size}
    return Recipe(task, source, published, {"model": {"dropout": 0.1, "dropatt": 0.1}, "data": data, "train": train})


_CODE = "command of zihangdai/xlnet for"
_PAPER = "arXiv 1906.08237, last version, table 8:"
_WARMUP = "warmup ours, a tenth of the steps"

RECIPES: dict[str, Recipe] = {
    "sts_b": _recipe(
        "regression",
        f"{_CODE} STS-B, XLNet-Large on 4 V100",
        "Pearson 0.916",
        (128, 32, 1_200, 120, 5e-5),
        adam_epsilon=1e-8,
    ),
    "imdb": _recipe(
        "classification",
        f"{_CODE} IMDB, XLNet-Large on a TPU v3-8",
        "accuracy 0.962",
        (512, 32, 4_000, 500, 2e-5),
        adam_epsilon=1e-8,
    ),
    "squad2_large": _recipe(
        "answering",
        f"{_CODE} SQuAD 2.0, XLNet-Large on a TPU v3-8",
        "F1 88.6 (median)",
        (512, 48, 8_000, 1_000, 3e-5),
        layer_decay=0.75,
    ),
    "squad2_base": _recipe(
        "answering",
        f"{_CODE} SQuAD 2.0, XLNet-Base on 3 GPUs",
        "EM 80.18 (official README, of the released XLNet-Base)",
        (512, 24, 12_000, 1_000, 2e-5),
        layer_decay=0.75,
    ),
    "race": _recipe(
        "multiple_choice", f"{_CODE} RACE, XLNet-Large on a TPU v3-32", "accuracy 81.75", (512, 32, 12_000, 1_000, 2e-5)
    ),
    "mnli": _recipe(
        "classification",
        f"{_PAPER} MNLI, XLNet-Large; {_WARMUP}",
        "accuracy 90.8 (matched)",
        (128, 128, 10_000, 1_000, 2e-5),
        weight_decay=0.01,
    ),
    "yelp5": _recipe(
        "classification",
        f"{_PAPER} Yelp-5, XLNet-Large; {_WARMUP}",
        "error rate 27.05",
        (512, 128, 10_000, 1_000, 1e-5),
        weight_decay=0.01,
    ),
}
"""The recipes by name."""

"""Named configurations: the published models, with the settings of the paper and of the official code."""

from __future__ import annotations

from txl_tf.families.base import Preset
from txl_tf.models.xlnet.config import XLNetConfig, XLNetEvalConfig, XLNetRunConfig
from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig
from txl_tf.settings.run import TrainConfig

_BASE = {"n_layer": 12, "d_model": 768, "n_head": 12, "d_head": 64, "d_inner": 3072}
_LARGE = {"n_layer": 24, "d_model": 1024, "n_head": 16, "d_head": 64, "d_inner": 4096}
"""Sizes as in the xlnet_config.json of the released models. The defaults of vocabulary, activation and untie_r agree
with it, too."""

_LAST_VERSION = {"batch_size": 8192, "learning_rate": 4e-4, "warmup_steps": 40_000}
_FIRST_VERSION = {"batch_size": 2048, "learning_rate": 1e-5, "warmup_steps": 20_000}
"""The settings in which table 7 of the paper's first version (June 2019) differs from the last (January 2020)."""


def _pretraining(sizes: dict, recipe: dict) -> XLNetRunConfig:
    """The settings of a pretraining run.

    From table 7 of both versions of the paper: dropout and dropatt 0.1, T 512, K 6, 500,000 steps, linear decay,
    epsilon 1e-6, weight decay 0.01; from the first version's table 7 and from the official README: M 384. From the
    README's commands: R and perm_size 256, P 85, bi_data. From the official code: no bias correction with weight decay;
    clip 1.0 and min_lr_ratio 0.001, the defaults of its train.py. From the paper's text: spans of up to 5 tokens.
    """
    rest = dict(recipe)
    return XLNetRunConfig(
        XLNetConfig(**sizes, dropout=0.1, dropatt=0.1, mem_len=384, reuse_len=256),
        PairsConfig(batch_size=rest.pop("batch_size"), tgt_len=512, bi_data=True),
        TrainConfig(
            train_steps=500_000,
            lr_schedule="linear",
            min_lr_ratio=0.001,
            adam_epsilon=1e-6,
            bias_correction=False,
            weight_decay=0.01,
            clip=1.0,
            steps_per_loop=1_000,
            log_steps=1_000,
            save_steps=10_000,
            **rest,
        ),
        objective=PermutationLMConfig(num_predict=85, perm_size=256, mask_alpha=6.0, max_span=5),
    )


PRESETS: dict[str, Preset] = {
    "xlnet_demo": Preset(
        "python_stdlib",
        "ours: a small model that trains in minutes on a CPU; its vocabulary is one of --vocab=sentencepiece",
        1_117_264,
        "none",
        XLNetRunConfig(
            XLNetConfig(
                vocab_size=2_000,
                n_layer=4,
                d_model=128,
                n_head=2,
                d_head=64,
                d_inner=512,
                dropout=0.0,
                dropatt=0.0,
                mem_len=64,
                reuse_len=64,
            ),
            PairsConfig(batch_size=16, tgt_len=128, bi_data=True),
            TrainConfig(
                train_steps=1_000,
                learning_rate=2e-3,
                lr_schedule="linear",
                min_lr_ratio=0.02,
                warmup_steps=100,
                adam_epsilon=1e-6,
                clip=1.0,
                steps_per_loop=50,
                log_steps=50,
                save_steps=500,
                eval_steps=0,
            ),
            XLNetEvalConfig(batch_size=16),
            PermutationLMConfig(num_predict=21, perm_size=64),
        ),
    ),
    "xlnet_base": Preset(
        "text",
        "zihangdai/xlnet, the released XLNet-Base; how it was trained is not published: here like Large's last version",
        116_750_336,
        "MNLI 86.8, SQuAD 2.0 EM 80.18 (official README)",
        _pretraining(_BASE, _LAST_VERSION),
    ),
    "xlnet_large": Preset(
        "text",
        "arXiv 1906.08237, last version, table 7",
        360_300_800,
        "RACE 85.4, MNLI 90.8, SQuAD 2.0 F1 90.6 (paper's last version)",
        _pretraining(_LARGE, _LAST_VERSION),
    ),
    "xlnet_large_2019": Preset(
        "text",
        "arXiv 1906.08237, first version, table 7; by its date the recipe of the released XLNet-Large",
        360_300_800,
        "RACE 81.75, MNLI 89.8, SQuAD 2.0 EM 86.12 (official README)",
        _pretraining(_LARGE, _FIRST_VERSION),
    ),
}

"""Named configurations: our demo, and the published models with the settings of their scripts."""

from __future__ import annotations

from txl_tf.families.base import Preset
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.settings.run import CausalLMConfig, DataConfig, TrainConfig


def _official(model: dict, data: dict, train: dict, evaluation: dict) -> TransformerXLRunConfig:
    """A preset's settings; by default those of the official TF code (tf/train.py)."""
    implied = {"mem_len": data["tgt_len"], "d_embed": model["d_model"], "layer_norm_epsilon": 1e-12}
    return TransformerXLRunConfig(
        TransformerXLConfig(**implied | model), DataConfig(**data), TrainConfig(**train), EvalConfig(**evaluation)
    )


_BASE_TRAIN = {"train_steps": 400_000, "learning_rate": 2.5e-4, "warmup_steps": 0}
_LARGE_TRAIN = _BASE_TRAIN | {"warmup_steps": 4_000, "steps_per_loop": 1_000, "log_steps": 1_000, "save_steps": 10_000}
_LM1B = {"vocab_size": 793_471, "cutoffs": (60_000, 100_000, 640_000), "div_val": 4, "untie_r": True} | {
    "proj_same_dim": False
}
_SCRIPTS = "kimiyoung/transformer-xl, tf/scripts/"


def _characters(script: str, vocab_size: int, parameters: int, published: str) -> Preset:
    """The preset of a script for bytes or characters, CORPUS_base_gpu.sh or CORPUS_large_tpu.sh."""
    corpus, size, _ = script.split("_")
    if size == "base":
        model = {"n_layer": 12, "d_model": 512, "n_head": 8, "d_head": 64, "d_inner": 2048, "dropout": 0.1}
        data, train = {"batch_size": 24, "tgt_len": 512}, _BASE_TRAIN
        evaluation = {"batch_size": 10, "tgt_len": 80, "mem_len": 2100, "clamp_len": 820}
    else:
        model = {"n_layer": 24, "d_model": 1024, "n_head": 8, "d_head": 128, "d_inner": 3072}
        model |= {"dropout": 0.15, "dropatt": 0.15}
        data, train = {"batch_size": 64, "tgt_len": 768}, _LARGE_TRAIN
        evaluation = {"batch_size": 16, "tgt_len": 128, "mem_len": 3800, "clamp_len": 1000}
    config = _official(model | {"vocab_size": vocab_size}, data, train, evaluation)
    return Preset(corpus, _SCRIPTS + script, parameters, published, config)


PRESETS: dict[str, Preset] = {
    "demo": Preset(
        dataset="python_stdlib",
        source="ours: a small model that trains in minutes on a CPU",
        parameters=889_856,
        published="none",
        config=TransformerXLRunConfig(
            TransformerXLConfig(
                n_layer=4, d_model=128, d_embed=128, n_head=2, d_head=64, d_inner=512, dropout=0.0, mem_len=128
            ),
            DataConfig(batch_size=16, tgt_len=128),
            TrainConfig(
                train_steps=1_000,
                learning_rate=3e-3,
                min_lr_ratio=0.02,
                warmup_steps=60,
                steps_per_loop=50,
                log_steps=50,
                save_steps=500,
                eval_steps=500,
                eval_tokens=100_000,
            ),
            # Training has distances up to 255; a memory of 255 with same_length has no larger ones.
            EvalConfig(batch_size=16, tgt_len=128, mem_len=255, clamp_len=-1, same_length=True),
        ),
    ),
    "enwik8_base": _characters("enwik8_base_gpu.sh", 204, 41_055_436, "1.06 bpc (paper, table 2, 12 layers)"),
    "enwik8_large": _characters("enwik8_large_tpu.sh", 204, 277_231_820, "0.99 bpc (paper, table 2, 24 layers)"),
    "text8_base": _characters("text8_base_gpu.sh", 27, 40_964_635, "none for 12 layers"),
    "text8_large": _characters("text8_large_tpu.sh", 27, 277_050_395, "1.08 bpc (paper, table 3, 24 layers)"),
    "wt103_base": Preset(
        "wt103",
        "kimiyoung/transformer-xl, pytorch/run_wt103_base.sh",  # the TF script of that name has a smaller model
        151_107_538,
        "24.0 ppl (paper, table 1, standard)",
        TransformerXLRunConfig(
            TransformerXLConfig(
                vocab_size=267_735,
                cutoffs=(20_000, 40_000, 200_000),
                n_layer=16,
                d_model=410,
                d_embed=410,
                n_head=10,
                d_head=41,
                d_inner=2100,
                mem_len=150,
                mem_init="empty",
                same_length_window="pytorch",
            ),
            DataConfig(batch_size=60, tgt_len=150),
            TrainConfig(train_steps=200_000, min_lr_ratio=0.0),
            EvalConfig(batch_size=10, tgt_len=64, mem_len=640, clamp_len=400),
        ),
    ),
    "wt103_large": Preset(
        "wt103",
        _SCRIPTS + "wt103_large_tpu.sh",
        285_205_322,
        "18.3 ppl (paper, table 1, large)",
        _official(
            {"vocab_size": 267_735, "cutoffs": (20_000, 40_000, 200_000), "div_val": 4, "untie_r": True}
            | {"proj_share_all_but_first": True}
            | {"n_layer": 18, "d_model": 1024, "n_head": 16, "d_head": 64, "d_inner": 4096}
            | {"dropout": 0.2, "dropatt": 0.2, "init_std": 0.005},
            {"batch_size": 128, "tgt_len": 384},
            _LARGE_TRAIN | {"warmup_steps": 16_000, "train_steps": 4_000_000},
            {"batch_size": 8, "tgt_len": 128, "mem_len": 1600, "clamp_len": 1000},
        ),
    ),
    "ptb": Preset(
        "ptb",
        "ours, after public accounts of the recipe (docs/reproduce.md); the authors have not published theirs",
        24_041_160,
        "54.5 ppl (paper, table 5)",
        TransformerXLRunConfig(
            TransformerXLConfig(
                vocab_size=10_000,
                n_layer=16,
                d_model=380,
                d_embed=380,
                n_head=10,
                d_head=38,
                d_inner=900,
                tied_positions=True,
                norm_init_std=0.02,
                dropout=0.2,
                dropout_type="variational",
                dropout_sites="input:0.6,positions:0.6,qkv:0.2,output:0.5",
                dropemb=0.2,
                dropatt=0.2,
                mem_len=0,
                ext_len=70,
            ),
            DataConfig(batch_size=10, tgt_len=70, tgt_len_std=5),
            TrainConfig(  # an epoch has about 1,362 steps: 125 and 50 epochs
                train_steps=238_000,
                learning_rate=3e-4,
                min_lr_ratio=0.3333,
                warmup_steps=3_000,
                l2=1.2e-6,
                embedding_lr=2.0,
                lr_by_length=True,
                average_from_step=170_000,
                average_lr_ratio=0.5,
            ),
            EvalConfig(batch_size=10, tgt_len=10, mem_len=0, ext_len=130, clamp_len=-1, same_length=False),
            CausalLMConfig(activation_penalty=0.2, slowness_penalty=0.1),
        ),
    ),
    "lm1b_base": Preset(
        "lm1b",
        _SCRIPTS + "lm1b_base_gpu.sh",
        355_749_746,
        "none for this size; 23.5 ppl with 0.46B parameters (paper, table 4, base)",
        _official(
            _LM1B | {"n_layer": 18, "d_model": 1024, "n_head": 8, "d_head": 128, "d_inner": 4096, "dropout": 0.1},
            {"batch_size": 256, "tgt_len": 256},
            _BASE_TRAIN,
            {"batch_size": 16, "tgt_len": 32, "mem_len": 128, "clamp_len": -1},
        ),
    ),
    "lm1b_large": Preset(
        "lm1b",
        _SCRIPTS + "lm1b_large_tpu.sh",
        838_078_062,
        "21.8 ppl (paper, table 4, large)",
        _official(
            _LM1B
            | {"n_layer": 24, "d_model": 1280, "n_head": 16, "d_head": 80, "d_inner": 8192}
            | {"dropout": 0.05, "dropatt": 0.05, "init_std": 0.005},
            {"batch_size": 512, "tgt_len": 32},
            _LARGE_TRAIN | {"learning_rate": 1e-4, "warmup_steps": 30_000, "train_steps": 1_200_000},
            {"batch_size": 8, "tgt_len": 32, "mem_len": 128, "clamp_len": -1},
        ),
    ),
}

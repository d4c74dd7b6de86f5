"""A training run that is over in seconds, and what tests ask of runs."""

import dataclasses
import json
import shlex

from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.settings.run import DataConfig, TrainConfig

CONFIG = TransformerXLRunConfig(
    TransformerXLConfig(
        n_layer=1, d_model=16, d_embed=16, n_head=2, d_head=8, d_inner=32, dropout=0.1, dropatt=0.1, mem_len=8
    ),
    DataConfig(batch_size=4, tgt_len=8, random_offset=True),
    TrainConfig(
        train_steps=12, learning_rate=1e-2, steps_per_loop=5, log_steps=3, save_steps=4, eval_steps=6, jit_compile=False
    ),
    EvalConfig(batch_size=4, tgt_len=16, mem_len=16, clamp_len=-1, jit_compile=False),
)

TINY = shlex.split(
    "--n_layer=1 --d_model=16 --d_embed=16 --n_head=1 --d_head=16 --d_inner=16 --mem_len=16 --eval_mem_len=16 "
    "--tgt_len=32 --batch_size=8 --eval_batch_size=8 --eval_tgt_len=64 --eval_clamp_len=-1 "
    "--nojit_compile --noeval_jit_compile"
)
"""Flags of train.py that make a model as small."""


class KilledError(Exception):
    """Ends a run at once."""


def change(config, **changes):
    """A Config with some fields of its groups replaced: change(CONFIG, train={"seed": 2})."""
    return dataclasses.replace(
        config, **{group: dataclasses.replace(getattr(config, group), **values) for group, values in changes.items()}
    )


def lines(model_dir, file="metrics.jsonl"):
    """The lines of a model_dir's file without the one field that is about the clock."""
    parsed = [json.loads(line) for line in (model_dir / file).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_sec"} for line in parsed]


def evaluator(function):
    """What `train` takes: evaluates by function(), which returns a loss."""
    return lambda model: lambda progress: {"loss": function()}

"""The settings of the runs of imported models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig
from txl_tf.published.layout import Checkpoint
from txl_tf.settings.groups import update
from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig
from txl_tf.settings.run import Config


def _transformer_xl_run(
    checkpoint: Checkpoint, model: dict[str, Any], evaluation: dict[str, Any]
) -> TransformerXLRunConfig:
    """A run with the same memory in training as in evaluation. The memory length and the cutoffs must be given."""
    if "mem_len" not in evaluation:
        raise InputError(
            f"{checkpoint.file.path} does not say how much memory to use: give --preset, or --mem_len, --clamp_len and "
            "--same_length"
        )
    if "cutoffs" not in model:
        raise InputError(f"{checkpoint.file.path} does not say where its clusters end: give --preset or --cutoffs")
    return TransformerXLRunConfig(
        update(TransformerXLConfig(mem_len=evaluation["mem_len"]), model),
        eval=update(EvalConfig(batch_size=1, tgt_len=128), evaluation),
    )


def _xlnet_run(checkpoint: Checkpoint, model: dict[str, Any], evaluation: dict[str, Any]) -> XLNetRunConfig:
    """A run in which settings that are not given are those of the official pretraining, except that each part of a
    segment is permuted as a whole."""
    settings, run = update(XLNetConfig(), model), XLNetRunConfig()
    data = update(PairsConfig(tgt_len=max(run.data.tgt_len, 2 * settings.reuse_len)), checkpoint.data)
    part = min(settings.reuse_len, data.tgt_len - settings.reuse_len)
    perm_size, num_predict = (min(run.objective.perm_size, part), min(run.objective.num_predict, 2 * part))
    return XLNetRunConfig(
        settings,
        data,
        eval=update(run.eval, evaluation),
        objective=PermutationLMConfig(num_predict=max(num_predict, 1), perm_size=max(perm_size, 1)),
    )


def _head_run(checkpoint: Checkpoint, model: dict[str, Any], evaluation: dict[str, Any]) -> Config:
    """A run for the checkpoint's task with the default settings of fine-tuning."""
    run = checkpoint.config.from_groups({}, checkpoint.file.path)
    groups = {"model": model, "data": checkpoint.data, "eval": evaluation}
    return dataclasses.replace(run, **{name: update(getattr(run, name), values) for name, values in groups.items()})


def run_of(checkpoint: Checkpoint, model: dict[str, Any], evaluation: dict[str, Any]) -> Config:
    """A run with these fields of the groups "model" and "eval", and with defaults for the others.

    InputError if a setting without a default is not given.
    """
    runs: dict[type[Config], Callable[..., Config]]
    runs = {TransformerXLRunConfig: _transformer_xl_run, XLNetRunConfig: _xlnet_run}
    return runs.get(checkpoint.config, _head_run)(checkpoint, model, evaluation)


XLNETS: dict[str, type[Config]] = {XLNetRunConfig.task: XLNetRunConfig, **families.tuned_configs()}
"""The settings of XLNets' runs by task."""

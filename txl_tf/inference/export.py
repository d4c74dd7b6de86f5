"""Chooses the export function for a trained model's family and task."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.storage.files import write_atomically


def export_trained(trained: TrainedModel, export_dir: str, jit_compile: bool = True, **reach: Any) -> None:
    """Writes a trained model as a SavedModel.

    A README.md describes its signatures, and model.json has the step of its weights.

    Args:
        trained: a TrainedModel.
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        jit_compile: whether the inner steps are compiled by XLA where the SavedModel runs.
        reach: as for `LanguageModel.load`; only for models that continue texts.

    Raises:
        InputError: export_dir is not empty, or `reach` is given but does not apply to this model.
    """
    _write(trained, export_dir, jit_compile, reach)
    write_atomically(tf.io.gfile.join(export_dir, "model.json"), json.dumps({"step": trained.step}) + "\n")


def _write(trained: TrainedModel, export_dir: str, jit_compile: bool, reach: dict[str, Any]) -> None:
    """The SavedModel and its README.md; arguments as for `export_trained`."""
    title = families.family_of(trained.config).title
    if families.family_of(trained.config).generates:
        from txl_tf.inference.causal.generator import Generator
        from txl_tf.inference.causal.served_causal import export

        _, evaluated_with = trained.config.for_evaluation(**reach)  # type: ignore[attr-defined]
        int8 = trained.quantize == "int8"
        generator = Generator(trained.model, evaluated_with, jit_compile=jit_compile, int8=int8)
        export(generator, trained.vocabulary, export_dir, trained.unit)
        return
    if reach:
        raise InputError(
            f"{', '.join(f'--{name}' for name in reach)}: {families.with_article(title)} is exported without memory"
        )
    if isinstance(trained.model, XLNet):
        from txl_tf.inference.xlnet import served_xlnet

        served_xlnet.export(trained.model, trained.vocabulary, export_dir, trained.unit, jit_compile=jit_compile)
    else:
        from txl_tf.inference.tasks import served_task

        served_task.export(trained, export_dir, jit_compile=jit_compile)

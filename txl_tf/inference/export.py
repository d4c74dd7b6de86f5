"""Exports a trained model: which SavedModel is for which model."""

from __future__ import annotations

import json
from typing import Any

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.inference.saved_model import Served
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs.model_dir import TrainedModel


def export_trained(trained: TrainedModel, export_dir: str, jit_compile: bool = True, **reach: Any) -> None:
    """Writes a trained model as a SavedModel.

    A README.md describes its signatures, and model.json has the step of its weights.

    Args:
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        jit_compile: whether the inner steps are compiled where the SavedModel runs.
        reach: as for `LanguageModel.load`; only for models that continue texts.

    Raises:
        InputError: export_dir is not empty, or `reach` is given but does not apply to this model.
    """
    _served(trained, jit_compile, reach).save(export_dir, {"model.json": json.dumps({"step": trained.step}) + "\n"})


def _served(trained: TrainedModel, jit_compile: bool, reach: dict[str, Any]) -> Served:
    if families.family_of(trained.config).generates:
        from txl_tf.inference.causal.generator import Generator
        from txl_tf.inference.causal.served_causal import ServedCausal

        _, evaluated_with = trained.config.for_evaluation(**reach)  # type: ignore[attr-defined]
        int8 = trained.quantize == "int8"
        generator = Generator(trained.model, evaluated_with, jit_compile=jit_compile, int8=int8)
        return ServedCausal(generator, trained.vocabulary)
    if isinstance(trained.model, XLNet):
        from txl_tf.inference.causal.left_to_right import Continuation
        from txl_tf.inference.continuing_xlnet import ContinuingXLNet

        continuation = Continuation.of(trained, jit_compile, **reach)
        return ContinuingXLNet(continuation, jit_compile=jit_compile)
    if reach:
        flags = ", ".join(f"--{name}" for name in reach)
        raise InputError(f"{flags}: {families.with_article(trained.config)} is exported without memory")
    from txl_tf.inference.tasks.served_task import ServedTask

    return ServedTask(trained, jit_compile)

"""Exports a trained model: which SavedModel is for which model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.inference.saved_model import Served
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs.model_dir import TrainedModel, read_corpus_facts


def export_trained(
    trained: TrainedModel,
    export_dir: str,
    jit_compile: bool = True,
    examples: Sequence[Mapping[str, str | Sequence[str]]] = (),
    **reach: Any,
) -> None:
    """Writes a trained model as a SavedModel.

    A README.md describes its signatures. model.json has the step of its weights, `Served.words`, and the facts that
    the server's page needs.

    Args:
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        jit_compile: whether the inner steps are compiled where the SavedModel runs.
        examples: inputs that the page offers, by the names of its fields: text, text_b, article, question, options,
            context.
        reach: as for `LanguageModel.load`; only for models that continue texts.

    Raises:
        InputError: export_dir is not empty, or `reach` is given but does not apply to this model.
    """
    served = _served(trained, jit_compile, reach)
    facts = read_corpus_facts(trained.model_dir)
    about = {name: values[name] for name, values in (("pairs", facts), ("threshold", served.dev)) if name in values}
    about |= {"step": trained.step, "words": served.words()} | ({"examples": list(examples)} if examples else {})
    served.save(export_dir, {"model.json": json.dumps(about, ensure_ascii=False) + "\n"})


def _served(trained: TrainedModel, jit_compile: bool, reach: dict[str, Any]) -> Served:
    if families.family_of(trained.config).generates:
        from txl_tf.inference.causal.served_causal import ServedCausal
        from txl_tf.inference.generation.generator import Generator

        _, evaluated_with = trained.config.for_evaluation(**reach)  # type: ignore[attr-defined]
        int8 = trained.quantize == "int8"
        generator = Generator(trained.model, evaluated_with, jit_compile=jit_compile, int8=int8)
        return ServedCausal(generator, trained.vocabulary)
    if isinstance(trained.model, XLNet):
        from txl_tf.inference.causal.left_to_right import LeftToRightXLNet
        from txl_tf.inference.generating_xlnet import GeneratingXLNet

        continuation = LeftToRightXLNet.of(trained, jit_compile, **reach)
        return GeneratingXLNet(continuation, jit_compile=jit_compile)
    if reach:
        flags = ", ".join(f"--{name}" for name in reach)
        raise InputError(f"{flags}: {families.with_article(trained.config)} is exported without memory")
    from txl_tf.inference.tasks.served import ServedTask

    return ServedTask(trained, jit_compile)

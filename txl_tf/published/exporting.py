"""Writes a trained model as a checkpoint of other code."""

from __future__ import annotations

from collections.abc import Callable

from txl_tf.published.huggingface import transformer_xl as huggingface
from txl_tf.published.huggingface import xlnet as huggingface_xlnet
from txl_tf.runs import model_card
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.storage.files import complete_directory, require_new_directory

FORMATS: dict[str, dict[str, Callable[[TrainedModel, str], list[str]]]] = {
    "huggingface": {"transformer_xl": huggingface.export, "xlnet": huggingface_xlnet.export}
}
"""Functions by format and family."""


def export_checkpoint(trained: TrainedModel, format: str, export_dir: str) -> list[str]:
    """Writes weights, settings, vocabulary and a model card in one of FORMATS; returns how the other code differs.

    InputError if the other code does not have this kind of model, or export_dir, local or gs://, is not empty.
    """
    require_new_directory(export_dir, "export_dir")
    with complete_directory(export_dir) as folder:
        differences = FORMATS[format][trained.config.family](trained, folder)
        model_card.write_card(folder, model_card.describe_model(trained.model_dir))
    return differences

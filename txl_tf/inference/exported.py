"""An exported SavedModel, applied to the rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as Outputs
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from txl_tf import families
from txl_tf.data.tables.columns import Columns
from txl_tf.errors import InputError, one_line
from txl_tf.inference.causal import sampling_settings
from txl_tf.storage.literal_paths import load_saved_model


def signature_names(folder: str) -> tuple[str, ...]:
    """The names of a SavedModel's signatures, read without loading it; (): the folder holds none.

    Without those that have a language model's name for something else. InputError if it is damaged.
    """
    if not tf.io.gfile.exists(tf.io.gfile.join(folder, "saved_model.pb")):
        return ()
    try:
        found = parse_saved_model(folder).meta_graphs[0].signature_def
    except (OSError, LookupError) as error:
        raise InputError(f"{folder} is damaged ({one_line(error)}): export the model again") from error
    return tuple(name for name in found if name != "encode" or "fill" in found)  # else it gives a text's tokens


def task_with(signatures: Sequence[str]) -> families.FineTuning | None:
    """The task of an export with these signatures; None: it is no fine-tuned model."""
    tasks = (families.task_of(config, families.FineTuning) for config in families.tuned_configs().values())
    return next((task for task in tasks if task.signature in signatures), None)


class Exported:
    """The SavedModel of a folder, with the methods that `Predictor`, `LanguageModel`, `FillIn` and `Encoder` have.

    Args:
        task: of a fine-tuned model.
        batch_size: of `predict_rows`.
    """

    def __init__(self, folder: str, task: families.FineTuning | None, batch_size: int):
        self._signatures, self._task, self._batch_size = load_saved_model(folder).signatures, task, batch_size

    def predict_rows(self, rows: Sequence[Any], columns: Columns, unsure_below: float | None = None) -> Outputs:
        """Predictions for rows of the task, computed for texts of about one length together."""
        task: Any = self._task
        order = sorted(range(len(rows)), key=lambda i: len(str(rows[i])))
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(rows), self._batch_size):
            numbers = order[start : start + self._batch_size]
            outputs = self._call(task.signature, **task.signature_inputs([rows[i] for i in numbers]))
            for place, i in enumerate(numbers):
                found[i] = task.signature_result({name: values[place] for name, values in outputs.items()}, rows[i])
                if unsure_below is not None:
                    found[i]["unsure"] = found[i]["probability"] < unsure_below
        return Outputs(predictions=[found[i] for i in range(len(rows))])

    def score(self, texts: list[str]) -> list[Outputs]:
        """The total of each text."""
        return [Outputs(total=total) for total in self._call("score", texts=texts)["total"]]

    def generate(
        self, texts: list[str], max_tokens: int = 200, *, seed: list[int], stop: Sequence[str] = (), **sampling: Any
    ) -> list[str]:
        """A continuation of each text."""
        given = {"prompts": texts, "seeds": seed, "max_tokens": max_tokens, "stop": list(stop)}
        return self._call("generate", **given, **sampling_settings.checked(sampling))["texts"]

    def __call__(self, texts: list[str], batch_size: int, pool: str = "last") -> Outputs:
        """The texts as vectors: pooled, [B, D]."""
        found = self._call("encode", texts=texts, second=[""] * len(texts))
        return Outputs(pooled=np.array(found["pooled" if pool == "last" else pool]))

    def _call(self, name: str, **inputs: Any) -> dict[str, list[Any]]:
        """A signature's outputs by name, as lists."""
        specs = self._signatures[name].structured_input_signature[1]
        tensors = {each: tf.constant(value, specs[each].dtype) for each, value in inputs.items()}
        return {each: _decoded(found.numpy().tolist()) for each, found in self._signatures[name](**tensors).items()}


def _decoded(value: Any) -> Any:
    """A nested list with str in place of bytes."""
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

"""The abilities of a trained model: for each method of `txl_tf.Model`, the object that does the work."""

from __future__ import annotations

import importlib
from typing import Any

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.runs.model_dir import TrainedModel


def tool_for(trained: TrainedModel, ability: str, jit_compile: bool | None = None, **options: Any) -> Any:
    """The object that `Task.abilities` registers for an ability, from a TrainedModel; options: those of its `of`.

    InputError if the model does not have this ability, or its kind does not take these options.
    """
    use = families.task_of(trained.config)
    if ability not in use.abilities:
        raise unable(trained, ability)
    module, _, name = use.abilities[ability].partition(":")
    return getattr(importlib.import_module(f"txl_tf.inference.{module}"), name).of(trained, jit_compile, **options)


def unable(trained: TrainedModel, ability: str) -> InputError:
    """The error for an ability that a model does not have."""
    family = families.family_of(trained.config)
    able = ", ".join(families.task_of(trained.config).methods)
    return InputError(
        f"{trained.model_dir} holds a model of {family.title} for {trained.config.task}, which does not {ability}, but "
        f"can {able or 'only be read'}: give a model of {families.able_to(ability)}"
    )

"""Model families and named configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from txl_tf.settings.run import Config
from txl_tf.tasks.base import Task


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named configuration, its source, size and published result.

    `parameters` is the number of trainable weights with the preset's vocabulary size; `published` is the result that
    the source or the paper reports for it, not our result.
    """

    dataset: str
    source: str
    parameters: int
    published: str
    config: Config


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Named settings for fine-tuning, their source, and the result that the source reports for them, not ours.

    `settings` are those of a run: {group: {field: value}}.
    """

    task: str
    source: str
    published: str
    settings: dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of model: its name in config.json, a title for display, and what its models are trained for.

    `generates`: whether that is to continue texts token by token (score, recl, export).
    """

    name: str
    title: str
    tasks: tuple[Task, ...]
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=dict)
    recipes: Mapping[str, Recipe] = dataclasses.field(default_factory=dict)
    generates: bool = False

    def task(self, name: str) -> Task | None:
        """The task of this name; None if there is none."""
        return next((task for task in self.tasks if task.name == name), None)

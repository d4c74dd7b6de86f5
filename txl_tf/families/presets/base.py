"""The classes of named configurations."""

from __future__ import annotations

import dataclasses
from typing import Any

from txl_tf.settings.run import Config


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

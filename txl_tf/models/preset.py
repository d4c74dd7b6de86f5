"""The class of named configurations."""

from __future__ import annotations

import dataclasses

from txl_tf.config import Config


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

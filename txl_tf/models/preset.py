"""What a named configuration is."""

from __future__ import annotations

import dataclasses

from txl_tf.config import Config


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named configuration and what is known of it.

    `parameters` counts the trainable weights at the preset's vocabulary; `published` is the result that its source or
    the paper reports for it, not ours.
    """

    dataset: str
    source: str
    parameters: int
    published: str
    config: Config

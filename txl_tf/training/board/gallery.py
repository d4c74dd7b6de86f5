"""A text sample, attention maps and histograms, written to TensorBoard at evaluations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from txl_tf.settings.run import TrainConfig
from txl_tf.training.board.attention_maps import AttentionMaps
from txl_tf.training.board.event_files import Board


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Writes samples, attention maps and histograms of a model to TensorBoard.

    maps: of its attention; None: none.
    sampler: () -> text, the continuation of its `prompt`; None: no sample.
    histograms: () -> values by name, as `make_histograms` returns it.
    """

    board: Board
    config: TrainConfig
    maps: AttentionMaps | None
    sampler: Any
    histograms: Callable[[], dict[str, np.ndarray]]

    def show(self, step: int) -> None:
        """Writes a text sample and attention maps of the current weights, after `step` updates.

        The maps of all heads, one picture per layer, are written rarely.
        """
        if self.sampler:
            parts = ("**Beginning of valid**", as_it_is(self.sampler.prompt), "**Continued**", as_it_is(self.sampler()))
            self.board.text(step, "sample", "\n\n".join(parts))
        if self.maps is None:
            return
        for name, figure in self.maps.pictures(step, all_heads=self._is_rare(step)):
            self.board.picture(step, name, figure)

    def show_histograms(self, step: int) -> None:
        """Writes histograms of the weights and of the last update, rarely; the weights are those in training."""
        if self._is_rare(step):
            self.board.histograms(step, self.histograms())

    def _is_rare(self, step: int) -> bool:
        """Whether this is evaluation 1, 2, 4, 8, .. or the last. Large things are written only then, so that event
        files stay small."""
        evaluations = step // self.config.eval_steps
        return evaluations & (evaluations - 1) == 0 or step in self.config.ends


def as_it_is(text: str) -> str:
    """Text as a Markdown code block, which shows every character unchanged."""
    return "\n".join("    " + line for line in text.split("\n"))

"""A text sample and attention maps, written to TensorBoard at every evaluation."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.config import TrainConfig
from txl_tf.objectives.base import AttentionView
from txl_tf.training.attention_maps import AttentionMaps
from txl_tf.training.board import Board


class Gallery:
    """Writes samples and attention maps of a model to TensorBoard.

    Args:
        board: a Board.
        strategy: of the run.
        view: of its attention; None: no attention maps.
        config: a TrainConfig.
        sampler: () -> text, the continuation of its `prompt`; None: no sample.
    """

    def __init__(
        self,
        board: Board,
        strategy: tf.distribute.Strategy,
        view: AttentionView | None,
        config: TrainConfig,
        sampler: Any = None,
    ):
        self.board = board
        self.maps = AttentionMaps(strategy, view) if view else None
        self.config = config
        self.sampler = sampler

    def show(self, step: int) -> None:
        """Writes a text sample and attention maps of the current weights, after `step` updates.

        The maps of all heads, one picture per layer, are written only at evaluations 1, 2, 4, 8, .. and the last, so
        that event files stay small.
        """
        if self.sampler:
            parts = ("**Beginning of valid**", as_it_is(self.sampler.prompt), "**Continued**", as_it_is(self.sampler()))
            self.board.text(step, "sample", "\n\n".join(parts))
        if self.maps is None:
            return
        evaluations = step // self.config.eval_steps
        all_heads = evaluations & (evaluations - 1) == 0 or step == self.config.train_steps
        for name, pixels in self.maps.pictures(step, all_heads):
            self.board.picture(step, name, pixels)


def as_it_is(text: str) -> str:
    """Text as a Markdown code block, which shows every character as it is."""
    return "\n".join("    " + line for line in text.split("\n"))

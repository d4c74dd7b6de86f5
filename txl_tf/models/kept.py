"""Tensors that are computed from a model's weights once, for readers that use them many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Kept(tf.Module):
    """A nest of tensors, or None, that a function makes from a model's weights, kept in variables of its own."""

    def __init__(self, make: Callable[[], Any]):
        super().__init__(name="kept")
        self._make = make
        self._nest = tf.nest.map_structure(
            lambda made: None if made is None else tf.Variable(made, trainable=False), make()
        )

    def tensors(self) -> Any:
        """The nest of tensors."""
        return tf.nest.map_structure(lambda kept: None if kept is None else tf.convert_to_tensor(kept), self._nest)

    def refresh(self) -> None:
        """Computes it again from the model's current weights."""
        tf.nest.map_structure(lambda kept, made: kept is None or kept.assign(made), self._nest, self._make())

"""Weights that a training step gives to a model instead of its variables' values."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

import keras
import tensorflow as tf

# Keras's scopes are local to a thread, too: MirroredStrategy traces each replica in a thread of its own.
_scope = threading.local()


@contextlib.contextmanager
def given_weights(weights: Iterable[tuple[keras.Variable, tf.Tensor]]) -> Iterator[None]:
    """In this context the variables have the given values; layers cast these as they cast variables."""
    weights = list(weights)
    if not weights:
        yield
        return
    before = getattr(_scope, "weights", {})
    _scope.weights = {id(variable): tensor for variable, tensor in weights}
    try:
        with keras.StatelessScope(weights):
            yield
    finally:
        _scope.weights = before


def recomputed(read: Callable[[tf.Tensor], tf.Tensor], layer: keras.Layer, hidden: tf.Tensor) -> tf.Tensor:
    """read(hidden), which the backward pass computes again.

    `tf.recompute_grad` computes gradients of captured variables, but not of captured tensors. So given weights are
    passed as arguments. `read` must use only the given weights of `layer`.
    """
    given = getattr(_scope, "weights", {})
    variables = [variable for variable in layer.trainable_variables if id(variable) in given]

    def read_with(hidden: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
        with given_weights(zip(variables, weights, strict=True)):
            return read(hidden)

    return tf.recompute_grad(read_with)(hidden, *(given[id(variable)] for variable in variables))

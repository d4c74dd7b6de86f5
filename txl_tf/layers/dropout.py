"""Dropout as a pure function of its seed.

A training step derives all its seeds from (run seed, step, lane). So a lane has the same masks on any number of
replicas and in any group of an accumulated step, a resumed run has the same masks as an uninterrupted one, and
checkpoints hold no generator state.

A seed is int32 [2], for a mask over the whole tensor, or int32 [B, 2], one for each lane. Then the first axis of a mask
is the lanes, and a lane's mask depends only on that lane's seed.
"""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf.hashing import numbered_seeds, split_seed
from txl_tf.ops.scores import keep_mask


class Seeds(typing.NamedTuple):
    """The seeds of one call of a model.

    shared: int32 [2], for masks that all lanes share, such as the mask of the relative positions; None: drawn.
    lanes: int32 [B, 2], for all other masks; int32 [2] or None if lanes need no separate seeds.
    """

    shared: tf.Tensor | None
    lanes: tf.Tensor | None

    @classmethod
    def of(cls, seed: Seeds | tf.Tensor | None) -> Seeds:
        """`seed` itself if it is Seeds; otherwise Seeds that use it, int32 [2] or None, for all masks."""
        return seed if isinstance(seed, cls) else cls(seed, seed)

    def split(self, count: int) -> list[Seeds]:
        """`count` independent Seeds."""
        return [
            Seeds(*pair) for pair in zip(split_seed(self.shared, count), split_seed(self.lanes, count), strict=True)
        ]


def step_seeds(seed: tf.Tensor, step: tf.Tensor, lanes: tf.Tensor) -> Seeds:
    """The Seeds of the training step after `step` updates, from the run's seed, int32 [2].

    `lanes`, int32 [b], are the lanes to be read, by their numbers in the global batch.
    """
    shared = numbered_seeds(seed, step)
    return Seeds(shared, numbered_seeds(shared, lanes))


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None = None, shared_axis: int | None = None) -> tf.Tensor:
    """Zeroes elements of x with probability `rate` and scales the rest by 1 / (1 - rate).

    Args:
        x, rate: any float tensor, [B, ..] with a seed for each lane; and a number in [0, 1).
        seed: int32 [2] or [B, 2]; None: drawn from TensorFlow's global generator (for layers in other models).
        shared_axis: an axis along which all elements share one mask value; None: every element has its own.
    """
    if not rate:
        return x
    shape = tf.shape(x)
    if shared_axis is not None:
        shape = tf.tensor_scatter_nd_update(shape, [[shared_axis % x.shape.rank]], [1])
    return tf.where(keep_mask(shape, rate, seed), x / (1 - rate), tf.zeros([], x.dtype))


def check_rate(rate: float, name: str, layer: keras.layers.Layer) -> None:
    """Raises ValueError if a layer's rate is not in [0, 1)."""
    if not 0 <= rate < 1:
        raise ValueError(f"{type(layer).__name__}: {name} must be in [0, 1), got {rate}")


def token_dropout(
    embedded: tf.Tensor, tokens: tf.Tensor, vocab_size: int, rate: float, seed: tf.Tensor | None = None
) -> tf.Tensor:
    """Drops words of the vocabulary, each with all its occurrences in the batch; scales the rest by 1 / (1 - rate).

    As in AWD-LSTM (Merity et al. 2017, arXiv 1708.02182, section 4.3) rows of the embedding are zeroed; rows of the
    softmax are not, even if its table is tied to the embedding's. embedded: [B, T, D] of tokens, int [B, T].
    """
    if not rate:
        return embedded
    keep_V = dropout(tf.ones([vocab_size], embedded.dtype), rate, seed)
    return embedded * tf.gather(keep_V, tokens)[..., None]


TIME = -2
"""The axis of time in [.., T, D], for `shared_axis`."""

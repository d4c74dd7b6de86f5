"""Pictures of attention probabilities of one segment of valid.

Shapes: T queries of a segment, M memory slots, K = M + T keys, H heads, N layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from txl_tf.objectives.base import AttentionView
from txl_tf.training.pictures import attention_picture, distance_picture

QUERIES = 64
"""Pictures show at most this many queries, the last of the segment."""


class AttentionMaps:
    """The attention of an AttentionView as pictures.

    Args:
        strategy: of the run.
        view: the AttentionView.
    """

    def __init__(self, strategy: tf.distribute.Strategy, view: AttentionView):
        self.batches, self.m_len = view.batches, view.m_len

        def replica(batches: tf.Tensor) -> tf.Tensor:
            return view.probabilities(batches)[:, :, -QUERIES:]

        @tf.function
        def probabilities(batches: tf.Tensor) -> tf.Tensor:
            return strategy.experimental_local_results(strategy.run(replica, args=(batches,)))[0]

        self._probabilities = probabilities

    def probabilities(self) -> np.ndarray:
        """[N, H, Q, K] with the model's current weights, for the segment's last Q queries, Q at most QUERIES."""
        return self._probabilities(self.batches).numpy()

    def pictures(self, step: int, all_heads: bool = True) -> Iterator[tuple[str, np.ndarray]]:
        """Yields (name, pixels): attention by distance, then, with `all_heads`, the heads of each layer."""
        probabilities = self.probabilities()
        bounds = octaves(probabilities.shape[-1])
        shares = by_distance(probabilities, bounds).mean(1)
        yield "attention/by_distance", distance_picture(shares, bounds, f"Attention by distance, step {step:,}")
        for layer, heads in enumerate(probabilities if all_heads else ()):
            title = f"Attention of layer {layer}, step {step:,}"
            yield f"attention/layer_{layer:02d}", attention_picture(heads, self.m_len, title)


def octaves(k_len: int) -> list[int]:
    """Bounds of bins over K distances: [0, 1, 2, 4, 8, .., K]."""
    return [0, *itertools.takewhile(lambda bound: bound < k_len, (2**i for i in itertools.count())), k_len]


def by_distance(probabilities: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
    """[.., bins]: attention [.., Q, K] of a segment's last Q queries, summed in bins of distances, mean of queries."""
    *_, queries, keys = probabilities.shape
    distance = keys - queries + np.arange(queries)[:, None] - np.arange(keys)
    bins = [(first <= distance) & (distance < end) for first, end in itertools.pairwise(bounds)]
    return np.stack([(probabilities * inside).sum((-2, -1)) for inside in bins], -1) / queries

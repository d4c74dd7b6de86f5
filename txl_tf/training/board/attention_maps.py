"""Pictures of attention probabilities of one segment of valid.

Shapes: Q queries of a segment of T tokens, M memory slots, K = M + T keys, H heads, N layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from txl_tf.devices.distribute import of_first_replica
from txl_tf.objectives.base import AttentionView, Batch
from txl_tf.training.board.pictures import attention_picture, distance_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 64
"""Pictures show at most this many queries, the last of the segment."""


class AttentionMaps:
    """The attention of an AttentionView as pictures."""

    def __init__(self, strategy: tf.distribute.Strategy, view: AttentionView):
        self.m_len = view.m_len
        self.queries = {stream: positions[-QUERIES:] for stream, positions in view.queries.items()}

        def replica(batches: Batch) -> dict[str, tf.Tensor]:
            return {stream: maps[:, :, -QUERIES:] for stream, maps in view.probabilities(batches).items()}

        self._probabilities = of_first_replica(strategy, replica, view.batches)

    def probabilities(self) -> dict[str, np.ndarray]:
        """{stream: [N, H, Q, K]} with the model's current weights, for the last queries, at most QUERIES of them."""
        return {stream: maps.numpy() for stream, maps in self._probabilities().items()}

    def pictures(self, step: int, all_heads: bool = True) -> Iterator[tuple[str, Figure]]:
        """Yields (name, figure) for each stream: attention by distance, then, with `all_heads`, each layer's heads."""
        for stream, probabilities in self.probabilities().items():
            positions = self.queries[stream]
            group, of_stream = ("attention", "") if not stream else (f"attention_{stream}", f" of the {stream} stream")
            k_len = probabilities.shape[-1]
            distances = self.m_len + positions[:, None] - np.arange(k_len)
            bounds = octaves(k_len, -distances.min() if (probabilities * (distances < 0)).any() else 0)
            shares = by_distance(probabilities, distances, bounds).mean(1)
            title = f"Attention{of_stream} by distance, step {step:,}"
            yield f"{group}/by_distance", distance_picture(shares, bounds, title)
            for layer, heads in enumerate(probabilities if all_heads else ()):
                title = f"Attention{of_stream} in layer {layer}, step {step:,}"
                yield f"{group}/layer_{layer:02d}", attention_picture(heads, positions, self.m_len, title)


def octaves(k_len: int, ahead: int = 0) -> list[int]:
    """Bounds of bins over K distances: [0, 1, 2, 4, 8, .., K].

    If the farthest key after a query is `ahead` > 0 tokens away, the bounds [-ahead, .., -7, -3, -1] come first: bins
    of negative distances mirror the others.
    """

    def powers(end: int) -> list[int]:
        return [*itertools.takewhile(lambda bound: bound < end, (2**i for i in itertools.count())), end]

    later = [1 - bound for bound in powers(ahead + 1)[:0:-1]] if ahead else []
    return [*later, 0, *powers(k_len)]


def by_distance(probabilities: np.ndarray, distances: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
    """Attention [.., Q, K], summed in bins of the distances [Q, K] and averaged over queries: [.., bins].

    A distance is how many tokens a key comes before the query; it is negative for a key after it.
    """
    bins = [(first <= distances) & (distances < end) for first, end in itertools.pairwise(bounds)]
    return np.stack([(probabilities * inside).sum((-2, -1)) for inside in bins], -1) / len(distances)

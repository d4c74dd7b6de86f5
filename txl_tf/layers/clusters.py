"""How the vocabulary is divided into clusters: the common base of AdaptiveEmbedding and AdaptiveSoftmax.

Ids are sorted by decreasing frequency. `cutoffs` (c1 < c2 < ..) divide them into cluster 0, the *head* [0, c1), and
the *tails* [c1, c2), .., [c_last, V). With div_val > 1 cluster i has its own table, of width d_embed / div_val**i;
with div_val == 1 all clusters share one table.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.layers.layer import Layer


def cluster_of(ids: tf.Tensor, cutoffs: Sequence[int]) -> tf.Tensor:
    """The cluster of each id: int32, the shape of `ids`; 0 for the head (and for negative ids)."""
    return sum((tf.cast(ids >= cutoff, tf.int32) for cutoff in cutoffs), tf.zeros_like(ids, tf.int32))


class ClusteredLayer(Layer):
    """A layer with weights per vocabulary cluster: checks the arguments and computes the shapes.

    Attributes:
        starts, sizes, widths: first id, number of ids and embedding width of each cluster.
        table_shapes: (rows, width) of each table: one per cluster, or one for all (div_val == 1).

    Raises:
        ValueError: cutoffs are out of order or out of range, or a cluster's width is below 1; the message is one line.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        d_embed: int | None = None,
        cutoffs: Sequence[int] = (),
        div_val: int = 1,
        proj_same_dim: bool = True,
        init_std: float = 0.02,
        proj_init_std: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        d_embed = d_model if d_embed is None else d_embed
        cutoffs = tuple(cutoffs)
        self.keep(locals())
        self._check()

        ends = (*self.cutoffs, vocab_size)
        self.starts = (0, *self.cutoffs)
        self.sizes = tuple(end - start for start, end in zip(self.starts, ends, strict=True))
        self.widths = tuple(self.d_embed // div_val**i for i in range(len(ends)))
        self._one_table = div_val == 1 or not self.cutoffs
        tables = [(vocab_size, self.d_embed)] if self._one_table else zip(self.sizes, self.widths, strict=True)
        self.table_shapes = tuple(tables)

    def _check(self) -> None:
        for name in ("vocab_size", "d_model", "d_embed", "div_val"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        ids = (0, *self.cutoffs, self.vocab_size)
        if any(left >= right for left, right in itertools.pairwise(ids)):
            raise ValueError(
                f"cutoffs must rise strictly between 0 and vocab_size={self.vocab_size}, not {list(self.cutoffs)}"
            )
        smallest = self.div_val ** len(self.cutoffs)
        if self.d_embed < smallest:  # widths are rounded down, as in the official code (wt103_base: 410 / 4**3 = 6)
            raise ValueError(
                f"d_embed={self.d_embed} must be at least div_val**len(cutoffs) = "
                f"{self.div_val}**{len(self.cutoffs)} = {smallest}, or the last cluster has width 0"
            )

    def _add_tables(self) -> list[keras.Variable]:
        return [
            self._add(f"table_{i}", shape, keras.initializers.RandomNormal(stddev=self.init_std))
            for i, shape in enumerate(self.table_shapes)
        ]

    def _add_projection(self, i: int) -> keras.Variable | None:
        """The [width, d_model] projection of a cluster; None where the official code has none."""
        if self.widths[i] == self.d_model and (self._one_table or not self.proj_same_dim):
            return None
        initializer = keras.initializers.RandomNormal(stddev=self.proj_init_std)
        return self._add(f"projection_{i}", (self.widths[i], self.d_model), initializer)

    def _add(
        self, name: str, shape: tuple[int, ...], initializer: str | keras.initializers.Initializer
    ) -> keras.Variable:
        # No autocast: a lookup in a bfloat16 copy would first copy the whole table.
        return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False)

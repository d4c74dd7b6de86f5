"""The adaptive input embedding (Baevski & Auli 2019, arXiv 1809.10853): rare tokens get narrow rows."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.clusters import ClusteredLayer, cluster_of


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveEmbedding(ClusteredLayer):
    """Token ids to vectors: y = scale * table_i[id - start_i] @ projection_i, where i is the id's cluster.

    The weights are those of the official code. Without cutoffs, or with div_val == 1, there is one table [V, d_embed],
    and a projection if d_embed != d_model. Otherwise each cluster has a table [size_i, d_embed / div_val**i] and a
    projection to d_model, which is omitted only if the widths are equal and `proj_same_dim` is False.

    Examples:
        >>> embedding = AdaptiveEmbedding(vocab_size=1000, d_model=32, cutoffs=(100, 400), div_val=4)
        >>> embedding(tf.constant([[3, 120, 999]])).shape
        TensorShape([1, 3, 32])
        >>> [tuple(table.shape) for table in embedding.tables]
        [(100, 32), (300, 8), (600, 2)]

    Args:
        vocab_size: V.
        d_model: D.
        d_embed: width of the first cluster's rows; None: d_model.
        cutoffs: the ids at which clusters end, increasing, below V.
        div_val: each cluster's rows are this many times narrower than those of the previous cluster.
        proj_same_dim: with div_val > 1, also project clusters whose width already is d_model.
        init_std, proj_init_std: standard deviations of the initial tables and projections.
        scale: factor of the vectors; None: sqrt(d_model), as in Transformer-XL.

    Attributes:
        tables: list of variables; see `table_shapes`.
        projections: list of variable [width, d_model] or None, one per table.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scale: float | None = None, **kwargs: Any):
        super().__init__(vocab_size, d_model, **kwargs)
        self.scale = scale

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AdaptiveEmbedding:
        """The layer of a dict from `get_config`; in those of earlier versions `tied` changes no result."""
        return super().from_config({name: value for name, value in config.items() if name != "tied"})

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights, whose shapes do not depend on the input's."""
        self.tables = self._add_tables()
        self.projections = [self._add_projection(i) for i in range(len(self.tables))]

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Int [..] -> [.., D], in the compute dtype."""
        if self._one_table:
            out = self._lookup(0, tokens)
        else:
            # Every cluster looks up every token, so that shapes are static; the rows of tails are small. Rows of other
            # clusters' tokens are zeroed before the projection, while they are narrow.
            cluster = cluster_of(tokens, self.cutoffs)
            out = 0
            for i, start in enumerate(self.starts):
                out += self._lookup(i, tokens - start, tf.equal(cluster, i))
        scale = self.d_model**0.5 if self.scale is None else self.scale
        return out if scale == 1 else out * tf.constant(scale, self.compute_dtype)

    def _lookup(self, i: int, rows: tf.Tensor, own: tf.Tensor | None = None) -> tf.Tensor:
        """Rows [.., D] of table i, projected; zeros where `own` is false."""
        projection = self.projections[i]
        out = ops.lookup(self.tables[i].value, rows, self.compute_dtype, own)
        return out if projection is None else tf.tensordot(out, tf.cast(projection.value, out.dtype), 1)

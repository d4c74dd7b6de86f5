"""The adaptive input embedding (Baevski & Auli 2019, arXiv 1809.10853): rare tokens get narrow rows."""

import keras
import tensorflow as tf

from txl_tf.layers.clusters import ClusteredLayer, cluster_of


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveEmbedding(ClusteredLayer):
    """Token ids to vectors: y = sqrt(d_model) * table_i[id - start_i] @ projection_i, i the id's cluster.

    The weights are those of the official code: without cutoffs, or with div_val == 1, one table [V, d_embed] and a
    projection where d_embed != d_model; otherwise a table [size_i, d_embed / div_val**i] per cluster and a
    projection to d_model, left out only where the widths are equal and `proj_same_dim` is False.

    Example:
        >>> import numpy as np
        >>> from txl_tf.layers.embedding import AdaptiveEmbedding
        >>> embedding = AdaptiveEmbedding(vocab_size=1000, d_model=32, cutoffs=(100, 400), div_val=4)
        >>> embedding(np.array([[3, 120, 999]])).shape
        TensorShape([1, 3, 32])
        >>> [tuple(table.shape) for table in embedding.tables]
        [(100, 32), (300, 8), (600, 2)]

    Args:
        vocab_size: V.
        d_model: D.
        d_embed: width of the first cluster's rows; None: d_model.
        cutoffs: where the clusters end, rising, below V.
        div_val: each cluster's rows are this many times narrower than the one's before.
        proj_same_dim: with div_val > 1, project also where the width already is d_model.
        init_std, proj_init_std: standard deviations of the initial tables and projections.

    Attributes:
        tables: list of variables; see `table_shapes`.
        projections: list of variable [width, d_model] or None, one per table.
    """

    def build(self, input_shape=None):
        """Makes the weights, whose shapes do not depend on the input's."""
        self.tables = self._add_tables()
        self.projections = [self._add_projection(i) for i in range(len(self.tables))]

    def call(self, tokens):
        """Int [..] -> [.., D], in the compute dtype."""
        if self._one_table:
            out = self._lookup(0, tokens)
        else:
            # Every cluster looks every token up, a foreign one at row 0, and what is not its own is zeroed before
            # the projection, where it is narrow. Shapes stay static, and the tails' rows are small.
            cluster = cluster_of(tokens, self.cutoffs)
            out = 0
            for i, start in enumerate(self.starts):
                own = tf.equal(cluster, i)
                out += self._lookup(i, tf.where(own, tokens - start, 0), own[..., None])
        return out * tf.constant(self.d_model**0.5, self.compute_dtype)

    def _lookup(self, i, rows, keep=None):
        out = tf.cast(tf.gather(self.tables[i].value, rows), self.compute_dtype)
        if keep is not None:
            out = tf.where(keep, out, tf.zeros_like(out))
        projection = self.projections[i]
        return out if projection is None else tf.tensordot(out, tf.cast(projection.value, out.dtype), 1)

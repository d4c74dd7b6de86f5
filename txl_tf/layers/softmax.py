"""The adaptive softmax (Grave et al. 2017, arXiv 1609.04309): exact for all tokens, with static shapes."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.clusters import ClusteredLayer, cluster_of
from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.ops import Cluster, cluster_logits


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveSoftmax(ClusteredLayer):
    """Log-probabilities of the next token. A rare token takes two steps: its cluster, then the token within it.

    The head is a softmax over the c1 most frequent tokens and one entry per tail cluster.
        log p(id) = log p_head(id)                                              for id < c1
        log p(id) = log p_head(entry c1 + i - 1) + log p_tail_i(id - start_i)   in tail cluster i = 1, 2, ..
    The logits of each cluster are (hidden @ projection_i^T) @ table_i^T + bias_i. The head is computed for all tokens,
    each tail only for its own tokens (`ops.cluster_nll`).

    With `tie_weight` the tables are the embedding's, and so is, without cutoffs, the only projection. With
    `proj_share_all_but_first` the tails' projections are the embedding's. All other weights belong to this layer. Tied
    weights are read from the argument `embedding` of each call. A Keras functional model cannot save such an argument:
    use tie_weight=False there, or a keras.Model subclass that owns both layers.

    Examples:
        >>> sizes = dict(vocab_size=1000, d_model=32, cutoffs=(100, 400), div_val=4)
        >>> embedding, softmax = AdaptiveEmbedding(**sizes), AdaptiveSoftmax(**sizes)
        >>> hidden = embedding(tf.constant([[3, 120, 999]]))
        >>> softmax.nll(hidden, tf.constant([[120, 999, -1]]), embedding).shape
        TensorShape([1, 3])
        >>> softmax(hidden, embedding=embedding).shape
        TensorShape([1, 3, 1000])

    Args:
        vocab_size, d_model, d_embed, cutoffs, div_val, proj_same_dim, init_std, proj_init_std: as for
            `AdaptiveEmbedding`.
        tie_weight: use the embedding's tables.
        proj_share_all_but_first: use the embedding's projections for the tails.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        tie_weight: bool = True,
        proj_share_all_but_first: bool = False,
        **kwargs: Any,
    ):
        super().__init__(vocab_size, d_model, **kwargs)
        self.tie_weight = tie_weight
        self.proj_share_all_but_first = proj_share_all_but_first
        # One bool per cluster, like `tie_projs` of the official code.
        self.tie_projs = [False] + [proj_share_all_but_first] * len(self.cutoffs) if self.cutoffs else [tie_weight]

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the weights, whose shapes do not depend on the input's."""
        self.tables = None if self.tie_weight else self._add_tables()
        self.projections = [None if tied else self._add_projection(i) for i, tied in enumerate(self.tie_projs)]
        self.biases = [self._add(f"bias_{i}", (size,), "zeros") for i, size in enumerate(self.sizes)]
        if self.cutoffs:
            self.cluster_table = self._add("cluster_table", (len(self.cutoffs), self.d_embed), "zeros")
            self.cluster_bias = self._add("cluster_bias", (len(self.cutoffs),), "zeros")

    def call(self, hidden: tf.Tensor, *, embedding: AdaptiveEmbedding | None = None) -> tf.Tensor:
        """The same as `log_prob`; `embedding` is keyword-only, since Keras allows only tensors by position."""
        return self.log_prob(hidden, embedding)

    def nll(
        self,
        hidden: tf.Tensor,
        targets: tf.Tensor,
        embedding: AdaptiveEmbedding | None = None,
        clusters: list[Cluster] | None = None,
    ) -> tf.Tensor:
        """The negative log-likelihood of every target [..], in nats, in float32 at least.

        Args:
            hidden: [.., D].
            targets: int [..], below V; -1: no target; loss and gradient are exactly 0 there.
            embedding: the built AdaptiveEmbedding whose weights are tied; None if no weights are tied.
            clusters: the result of `clusters()`, if the caller keeps it in the compute dtype.
        """
        head, *tails = clusters or self.clusters(embedding)
        shape = tf.shape(targets)
        hidden = tf.reshape(self._checked(hidden), [-1, self.d_model])
        targets = tf.reshape(tf.cast(targets, tf.int32), [-1])

        cluster = cluster_of(targets, self.cutoffs)
        nll = 0
        for i, tail in enumerate(tails, start=1):
            labels = tf.where(tf.equal(cluster, i), targets - self.starts[i], -1)
            hidden, nll_tail = ops.cluster_nll(hidden, labels, tail)
            nll += nll_tail
        labels = tf.where(cluster > 0, self.sizes[0] + cluster - 1, tf.maximum(targets, 0))
        nll += tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.head_logits(hidden, head))
        return tf.reshape(tf.where(targets >= 0, nll, 0), shape)

    def log_prob(
        self,
        hidden: tf.Tensor,
        embedding: AdaptiveEmbedding | None = None,
        clusters: list[Cluster] | None = None,
    ) -> tf.Tensor:
        """The log-probabilities of all V tokens, in the order of ids: [.., V], in float32 at least.

        Arguments as for `nll`, clusters by `joined_clusters()`.
        """
        clusters = clusters or self.joined_clusters(embedding)
        hidden = self._checked(hidden)
        logits = [cluster_logits(hidden, cluster) for cluster in clusters]
        if not self.cutoffs:
            return tf.nn.log_softmax(logits[0])
        head, *tails = logits if len(logits) > 1 else tf.split(logits[0], self.sizes, -1)
        entries = cluster_logits(hidden, self._entries(clusters[0].projection))
        log_head = tf.nn.log_softmax(tf.concat([head, entries], -1))
        size = self.sizes[0]
        parts = [log_head[..., :size]]
        for i, tail in enumerate(tails):
            parts.append(log_head[..., size + i, None] + tf.nn.log_softmax(tail))
        return tf.concat(parts, -1)

    def _checked(self, hidden: tf.Tensor) -> tf.Tensor:
        hidden = tf.cast(hidden, self.compute_dtype)
        if hidden.shape[-1] != self.d_model:
            raise ValueError(f"hidden must end in d_model={self.d_model}, not {hidden.shape}")
        return hidden

    def head_logits(self, hidden: tf.Tensor, head: Cluster) -> tf.Tensor:
        """Logits of the most frequent tokens, then of the cluster entries; head: the first element of `clusters()`."""
        if not self.cutoffs:
            return cluster_logits(hidden, head)
        parts = head, self._entries(head.projection)
        rows = hidden.shape[:-1].num_elements()
        if rows is None or rows <= self.d_embed:  # concatenating the logits then copies less than the tables
            return tf.concat([cluster_logits(hidden, part) for part in parts], -1)
        # Cast first: this halves the memory to copy, forward and backward.
        tables = [tf.cast(part.table, self.compute_dtype) for part in parts]
        biases = [part.bias for part in parts]
        return cluster_logits(hidden, Cluster(tf.concat(tables, 0), tf.concat(biases, 0), head.projection))

    def _entries(self, projection: tf.Tensor | None) -> Cluster:
        """The cluster entries of the head; projection: the head's."""
        table, bias = (tf.convert_to_tensor(weight) for weight in (self.cluster_table, self.cluster_bias))
        return Cluster(table, bias, projection)

    def clusters(self, embedding: AdaptiveEmbedding | None) -> list[Cluster]:
        """The output weights as a list of `Cluster`: the head without its cluster entries, then the tails."""
        if not self.built:
            self.build()
        if embedding is None and (self.tie_weight or any(self.tie_projs)):
            raise ValueError("weights are tied to an AdaptiveEmbedding (tie_weight, proj_share_all_but_first): pass it")

        tables = [tf.convert_to_tensor(table) for table in self.output_tables(embedding)]
        if len(tables) < len(self.sizes):
            tables = tf.split(tables[0], self.sizes)
        biases = [tf.convert_to_tensor(bias) for bias in self.biases]
        projections = [
            embedding.projections[0 if self._one_table else i] if embedding is not None and tied else own
            for i, (tied, own) in enumerate(zip(self.tie_projs, self.projections, strict=True))
        ]
        projections = [None if p is None else tf.convert_to_tensor(p) for p in projections]
        return [Cluster(*weights) for weights in zip(tables, biases, projections, strict=True)]

    def joined_clusters(self, embedding: AdaptiveEmbedding | None) -> list[Cluster]:
        """As `clusters`, or a single Cluster for all tokens if they have one table and no projections.

        The whole table is multiplied without a copy; a part of it might be copied first.
        """
        clusters = self.clusters(embedding)
        if not self._one_table or any(cluster.projection is not None for cluster in clusters):
            return clusters
        table = tf.convert_to_tensor(self.output_tables(embedding)[0])
        return [Cluster(table, tf.concat([cluster.bias for cluster in clusters], 0), None)]

    def output_tables(self, embedding: AdaptiveEmbedding | None) -> list[keras.Variable]:
        """The tables of `clusters()` as variables: the embedding's, if they are tied to it."""
        return embedding.tables if embedding is not None and self.tie_weight else self.tables or []

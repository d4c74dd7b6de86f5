"""Reading texts token by token in a loop, with a CachedDecoder: any number of texts, or a few.

Shapes: N layers, B texts, H heads, C slots, D width, d = d_head.
"""

from __future__ import annotations

import typing

import tensorflow as tf

from txl_tf.models.kept import Kept
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder, in_compute_dtype
from txl_tf.ops import Cluster, LayerSlice, few_rows, platform
from txl_tf.ops.few_rows import LayerRing
from txl_tf.ops.stored import Stored, as_bits, stored, stored_alone

FEW = 4
"""The most texts that a `FewTextsReader` reads. It reads the weights once for each text. A TextsReader reads them once
for all texts, but copies them first."""


class Rows(typing.NamedTuple):
    """The weights that a `FewTextsReader` multiplies single rows with.

    matrices: those of `tf.nest.flatten(layer.kernels())`, each of all layers.
    positions: the decoder's.
    clusters: the softmax's `joined_clusters()`, with a Stored in place of each matrix.
    """

    matrices: list[Stored]
    positions: Stored
    clusters: list[Cluster]


class RowWeights(tf.Module):
    """The owner of Rows. In float32 they are made on use, since they are only other forms of the weights.

    In bfloat16 and int8 they are kept, since rounding takes long; after the model's weights change call `refresh`. int8
    is only for a few texts; for more texts the tables of the softmax are then also kept in bfloat16.
    """

    def __init__(self, decoder: CachedDecoder, int8: bool = False):
        super().__init__(name="row_weights")
        self.decoder, self.int8 = decoder, int8
        self.narrow = decoder.model.compute_dtype == "bfloat16"
        self._kept = Kept(self._make) if self.narrow or int8 else None
        self._narrow_clusters = Kept(self._clusters) if self.narrow and int8 else None
        self._made: tuple[list[Stored], list[Cluster]] | None = None

    def value(self) -> Rows:
        """The Rows; make them once before a loop. Outside of a graph they stay until `refresh` or `drop`."""
        if self._kept is not None:
            matrices, clusters = self._kept.tensors()
        elif tf.executing_eagerly():
            matrices, clusters = self._made = self._made or self._make()
        else:
            matrices, clusters = self._make()
        return Rows(matrices, self.positions(), clusters)

    def positions(self) -> Stored:
        """The decoder's positions for one query of each text."""
        return Stored(as_bits(tf.stack(self.decoder.positions.tensors())))

    def narrow_clusters(self) -> list[Cluster]:
        """The softmax's `joined_clusters()` in bfloat16, for many texts."""
        clusters = self.value().clusters if self._narrow_clusters is None else self._narrow_clusters.tensors()

        def narrow(part: tf.Tensor | Stored | None) -> tf.Tensor | None:
            return tf.bitcast(part.numbers[:-1], tf.bfloat16) if isinstance(part, Stored) else part

        return [Cluster(*map(narrow, cluster)) for cluster in clusters]

    def drop(self) -> None:
        """Frees the memory of the Rows."""
        self._made = None

    def refresh(self) -> None:
        """Takes over new values of the model's weights."""
        self.drop()
        for kept in (self._kept, self._narrow_clusters):
            if kept is not None:
                kept.refresh()

    def _make(self) -> tuple[list[Stored], list[Cluster]]:
        layers = self.decoder.model.decoder_layers
        kernels = [layer.kernels() for layer in layers] if self.int8 else self.decoder.kernels()
        matrices = [stored(each, self.int8) for each in zip(*map(tf.nest.flatten, kernels), strict=True)]
        return matrices, self._clusters(self.int8)

    def _clusters(self, int8: bool = False) -> list[Cluster]:
        model, clusters = self.decoder.model, []
        for table, bias, projection in model.softmax.joined_clusters(model.embedding):
            rows = stored_alone(table if int8 else in_compute_dtype(model, table), int8)
            projected = None if projection is None else stored_alone(in_compute_dtype(model, projection))
            clusters.append(Cluster(rows, bias, projected))
        return clusters


class TextsReader:
    """Reads a token of each text, layer after layer, also with those of the RowWeights that are in bfloat16.

    Make it before the loop.
    """

    def __init__(self, decoder: CachedDecoder, rows: RowWeights | None = None):
        self.decoder = decoder
        self.kernels = decoder.kernels()
        self.positions: Stored | list[tf.Tensor] = decoder.positions.tensors()
        self.clusters: list[Cluster] | None = None
        if rows is not None and rows.narrow:
            self.positions, self.clusters = rows.positions(), rows.narrow_clusters()

    def begin(self, cache: Cache) -> Cache:
        """The loop's first state."""
        if not few_rows.available():
            return cache
        # As bits, as they are written. If the state of a loop were not bits, too, XLA would copy each ring twice.
        keys, values = tf.nest.map_structure(as_bits, (cache.keys, cache.values))
        return cache._replace(keys=keys, values=values)

    def read(self, step: tf.Tensor, tokens: tf.Tensor, state: Cache) -> tuple[tf.Tensor, Cache]:
        """Reads int32 [B, 1] in the loop's step of this number: hidden [B, 1, D], and the next state."""
        with platform.single_rows():
            hidden, cache = self.decoder(tokens, self.end(state), self.kernels, self._positions(step))
            return hidden, self.begin(cache)

    def _positions(self, step: tf.Tensor) -> list[LayerSlice] | list[tf.Tensor]:
        if isinstance(self.positions, list):
            return self.positions
        return [LayerSlice(self.positions, _zero(step) + i) for i in range(len(self.decoder.model.decoder_layers))]

    def log_prob(self, step: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """`model.log_prob` of hidden [B, D]."""
        return self.decoder.model.log_prob(hidden, self.clusters)

    def end(self, state: Cache) -> Cache:
        """The Cache of a state."""
        if state.keys[0].dtype == self.decoder.model.compute_dtype:
            return state
        keys, values = tf.nest.map_structure(lambda ring: tf.bitcast(ring, tf.bfloat16), (state.keys, state.values))
        return state._replace(keys=keys, values=values)


class FewTextsState(typing.NamedTuple):
    """A Cache with the rings of all layers in one tensor.

    keys, values: [N, B, H, C, d], `as_bits`.
    start, length: as in Cache.
    """

    keys: tf.Tensor
    values: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor

    @classmethod
    def of(cls, cache: Cache | FewTextsState) -> FewTextsState:
        """The state of a Cache, for one text if its B is not known; a state is returned unchanged."""
        if isinstance(cache, cls):
            return cache
        batch = cache.length.shape[0] or 1
        keys, values = (
            tf.ensure_shape(as_bits(tf.stack(rings)), [None, batch, None, None, None])
            for rings in (cache.keys, cache.values)
        )
        return cls(keys, values, cache.start, cache.length)

    def cache(self, dtype: tf.DType | str) -> Cache:
        """The Cache of a decoder that computes in this dtype."""
        keys, values = (
            tuple(tf.unstack(x if x.dtype == dtype else tf.bitcast(x, dtype))) for x in (self.keys, self.values)
        )
        return Cache(keys, values, self.start, self.length)


class FewTextsReader:
    """Reads a token of each of a few texts, in a loop over the layers. Make it before the loop over tokens.

    Only the loop's body, one layer, is compiled, so that the first token comes sooner. Products of one row read a
    layer's part of what all layers keep in one tensor; products of several rows would copy it first. The decoder has
    `single_rows`.
    """

    def __init__(self, decoder: CachedDecoder, rows: Rows):
        self.decoder = decoder
        self.rows = rows
        self.weights, self.biases = decoder.layers.stacked(), decoder.shared_biases()
        self.layout = decoder.model.decoder_layers[0].kernels()

    def begin(self, state: FewTextsState) -> FewTextsState:
        """The loop's first state."""
        return state

    def read(self, step: tf.Tensor, tokens: tf.Tensor, state: FewTextsState) -> tuple[tf.Tensor, FewTextsState]:
        """Reads int32 [B, 1]: hidden [B, 1, D], and the next state."""
        mask = self.decoder.mask(1, state.length)

        def read_layer(i: tf.Tensor, hidden: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, ...]:
            ring = LayerRing(keys, values, state.start, i)
            hidden, ring = self.decoder.layers.extend_with(
                [weight[i] for weight in self.weights],
                hidden,
                ring=ring,
                kernels=tf.nest.pack_sequence_as(self.layout, [LayerSlice(matrix, i) for matrix in self.rows.matrices]),
                positions=LayerSlice(self.rows.positions, i),
                attention_mask=mask,
                biases=self.biases,
            )
            return i + 1, hidden, ring.all_keys, ring.all_values

        first = (tf.constant(0), self.decoder.model.embedding(tokens), state.keys, state.values)
        n_layer = len(self.decoder.model.decoder_layers)
        with platform.single_rows():
            _, hidden, keys, values = tf.while_loop(lambda i, *_: i < n_layer, read_layer, first)
        return hidden, FewTextsState(keys, values, (state.start + 1) % self.decoder.slots, state.length + 1)

    def log_prob(self, step: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """`model.log_prob` of hidden [B, D], in the step that has read it."""
        zero = _zero(step)
        clusters = [
            Cluster(*(LayerSlice(part, zero) if isinstance(part, Stored) else part for part in cluster))
            for cluster in self.rows.clusters
        ]
        with platform.single_rows():
            return self.decoder.model.log_prob(hidden, clusters)

    def end(self, state: FewTextsState) -> FewTextsState:
        """The state after the loop."""
        return state


def _zero(step: tf.Tensor) -> tf.Tensor:
    """0, computed from the loop's counter. A compiler that knew it would convert what is read there before the loop."""
    return tf.minimum(step, 0)


TokenReader: typing.TypeAlias = TextsReader | FewTextsReader

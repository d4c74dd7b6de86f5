"""Reading texts token by token in a loop: any number of texts, or a few. Both readers have the same methods.

Shapes: N layers, B texts, H heads, C slots, D width, d = d_head.
"""

from __future__ import annotations

import functools
import typing
from typing import Any

import tensorflow as tf

from txl_tf.inference.generation import few_rows
from txl_tf.inference.generation.few_rows import SingleRows
from txl_tf.inference.generation.packed import LayerSlice, Packed, Stored, as_bits, stored, stored_alone, without_bits
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder, in_compute_dtype
from txl_tf.ops import Cluster, KeyValueRing, platform

FEW = 4
"""The most texts that a FewTexts reads. It reads the weights once for each text. A ManyTexts reads them once for all
texts, but copies them first."""


class Reader(typing.Protocol):
    """The methods of a reader that the loop over tokens calls. Its weights and its Cache have forms of its own."""

    def begin(self, cache: Cache) -> Cache:
        """The Cache in the loop's form; a Cache that has it is returned unchanged."""

    def end(self, cache: Cache) -> Cache:
        """The Cache in the form of a CachedDecoder."""

    def packed(self) -> Any:
        """The weights that are kept in the reader's form, to be read outside of the compiled program."""

    def weights(self, packed: Any) -> Any:
        """The weights for `read` and `log_prob`. Make them before the loop."""

    def read(self, weights: Any, step: tf.Tensor, tokens: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """Reads int32 [B, 1] in the loop's step of this number: hidden [B, 1, D], and the next Cache."""

    def log_prob(self, weights: Any, step: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """`model.log_prob` of hidden [B, D], in the step that has read it."""


class ManyTexts:
    """Reads a token of each text, layer after layer. In a loop a Cache of bfloat16 is as bits.

    rows: whether the decoder's rings have a multiple of RUNS slots, as SingleRows needs.
    """

    def __init__(self, decoder: CachedDecoder, rows: bool = False):
        self.decoder = decoder
        self._narrow = rows and decoder.model.compute_dtype == "bfloat16"

    def spec(self) -> Cache:
        """The TensorSpecs of a Cache of any batch size in the loop's form."""
        spec = self.decoder.cache_spec()
        dtype = tf.uint16 if few_rows.available() and spec.keys[0].dtype == tf.bfloat16 else spec.keys[0].dtype
        return spec.changed(lambda rings: tuple(tf.TensorSpec(ring.shape, dtype) for ring in rings))

    def begin(self, cache: Cache) -> Cache:
        """See Reader."""
        if not few_rows.available():
            return cache
        # As bits, as they are written. If the state of a loop were not bits, too, XLA would copy each ring twice.
        return cache.changed(lambda rings: tuple(map(as_bits, rings)))

    def end(self, cache: Cache) -> Cache:
        """See Reader."""
        dtype = self.decoder.model.compute_dtype
        return cache.changed(lambda rings: tuple(without_bits(ring, dtype) for ring in rings))

    def packed(self) -> tuple[()]:
        """Nothing."""
        return ()

    def weights(self, packed: tuple[()] = ()) -> tuple[list, Any, list[Cluster] | None]:
        """Kernels, positions, and the softmax's clusters in bfloat16."""
        decoder, positions = self.decoder, self.decoder.positions.tensors()
        if not self._narrow:
            return decoder.kernels(), positions, None
        model = decoder.model
        clusters = in_compute_dtype(model, model.softmax.joined_clusters(model.embedding))
        return decoder.kernels(), Stored(as_bits(tf.stack(positions))), clusters

    def read(self, weights: Any, step: tf.Tensor, tokens: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """See Reader."""
        kernels, positions, _ = weights
        if self._narrow:
            positions = [LayerSlice(positions, _zero(step) + i) for i in range(len(kernels))]
        with platform.on_cpu(SingleRows):
            hidden, cache = self.decoder(tokens, self.end(cache), kernels, positions)
        return hidden, self.begin(cache)

    def log_prob(self, weights: Any, step: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """See Reader."""
        return self.decoder.model.log_prob(hidden, weights[2])


class FewWeights(typing.NamedTuple):
    """The weights of a FewTexts.

    matrices: those of `tf.nest.flatten(layer.kernels())`, each of all layers.
    positions: the decoder's.
    clusters: the softmax's `joined_clusters()`, with a Stored in place of each matrix.
    """

    matrices: list[Stored]
    positions: Stored
    clusters: list[Cluster]


class FewTexts:
    """Reads a token of each of a few texts, in a loop over the layers, with weights that it keeps packed.

    One layer, the loop's body, is compiled, not N of them, so the first token comes sooner. Products of one row read a
    layer's part of what all layers keep in one tensor; products of several rows would copy it first. In the loop a
    Cache has the rings of all layers in one tensor, keys and values [N, B, H, C, d], as bits.

    The decoder's rings have a multiple of RUNS slots. int8: whether the matrices are in int8.
    """

    def __init__(self, decoder: CachedDecoder, int8: bool = False):
        self.decoder = decoder
        self._layout = tf.nest.map_structure(lambda _: None, decoder.model.decoder_layers[0].kernels())
        count = range(len(tf.nest.flatten(self._layout)))
        matrices = [Packed(functools.partial(self._matrices, i, int8)) for i in count]
        positions = Packed(lambda: Stored(as_bits(tf.stack(decoder.positions.tensors()))))
        clusters = Packed(functools.partial(self._clusters, int8))
        self._parts: Any = FewWeights(matrices, positions, clusters)  # type: ignore[arg-type]

    def _matrices(self, i: int, int8: bool) -> Stored:
        """Matrix i of all layers."""
        matrices = [tf.nest.flatten(layer.kernels())[i] for layer in self.decoder.model.decoder_layers]
        return stored(matrices if int8 else in_compute_dtype(self.decoder.model, matrices), int8)

    def _clusters(self, int8: bool) -> list[Cluster]:
        model, clusters = self.decoder.model, []
        for table, bias, projection in model.softmax.joined_clusters(model.embedding):
            rows = stored_alone(table if int8 else in_compute_dtype(model, table), int8)
            projected = None if projection is None else stored_alone(in_compute_dtype(model, projection))
            clusters.append(Cluster(rows, bias, projected))
        return clusters

    def begin(self, cache: Cache) -> Cache:
        """See Reader. If B is not known, it is 1."""
        if not isinstance(cache.keys, tuple):
            return cache
        shape = [None, cache.length.shape[0] or 1, None, None, None]
        return cache.changed(lambda rings: tf.ensure_shape(as_bits(tf.stack(rings)), shape))

    def end(self, cache: Cache) -> Cache:
        """See Reader."""
        dtype = self.decoder.model.compute_dtype
        return cache.changed(lambda rings: tuple(tf.unstack(without_bits(rings, dtype))))

    def packed(self) -> FewWeights:
        """See Reader."""
        return tf.nest.map_structure(lambda part: part.tensors(), self._parts)

    def parts(self) -> list[Packed]:
        """All Packed, to be refreshed or freed."""
        return tf.nest.flatten(self._parts)

    def weights(self, packed: FewWeights) -> tuple[FewWeights, list[tf.Tensor], Any]:
        """The packed ones, the small weights of all layers, and the biases that layers share."""
        return packed, self.decoder.layers.stacked(), self.decoder.shared_biases()

    def read(self, weights: Any, step: tf.Tensor, tokens: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """See Reader."""
        packed, small, biases = weights
        mask = self.decoder.mask(1, cache.length)

        def read_layer(i: tf.Tensor, hidden: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, ...]:
            hidden, ring = self.decoder.layers.extend_with(
                [weight[i] for weight in small],
                hidden,
                ring=KeyValueRing(LayerSlice(Stored(keys), i), LayerSlice(Stored(values), i), cache.start),
                kernels=tf.nest.pack_sequence_as(self._layout, [LayerSlice(matrix, i) for matrix in packed.matrices]),
                positions=LayerSlice(packed.positions, i),
                attention_mask=mask,
                biases=biases,
            )
            return i + 1, hidden, ring.keys.stored.numbers, ring.values.stored.numbers

        first = (tf.constant(0), self.decoder.model.embedding(tokens), cache.keys, cache.values)
        n_layer = len(self.decoder.model.decoder_layers)
        with platform.on_cpu(SingleRows):
            _, hidden, keys, values = tf.while_loop(lambda i, *_: i < n_layer, read_layer, first)
        return hidden, Cache(keys, values, (cache.start + 1) % self.decoder.slots, cache.length + 1)

    def log_prob(self, weights: Any, step: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """See Reader."""
        zero = _zero(step)
        clusters = [
            Cluster(*(LayerSlice(part, zero) if isinstance(part, Stored) else part for part in cluster))
            for cluster in weights[0].clusters
        ]
        with platform.on_cpu(SingleRows):
            return self.decoder.model.log_prob(hidden, clusters)


def _zero(step: tf.Tensor) -> tf.Tensor:
    """0, computed from the loop's counter. A compiler that knew it would convert what is read there before the loop."""
    return tf.minimum(step, 0)

"""The decoder for inference: it keeps projected keys, values and positions instead of hidden states.

With fixed weights the result is the same as with mems, but the cost per token falls from O(M D^2) to O(M D), since
each state is projected only once. Shapes: B batch, T segment, M memory, C >= M + T_max slots, H heads, d = d_head.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from txl_tf import ops
from txl_tf.devices import host_memory
from txl_tf.errors import InputError
from txl_tf.layers.masks import visible_keys, within_reach_of_segments
from txl_tf.layers.memory_attention import Biases
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.models.alike_layers import AlikeLayers
from txl_tf.models.stack import extend_rings
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops import Cluster, KeyValueRing
from txl_tf.ops.few_rows import Stored, alone, as_bits, stored, stored_alone


class Cache(typing.NamedTuple):
    """The decoder's memory of a batch of texts: a value that is passed in and returned.

    keys, values: tuples of N tensors [B, H, C, d]: one ring per layer.
    start: int32 scalar, the slot of every ring where the next token goes.
    length: int32 [B], tokens read so far of each text, so that texts of different lengths can share a batch.
    """

    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    start: tf.Tensor
    length: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Rows:
    """The layers' weights in the form for products of one row.

    matrices: `tf.nest.flatten(layer.kernels())` of all layers.
    positions: the projected ones of all layers.
    """

    matrices: list[Stored]
    positions: Stored

    def __tf_flatten__(self) -> tuple[tuple, tuple]:
        """For tf.nest: what is no tensor, and the tensors."""
        return (), (self.matrices, self.positions)

    @classmethod
    def __tf_unflatten__(cls, other: tuple, tensors: tuple) -> Rows:
        """The Rows of these parts."""
        return cls(*tensors)


class CachedDecoder(tf.Module):
    """Reads tokens with fixed weights: the same results as `model(tokens, mems, reach=reach)`.

    Args:
        model: a TransformerXL. After its weights change call `refresh`.
        reach: a Reach; memory takes the place of an extended context (`by_token`).
        max_segment: the length of the longest segment that is read at once.
        whole_segments: whether all segments have that length, which makes writing the ring cheaper.
        segments: how many segments of the same length are read at once as one of `max_segment` tokens. The results are
            those of reading one after another: a query sees the M keys before its own segment.
        keep_weights: whether to keep each layer's `kernels()` and the softmax's `clusters()`, too, in the compute
            dtype: this needs memory, but saves the time to compute them in each call.
        one_row: whether `rows` will be called, if this is a machine without accelerators. In bfloat16 and int8 the
            weights and the softmax's tables are kept once more for it, in bfloat16 the positions, too; and in bfloat16
            with int8 the tables twice, since only a few texts are generated in int8.
        int8: whether the matrices of `rows` and the tables of `row_clusters` are in int8. Otherwise they are in the
            compute dtype.

    Raises:
        InputError: the model's attn_type is not transformer_xl, or the memory of a text is larger than the machine's.

    Attributes:
        ahead: how many tokens a row's position may be after the newest key's.
        reads_few_rows: whether a `FewTextsReader` can read with it.
    """

    ahead = 0
    reads_few_rows = True

    def __init__(
        self,
        model: TransformerXL,
        reach: Reach,
        max_segment: int,
        whole_segments: bool = False,
        segments: int = 1,
        keep_weights: bool = False,
        one_row: bool = False,
        int8: bool = False,
    ):
        super().__init__(name="cached_decoder")
        if not model.attention.cacheable:
            raise InputError(
                f"attn_type={model.config.attn_type} cannot generate, score text or be exported: the cache of "
                "projected keys works only with transformer_xl; scripts/evaluate.py works with all"
            )
        self.model = model
        self.layers = AlikeLayers(model.decoder_layers)
        self.reach = reach = reach.by_token
        self.int8 = int8
        self.max_segment = max_segment
        self.segments = segments
        self.is_narrow = model.compute_dtype == "bfloat16"
        self.has_rows = one_row and self.reads_few_rows and ops.implementation().reads_rows
        self._rows: Rows | None = None
        # There may be more slots than needed: the mask hides keys that are too old.
        whole_tiles = self.is_narrow or segments > 1
        self.slots = ops.ring_slots(reach.mem_len + max_segment, self.has_rows, whole_tiles)
        host_memory.require({"keys and values of a text (mem_len, n_layer, d_model)": self._bytes_of_a_text()})
        self._block = math.gcd(max_segment, self.slots) if whole_segments else 1
        self.kept = tf.nest.map_structure(
            lambda made: made if made is None else tf.Variable(made, trainable=False), self._make_kept(keep_weights)
        )

    def _bytes_of_a_text(self) -> int:
        """The size of the ring for one text, if it is in this machine's memory; 0 if another device has it."""
        if not ops.implementation().on_host:
            return 0
        config = self.model.config
        vectors = 2 * config.n_layer * config.n_head * config.d_head * self.slots
        return vectors * tf.as_dtype(self.model.compute_dtype).size

    def refresh(self) -> None:
        """Computes the kept tensors again from the model's current weights."""
        self.drop_rows()
        made = self._make_kept(bool(self.kept.kernels))
        tf.nest.map_structure(lambda kept, made: kept is None or kept.assign(made), self.kept, made)

    def initial_cache(self, batch_size: int | tf.Tensor) -> Cache:
        """The cache before any text: the keys and values of zero vectors. batch_size may be a tensor."""
        slots = [batch_size, 1, self.slots, 1]
        zeros = [layer.project_zero_memory() for layer in self.model.decoder_layers]
        keys, values = (tuple(tf.tile(slot, slots) for slot in part) for part in zip(*zeros, strict=True))
        return Cache(keys, values, start=tf.constant(0), length=tf.zeros([batch_size], tf.int32))

    def kernels(self) -> list[tuple]:
        """Each layer's `kernels()`, to be computed once before a loop."""
        return tf.nest.map_structure(tf.convert_to_tensor, self.kept.kernels or self._make_kernels())

    def rows(self) -> Rows:
        """What products of one row need, to be computed once before a loop.

        Called eagerly it is kept for the next call, until `drop_rows` or `refresh`.
        """
        if self._rows is not None and tf.executing_eagerly():
            return self._rows
        matrices = [_as_tensors(of_all_layers) for of_all_layers in self.kept.rows or self._make_rows()]
        rows = Rows(matrices, self.row_positions())
        if tf.executing_eagerly():
            self._rows = rows
        return rows

    def drop_rows(self) -> None:
        """Frees the memory of what `rows` has kept."""
        self._rows = None

    def row_positions(self) -> Stored:
        """The projected positions of all layers, for one query of each text; compute them once before a loop."""
        return _as_tensors(self.kept.row_positions or _stacked(self.kept.positions))

    def row_clusters(self) -> list[Cluster]:
        """The softmax's `joined_clusters()` with tables and projections as by `stored_alone`.

        In float32 they are not kept: a program that XLA compiles reads the weights where they are.
        """
        return _as_tensors(self.kept.row_clusters or self._make_row_clusters(self.int8))

    def narrow_clusters(self) -> list[Cluster]:
        """The softmax's `joined_clusters()` in bfloat16 for several rows, of a decoder with `has_rows` in bfloat16.

        They are kept, since XLA for CPU would round them again in each call, at 10 ns for each number.
        """

        def narrow(part: tf.Tensor | Stored | None) -> tf.Tensor | None:
            return tf.bitcast(alone(part), tf.bfloat16) if isinstance(part, Stored) else part

        clusters = _as_tensors(self.kept.narrow_clusters or self.kept.row_clusters)
        return [Cluster(*map(narrow, cluster)) for cluster in clusters]

    def cache_spec(self) -> Cache:
        """The TensorSpecs of a Cache of any batch size."""
        config = self.model.config
        ring = tf.TensorSpec([None, config.n_head, self.slots, config.d_head], self.model.compute_dtype)
        rings = (ring,) * config.n_layer
        return Cache(rings, rings, start=tf.TensorSpec([], tf.int32), length=tf.TensorSpec([None], tf.int32))

    def __call__(
        self, tokens: tf.Tensor, cache: Cache, kernels: list[tuple] | None = None, positions: list | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """Reads a segment.

        Args:
            tokens: int32 [B, T], T static and at most max_segment (with whole_segments: equal to it).
            cache: the Cache of the tokens before.
            kernels: the result of `kernels()`; None: computed here.
            positions: each layer's positions; None: the kept ones. With T = 1 they may be slices of `row_positions()`.

        Returns:
            hidden [B, T, D], for `model.log_prob` and `model.nll`, and the new Cache.
        """
        t_len = tokens.shape[1]
        hidden = self.embedded(tokens)
        rings = [KeyValueRing(*ring, cache.start) for ring in zip(cache.keys, cache.values, strict=True)]
        hidden, new_rings = extend_rings(
            self.layers,
            hidden,
            rings,
            kernels=kernels or self.kernels(),
            block=self._block,
            positions=positions or [tf.convert_to_tensor(position) for position in self.kept.positions],
            attention_mask=self.mask(t_len, cache.length),
            biases=self.shared_biases(),
        )
        keys, values, starts = zip(*new_rings, strict=True)
        return hidden, Cache(keys, values, starts[0], cache.length + t_len)

    def embedded(self, tokens: tf.Tensor) -> tf.Tensor:
        """The first layer's input of tokens [B, T]."""
        return self.model.embedding(tokens)

    def shared_biases(self) -> Biases | None:
        """The biases that the layers share, if they do, as tensors."""
        shared = self.model.shared_biases
        return None if shared is None else tuple(map(tf.convert_to_tensor, shared))

    def mask(self, t_len: int, length: tf.Tensor) -> tf.Tensor:
        """Which keys a segment of T tokens sees: [.., T, C]; length: a Cache's, before the segment."""
        if self.reach.mem_init == "empty":
            filled = tf.minimum(length, self.reach.mem_len)
        else:
            filled = tf.fill([1], self.reach.mem_len)  # hides slots older than M; zero vectors are visible
        m_len = self.slots - t_len
        visible = visible_keys(t_len, m_len, self.reach.window, filled)
        if self.segments == 1:
            return visible
        return visible & within_reach_of_segments(t_len, m_len, t_len // self.segments, self.reach.mem_len)

    def nll(self, hidden: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """`model.nll`."""
        return self.model.nll(hidden, targets, self.kept.clusters or None)

    def _make_kept(self, keep_weights: bool) -> _Kept:
        """The tensors computed from the model's weights, in the compute dtype."""
        kept = _Kept(self._project_positions())
        if self.has_rows and (self.is_narrow or self.int8):
            kept = kept._replace(rows=self._make_rows(), row_clusters=self._make_row_clusters(self.int8))
        if self.has_rows and self.is_narrow:
            kept = kept._replace(row_positions=_stacked(kept.positions))
        if self.has_rows and self.is_narrow and self.int8:
            kept = kept._replace(narrow_clusters=self._make_row_clusters(int8=False))
        if keep_weights:
            kept = kept._replace(kernels=self._make_kernels(), clusters=self._make_clusters())
        return kept

    def _make_rows(self) -> list[Stored]:
        """The matrices of all layers."""
        layers = [layer.kernels() for layer in self.model.decoder_layers] if self.int8 else self._make_kernels()
        matrices = zip(*map(tf.nest.flatten, layers), strict=True)
        return [stored(of_all_layers, self.int8) for of_all_layers in matrices]

    def _make_row_clusters(self, int8: bool) -> list[Cluster]:
        """See `row_clusters`."""
        clusters = []
        for table, bias, projection in self.model.softmax.joined_clusters(self.model.embedding):
            rows = stored_alone(table if int8 else self._in_compute_dtype(table), int8)
            projected = None if projection is None else stored_alone(self._in_compute_dtype(projection))
            clusters.append(Cluster(rows, bias, projected))
        return clusters

    def _make_clusters(self) -> list[Cluster]:
        """The softmax's `clusters()`, in the compute dtype."""
        return self._in_compute_dtype(self.model.softmax.clusters(self.model.embedding))

    def _make_kernels(self) -> list[tuple]:
        """Each layer's kernels, in the compute dtype."""
        return self._in_compute_dtype([layer.kernels() for layer in self.model.decoder_layers])

    def _project_positions(self) -> list[tf.Tensor]:
        """Each layer's projected positions [H, C, d] of the distances C-1, .., 0, in the compute dtype."""
        distances = key_distances(self.slots + self.ahead, self.reach.clamp_len)
        encoding = sinusoids(distances, self.model.config.d_model, self.model.variable_dtype)
        projected = [layer.attention.project_positions(encoding) for layer in self.model.decoder_layers]
        return self._in_compute_dtype(projected)

    def _in_compute_dtype(self, weights: Any) -> Any:
        """Casts lists and tuples of tensors, except vectors: a bias is small, and is added to float32 logits."""

        def cast(weight: tf.Tensor | None) -> tf.Tensor | None:
            return weight if weight is None or len(weight.shape) < 2 else tf.cast(weight, self.model.compute_dtype)

        return tf.nest.map_structure(cast, weights)


class _Kept(typing.NamedTuple):
    """Tensors that a CachedDecoder computes once from the model's weights."""

    positions: list
    kernels: Sequence[tuple] = ()
    clusters: Sequence[tuple] = ()
    rows: Sequence[Stored] = ()
    row_positions: Stored | None = None
    row_clusters: Sequence[Cluster] = ()
    narrow_clusters: Sequence[Cluster] = ()


def _stacked(positions: Sequence[tf.Tensor]) -> Stored:
    return Stored(as_bits(tf.stack(positions)))


def _as_tensors(kept: Any) -> Any:
    """The parts of a nest of variables or tensors, as tensors."""
    return tf.nest.map_structure(lambda part: part if part is None else tf.convert_to_tensor(part), kept)

"""The decoder for inference: it keeps projected keys, values and positions instead of hidden states.

With fixed weights the result is the same as with mems, but the cost per token falls from O(M D^2) to O(M D), since
each state is projected only once. Shapes: B batch, T segment, M memory, C >= M + T_max slots, H heads, d = d_head.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.devices import host_memory
from txl_tf.errors import InputError
from txl_tf.layers.attention import Biases
from txl_tf.layers.masks import visible_keys, within_reach_of_segments
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.models.alike_layers import AlikeLayers
from txl_tf.models.kept import Kept
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops import KeyValueRing
from txl_tf.ops.scores import TILE


class Cache(typing.NamedTuple):
    """The decoder's memory of a batch of texts: a value that is passed in and returned.

    keys, values: tuples of N tensors [B, H, C, d]: one ring per layer. In a loop over tokens they may have another
        form, that of its reader.
    start: int32 scalar, the slot of every ring where the next token goes.
    length: int32 [B], tokens read so far of each text, so that texts of different lengths can share a batch.
    """

    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    start: tf.Tensor
    length: tf.Tensor

    def changed(self, change: Callable[[Any], Any]) -> Cache:
        """The Cache with change(keys) and change(values)."""
        return self._replace(keys=change(self.keys), values=change(self.values))


class CachedDecoder(tf.Module):
    """Reads tokens with fixed weights: the same results as `model(tokens, mems, reach=reach)`.

    Args:
        model: a TransformerXL. After its weights change call `positions.refresh`.
        reach: a Reach; memory takes the place of an extended context (`by_token`).
        max_segment: the length of the longest segment that is read at once.
        whole_segments: whether all segments have that length, so that writing the ring is cheaper.
        segments: how many segments of the same length are read at once as one of `max_segment` tokens. The results are
            those of reading one after another: a query sees the M keys before its own segment.
        multiple: C is a multiple of it; None: of what suits the dtype.

    Attributes:
        slots: C. There may be more than needed: the mask hides keys that are too old.
        positions: the Kept projected positions of each layer, N of [H, C, d], of the distances C-1, .., 0.
        ahead: how many tokens after the newest key a row's position may be.
        reads_few_rows: whether a `FewTexts` can read with it.

    Raises:
        InputError: the model's attn_type is not transformer_xl, or the memory of a text is larger than the machine's.
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
        multiple: int | None = None,
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
        self.segments = segments
        whole_tiles = model.compute_dtype == "bfloat16" or segments > 1
        multiple = multiple or (TILE if whole_tiles else 1)
        self.slots = math.ceil((reach.mem_len + max_segment) / multiple) * multiple
        self._block = math.gcd(max_segment, self.slots) if whole_segments else 1
        vectors = 2 * model.config.n_layer * model.config.n_head * model.config.d_head * self.slots
        size = vectors * tf.as_dtype(model.compute_dtype).size
        host_memory.require_on_cpus({"keys and values of a text (mem_len, n_layer, d_model)": size})
        self.positions = Kept(self._project_positions)

    def _project_positions(self) -> list[tf.Tensor]:
        distances = key_distances(self.slots + self.ahead, self.reach.clamp_len)
        encoding = sinusoids(distances, self.model.config.d_model, self.model.variable_dtype)
        projected = [layer.attention.project_positions(encoding) for layer in self.model.decoder_layers]
        return [tf.cast(each, self.model.compute_dtype) for each in projected]

    def initial_cache(self, batch_size: int | tf.Tensor) -> Cache:
        """The cache before any text: the keys and values of zero vectors. batch_size may be a tensor."""
        slots = [batch_size, 1, self.slots, 1]
        zeros = [layer.project_zero_memory() for layer in self.model.decoder_layers]
        keys, values = (tuple(tf.tile(slot, slots) for slot in part) for part in zip(*zeros, strict=True))
        return Cache(keys, values, start=tf.constant(0), length=tf.zeros([batch_size], tf.int32))

    def cache_spec(self) -> Cache:
        """The TensorSpecs of a Cache of any batch size."""
        config = self.model.config
        ring = tf.TensorSpec([None, config.n_head, self.slots, config.d_head], self.model.compute_dtype)
        rings = (ring,) * config.n_layer
        return Cache(rings, rings, start=tf.TensorSpec([], tf.int32), length=tf.TensorSpec([None], tf.int32))

    def kernels(self) -> list[tuple]:
        """Each layer's `kernels()` in the compute dtype, to be computed once before a loop."""
        return in_compute_dtype(self.model, [layer.kernels() for layer in self.model.decoder_layers])

    def __call__(
        self,
        tokens: tf.Tensor,
        cache: Cache,
        kernels: Sequence[tuple] | None = None,
        positions: Sequence[Any] | None = None,
    ) -> tuple[tf.Tensor, Cache]:
        """Reads a segment: hidden [B, T, D], for `model.log_prob` and `model.nll`, and the new Cache.

        Args:
            tokens: int32 [B, T], T static and at most max_segment (with whole_segments: equal to it).
            cache: the Cache of the tokens before.
            kernels: the result of `kernels()`; None: computed here.
            positions: each layer's, if the caller has them in another form.
        """
        hidden = self.embedded(tokens)
        kernels, positions = kernels or self.kernels(), positions or self.positions.tensors()
        shared = {"attention_mask": self.mask(tokens.shape[1], cache.length), "biases": self.shared_biases()}
        new_rings = []
        for i, slots in enumerate(zip(cache.keys, cache.values, strict=True)):
            own = {"positions": positions[i], "kernels": kernels[i], "block": self._block}
            hidden, ring = self.layers.extend(i, hidden, ring=KeyValueRing(*slots, cache.start), **own, **shared)
            new_rings.append(ring)
        keys, values, starts = zip(*new_rings, strict=True)
        return hidden, Cache(keys, values, starts[0], cache.length + tokens.shape[1])

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


def in_compute_dtype(model: TransformerXL, weights: Any) -> Any:
    """A nest of weights in the model's compute dtype; vectors stay as they are, since biases are added in float32."""

    def cast(weight: tf.Tensor | None) -> tf.Tensor | None:
        return weight if weight is None or len(weight.shape) < 2 else tf.cast(weight, model.compute_dtype)

    return tf.nest.map_structure(cast, weights)

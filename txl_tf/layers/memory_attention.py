"""Multi-head attention over memory and segment: the base class for all kinds of positions.

Everything that depends on the kind of positions is a method or attribute: the weights, the positions that layers get,
the number of operations, whether keys can be cached. The kinds are in attention.py, segment_attention.py,
shaw_attention.py and absolute_attention.py.
"""

from __future__ import annotations

import typing
from collections.abc import Callable

import keras
import tensorflow as tf

from txl_tf.layers import bfloat16_products, scopes
from txl_tf.layers.attention_core import attend, attend_one_query, positions_for_lanes
from txl_tf.layers.bfloat16_products import product, sum_over_rows
from txl_tf.layers.dropout import checked_rate
from txl_tf.layers.gradients import custom_gradient
from txl_tf.layers.key_value_ring import KeyValueRing, LayerRing
from txl_tf.layers.masks import visible_keys
from txl_tf.layers.row_products import LayerSlice, Matrix, multiply


class Kernels(typing.NamedTuple):
    """The projections as matrices; the query's is scaled by 1 / sqrt(d).

    query, key, value: [D, H d].
    output: [H d, D].
    """

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix


class PositionDropout(typing.NamedTuple):
    """The dropout of positions.

    rate: of dropout.
    seed: int32 [2], for positions that all lanes share.
    embedding_seed: int32 [B, 2], the seed of the embedded segment's dropout.
    shared_axis: as for `dropout`.
    """

    rate: float = 0.0
    seed: tf.Tensor | None = None
    embedding_seed: tf.Tensor | None = None
    shared_axis: int | None = None


Biases = tuple[tf.Tensor, ...]
"""Global biases that layers share, each [H, d]: (u, v), or (u, v, w) with segments."""

Ring: typing.TypeAlias = KeyValueRing | LayerRing

HiddenShape = tuple[int | None, int | None, int]
"""Of hidden states, [B, T, D]: B and T may be unknown."""


class MemoryAttention(keras.layers.Layer):
    """Attention of a segment over its memory and itself. Subclasses define how it uses positions.

    A score is (query . key + terms of the subclass) / sqrt(d_head). No gradient flows into the memory.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D].

    Args:
        n_head: H.
        d_head: size of one head, d.
        dropatt: dropout rate of the attention probabilities.
        init_std: the projections start as normal(0, init_std).

    Attributes:
        cacheable: whether keys, values and positions can be projected once and kept (`extend`). This requires that they
            do not depend on the segment that is read.
        bidirectional: whether a query may see keys in its future.
        shares_biases: whether layers can share biases, which are then passed to every call.
        learns_through_memory: whether weights act on the memory before its keys are projected, so that their gradient
            passes through the memory's keys and values.
        options: the names of the constructor's arguments that only this kind of attention has.

    Raises:
        ValueError: sizes that are not positive, inputs whose shapes do not fit together.
    """

    cacheable = False
    bidirectional = False
    shares_biases = False
    learns_through_memory = False
    options: tuple[str, ...] = ()

    def __init__(self, n_head: int, d_head: int, *, dropatt: float = 0.0, init_std: float = 0.02, **kwargs: typing.Any):
        super().__init__(**kwargs)
        if n_head < 1 or d_head < 1:
            raise ValueError(f"{type(self).__name__}: n_head and d_head must be positive, got {n_head} and {d_head}")
        self.n_head = n_head
        self.d_head = d_head
        self.dropatt = checked_rate(dropatt, "dropatt", self)
        self.init_std = init_std

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the projections for inputs [B, T, D]."""
        d_model, heads = hidden_shape[-1], (self.n_head, self.d_head)
        self.query_kernel = self._weight("query_kernel", d_model, *heads)
        self.key_kernel = self._weight("key_kernel", d_model, *heads)
        self.value_kernel = self._weight("value_kernel", d_model, *heads)
        self.build_positions(d_model)
        self.output_kernel = self._weight("output_kernel", *heads, d_model)

    def build_positions(self, d_model: int) -> None:
        """Creates the weights of the positions, if there are any."""

    def call(
        self,
        hidden: tf.Tensor,
        mems: tf.Tensor | None = None,
        positions: tf.Tensor | None = None,
        attention_mask: tf.Tensor | None = None,
        biases: Biases | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Attends from each position of the segment.

        Args:
            hidden: [B, T, D].
            mems: [B, M, D] states before the segment, oldest first; None: no memory.
            positions: the subclass's positions for the distances K-1, .., 0, or K-1, .., -(T-1) if bidirectional;
                None: its default.
            attention_mask: bool, true where a query may see a key, [T, K] or broadcastable to [B, H, T, K];
                None: causal, or all keys if bidirectional.
            biases: if layers share them: (u, v), each [H, d].
            seed: int32 [2], [B, 2] or None, as for `dropout`.
            training: whether to drop attention probabilities.

        Returns:
            [B, T, D].
        """
        hidden, memory = self.place(hidden, mems, positions)
        return self.read(hidden, memory, positions, attention_mask, biases, seed, training)

    def place(
        self, hidden: tf.Tensor, mems: tf.Tensor | None = None, positions: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The inputs of `read`: the segment [B, T, D] and the memory [B, M, D] or None.

        Absolute positions are added here. No gradient flows into mems.
        """
        self._check(hidden.shape, None if mems is None else mems.shape, None if positions is None else positions.shape)
        return hidden, None if mems is None else tf.stop_gradient(mems)

    def _check(self, hidden: tf.TensorShape, mems: tf.TensorShape | None, positions: tf.TensorShape | None) -> None:
        """Raises ValueError, which names the sizes, if the shapes of the inputs do not fit together."""
        where = f"{type(self).__name__} {self.name}"
        batch, t_len, d_model = hidden if len(hidden) == 3 else (None,) * 3
        if t_len is None or d_model != self.query_kernel.shape[0]:
            raise ValueError(
                f"{where}: hidden must be [B, T, D] with T known and D={self.query_kernel.shape[0]}, got {hidden}"
            )
        m_len = 0
        if mems is not None:
            fits = len(mems) == 3 and mems[1] is not None and mems[2] == d_model
            if not fits or (None not in (batch, mems[0]) and batch != mems[0]):
                raise ValueError(f"{where}: mems must be [B, M, D] to hidden's {hidden}, got {mems}")
            m_len = mems[1]
        if positions is not None:
            *_, given, width = (*positions, d_model) if len(positions) == 1 else positions
            needed = m_len + t_len + (t_len - 1 if self.bidirectional else 0)
            if given != needed or width != d_model:
                raise ValueError(
                    f"{where}: {m_len + t_len} keys (memory and segment) need {needed} positions, "
                    f"[K] distances or [K, D] encodings, got {given} of shape {positions}"
                )

    def read(
        self,
        hidden: tf.Tensor,
        memory: tf.Tensor | None,
        positions: tf.Tensor | None = None,
        attention_mask: tf.Tensor | None = None,
        biases: Biases | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
        look: Callable[[tf.Tensor], None] | None = None,
    ) -> tf.Tensor:
        """The second part of `call`, after `place`; a layer with pre-LN normalises between the two.

        Args:
            hidden, memory: from `place`.
            positions, attention_mask, biases, seed, training: as for `call`.
            look: called with the attention probabilities [B, H, T, K], in the dtype of the weights.
        """
        t_len = hidden.shape[1]
        k_len = t_len + (0 if memory is None else memory.shape[1])
        attention_mask = self._checked_mask(attention_mask, t_len, k_len)
        if positions is None:
            positions = self.default_positions(k_len, hidden)
        kernels = self.kernels()
        key, value = self._keys_and_values(memory, hidden, kernels)
        query = self.project_query(hidden, kernels)
        position = positions_for_lanes(self.project_positions(positions), query, training)
        content_query, position_query = self.content_query(query, biases), self.position_query(query, biases)
        if look is not None:
            parts = (content_query, key, position_query, position)
            look(self._probabilities(*parts, attention_mask))
        rate, causal = self.dropatt if training else 0.0, not self.bidirectional
        weighted = attend(
            content_query, key, value, attention_mask, position_query, position, rate, seed, causal=causal
        )
        return self.combine(weighted, kernels)

    def _probabilities(
        self,
        content_query: tf.Tensor,
        key: tf.Tensor,
        position_query: tf.Tensor | None,
        position: tf.Tensor | None,
        mask: tf.Tensor,
        places: tf.Tensor | None = None,
        extra: Callable[[int, int, int], tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """[B, H, T, K], in the dtype of the weights; arguments as for `attend`."""
        content_query, key, position_query, position = (
            None if part is None else tf.cast(part, self.variable_dtype)
            for part in (content_query, key, position_query, position)
        )
        # With each key's number, one-hot, as its value, the weighted values are the probabilities.
        numbers = tf.broadcast_to(tf.eye(key.shape[2], dtype=key.dtype), [*tf.unstack(tf.shape(key)[:3]), key.shape[2]])
        return attend(
            content_query,
            key,
            numbers,
            mask,
            position_query,
            position,
            causal=not self.bidirectional,
            places=places,
            extra=extra,
        )

    def _checked_mask(self, mask: tf.Tensor | None, t_len: int, k_len: int) -> tf.Tensor:
        """The mask, or the default one; ValueError if it is not [.., T, K]."""
        if mask is None:
            return self.default_mask(t_len, k_len - t_len)
        if any(size not in (1, n) for size, n in zip(mask.shape[-2:], (t_len, k_len), strict=True)):
            raise ValueError(
                f"{type(self).__name__} {self.name}: attention_mask must end in [T, K] = [{t_len}, {k_len}], "
                f"got {mask.shape}"
            )
        return mask

    def default_mask(self, t_len: int, m_len: int) -> tf.Tensor:
        """The mask [T, K] that is used if none is given."""
        if self.bidirectional:
            return tf.ones([t_len, m_len + t_len], tf.bool)
        return visible_keys(t_len, m_len, self.window(m_len))

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """The `positions` of each of N layers of this kind of attention.

        Args:
            n_layer: N.
            hidden: the embedded segment [B, T, D], for its shape and dtype.
            m_len: M.
            clamp_len: larger distances are treated as this one; <= 0: no limit.
            drop: dropout of the positions; None: none.
        """
        return [None] * n_layer

    @staticmethod
    def position_operations(k_len: int, scores: int, d_model: int, width: int) -> int:
        """The operations for positions in one layer's training step: see `training_flops`.

        Args:
            k_len: K.
            scores: B T K.
            d_model: D.
            width: H d.
        """
        return 0

    def window(self, m_len: int) -> int | None:
        """The number of keys a query sees if no mask is given; None: all of its past."""
        return None

    def default_positions(self, k_len: int, hidden: tf.Tensor) -> tf.Tensor | None:
        """The `positions` of K keys that are used if none are given."""
        return None

    def project_positions(self, positions: tf.Tensor | None) -> tf.Tensor | None:
        """The vectors [H, K, d'] to be multiplied with `position_query`; None: there are none."""
        return None

    def content_query(self, query: tf.Tensor, biases: Biases | None) -> tf.Tensor:
        """The queries [B, H, T, d] to be multiplied with the keys."""
        return query

    def position_query(self, query: tf.Tensor, biases: Biases | None) -> tf.Tensor | None:
        """The queries [B, H, T, d'] to be multiplied with `project_positions`; None: there are none."""
        return None

    def extend(
        self,
        hidden: tf.Tensor,
        ring: Ring,
        position: tf.Tensor | LayerSlice,
        attention_mask: tf.Tensor,
        biases: Biases | None = None,
        kernels: Kernels | None = None,
        block: int = 1,
    ) -> tuple[tf.Tensor, Ring]:
        """Writes the segment's keys and values into the ring, then attends from each of its positions to the ring.

        Args:
            hidden: [B, T, D], T <= C.
            ring: a KeyValueRing; or a LayerRing, if position and all kernels are LayerSlices.
            position: projected positions [H, C, d] of the distances C-1, .., 0.
            attention_mask: as for `call`, its C columns from the oldest key to the newest.
            biases: as for `call`.
            kernels: the result of `kernels()`, if the caller computes it once for many calls.
            block: C, T and the ring's start are multiples of it.

        Returns:
            [B, T, D], and the ring with the segment's keys and values.
        """
        kernels = kernels or self.kernels()
        key, value = self.project_context(hidden, kernels)
        ring = ring.written(key, value, block)
        query = self.project_query(hidden, kernels)
        queries = self.content_query(query, biases), self.position_query(query, biases)
        attend_to = attend_one_query if isinstance(position, LayerSlice) else attend
        output = attend_to(queries[0], ring.keys, ring.values, attention_mask, queries[1], position, oldest=ring.start)
        return self.combine(output, kernels), ring

    def kernels(self) -> Kernels:
        """The Kernels, as tensors.

        Compute them before a loop over tokens: if the loop reshapes the matrix itself, the product of one row with it
        takes XLA for CPU five times as long.
        """
        width = self.n_head * self.d_head
        query, key, value = (
            tf.reshape(kernel, [-1, width]) for kernel in (self.query_kernel, self.key_kernel, self.value_kernel)
        )
        return Kernels(query * self.d_head**-0.5, key, value, tf.reshape(self.output_kernel, [width, -1]))

    def project_query(self, hidden: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Queries of [B, T, D], scaled by 1 / sqrt(d): [B, H, T, d]."""
        return self._split_heads(multiply("btD,Dn->btn", hidden, kernels.query))

    def project_context(self, context: tf.Tensor, kernels: Kernels) -> tuple[tf.Tensor, tf.Tensor]:
        """Keys and values of [B, K, D]: each [B, H, K, d]."""
        return tuple(
            self._split_heads(multiply("bkD,Dn->bkn", context, kernel)) for kernel in (kernels.key, kernels.value)
        )

    def _keys_and_values(
        self, memory: tf.Tensor | None, hidden: tf.Tensor, kernels: Kernels
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Keys and values of memory [B, M, D] and segment [B, T, D]: each [B, H, K, d]."""
        if memory is None:
            return self.project_context(hidden, kernels)
        return tuple(self._project_both(memory, hidden, kernel) for kernel in (kernels.key, kernels.value))

    def _project_both(self, memory: tf.Tensor, hidden: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """[B, H, M + T, d], keys or values, of memory [B, M, D] and segment [B, T, D].

        The gradient equals TensorFlow's. It uses one matmul for the kernel, where TensorFlow would add two. It uses one
        matmul each for memory and segment, so that compilers remove the memory's if its gradient is not used.
        """

        @custom_gradient
        def run(
            memory: tf.Tensor, hidden: tf.Tensor, kernel: tf.Tensor
        ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
            context = tf.concat([memory, hidden], axis=1)

            def gradient(d_heads: tf.Tensor) -> tuple[tf.Tensor, ...]:
                with tf.name_scope(scopes.ATTENTION):
                    parts = tf.split(d_heads, [memory.shape[1], hidden.shape[1]], axis=2)
                    if bfloat16_products.is_used(kernel.dtype):
                        d_parts = [product(self._merge_heads(part), kernel, transpose_b=True) for part in parts]
                        return *d_parts, sum_over_rows(context, self._merge_heads(d_heads))
                    d_memory, d_hidden = (tf.einsum("bkn,Dn->bkD", self._merge_heads(part), kernel) for part in parts)
                    return d_memory, d_hidden, tf.einsum("bkD,bkn->Dn", context, self._merge_heads(d_heads))

            return self._split_heads(multiply("bkD,Dn->bkn", context, kernel)), gradient

        return run(memory, hidden, kernel)

    def combine(self, head_output: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The output projection of weighted values [B, H, T, d]: [B, T, D]."""
        return multiply("btn,nD->btD", self._merge_heads(head_output), kernels.output)

    def _split_heads(self, merged: tf.Tensor) -> tf.Tensor:
        """[B, K, H d] -> [B, H, K, d]."""
        return bfloat16_products.heads_first(tf.reshape(merged, [-1, merged.shape[1], self.n_head, self.d_head]))

    def _merge_heads(self, heads: tf.Tensor) -> tf.Tensor:
        """[B, H, K, d] -> [B, K, H d]."""
        return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, heads.shape[2], self.n_head * self.d_head])

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        names = ("n_head", "d_head", "dropatt", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in names}

    def _weight(self, name: str, *shape: int, initializer: str | None = None) -> keras.Variable:
        initializer = initializer or keras.initializers.RandomNormal(stddev=self.init_std)
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def _scaled(self, bias: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
        """A bias [H, d] scaled like the queries [B, H, T, d], to be added to them: [H, 1, d]."""
        return tf.expand_dims(tf.cast(bias * self.d_head**-0.5, query.dtype), 1)

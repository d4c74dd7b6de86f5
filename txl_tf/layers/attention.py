"""Multi-head attention over memory and segment, and Transformer-XL's: relative positions (section 3.3 of the paper).

`MemoryAttention` is the base of all kinds of attention. Subclasses override what depends on the kind of positions: the
weights, the positions that layers get, whether keys can be cached. Others are in segment_attention.py and
ablation_attention.py.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.dropout import TIME, check_rate, dropout, split_seed
from txl_tf.layers.layer import Layer
from txl_tf.layers.masks import visible_keys
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.ops import Scores


class Kernels(typing.NamedTuple):
    """The projections as matrices: three [D, H d], the query's scaled by 1 / sqrt(d), and the output's [H d, D]."""

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    output: tf.Tensor


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

HiddenShape = tuple[int | None, int | None, int]
"""The shape of hidden states, [B, T, D]: B and T may be unknown."""


class MemoryAttention(Layer):
    """Attention of a segment over its memory and itself; subclasses define how it uses positions.

    A score is (query . key + terms of the subclass) / sqrt(d_head). No gradient flows into the memory. Shapes: hidden
    [B, T, D], mems [B, M, D], K = M + T, result [B, T, D].

    Args:
        n_head: H.
        d_head: size of one head, d.
        dropatt: dropout rate of the attention probabilities.
        dropqkv: dropout rate of queries, keys and values; ignored by `extend`, as all dropout.
        variational: for each lane, dropqkv has one mask for all positions.
        init_std: the projections start as normal(0, init_std).

    Attributes:
        cacheable: whether keys, values and positions can be projected once and kept (`extend`), since they do not
            depend on the segment that is read.
        bidirectional: whether a query may see keys in its future.
        bias_names: the names of the biases that layers can share, which are then passed to every call.
        options: the names of constructor arguments that only this kind of attention has.

    Raises:
        ValueError: sizes that are not positive, inputs whose shapes do not fit together.
    """

    cacheable = False
    bidirectional = False
    bias_names: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __init__(
        self,
        n_head: int,
        d_head: int,
        *,
        dropatt: float = 0.0,
        dropqkv: float = 0.0,
        variational: bool = False,
        init_std: float = 0.02,
        **kwargs: typing.Any,
    ):
        super().__init__(**kwargs)
        if n_head < 1 or d_head < 1:
            raise ValueError(f"{type(self).__name__}: n_head and d_head must be positive, got {n_head} and {d_head}")
        self.keep(locals())
        check_rate(dropatt, "dropatt", self)
        check_rate(dropqkv, "dropqkv", self)

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the projections for inputs [B, T, D]."""
        d_model, heads = hidden_shape[-1], (self.n_head, self.d_head)
        self.query_kernel = self.new_weight("query_kernel", d_model, *heads)
        self.key_kernel = self.new_weight("key_kernel", d_model, *heads)
        self.value_kernel = self.new_weight("value_kernel", d_model, *heads)
        self.build_positions(d_model)
        self.output_kernel = self.new_weight("output_kernel", *heads, d_model)

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
        """Attends from each position of the segment; the result is [B, T, D].

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
        """
        hidden, memory = self.place(hidden, mems, positions)
        return self.read(hidden, memory, positions, attention_mask, biases, seed, training)

    def place(
        self, hidden: tf.Tensor, mems: tf.Tensor | None = None, positions: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The inputs of `read`: the segment [B, T, D] and the memory [B, M, D] or None, with absolute positions."""
        self._check(hidden.shape, None if mems is None else mems.shape, None if positions is None else positions.shape)
        return hidden, None if mems is None else tf.stop_gradient(mems)

    def _check(self, hidden: tf.TensorShape, mems: tf.TensorShape | None, positions: tf.TensorShape | None) -> None:
        """Raises ValueError, which names the sizes, if the shapes of the inputs do not fit together."""
        where, width = f"{type(self).__name__} {self.name}", self.query_kernel.shape[0]
        batch, t_len, d_model = hidden if len(hidden) == 3 else (None,) * 3
        if t_len is None or d_model != width:
            raise ValueError(f"{where}: hidden must be [B, T, D] with T known and D={width}, got {hidden}")
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
        """`call` after `place`; a layer with pre-LN normalises between the two.

        look: called with the attention probabilities [B, H, T, K], in the dtype of the weights.
        """
        k_len = hidden.shape[1] + (0 if memory is None else memory.shape[1])
        positions = self.default_positions(k_len, hidden) if positions is None else positions
        kernels = self.kernels()
        query, key, value = self.project(hidden, memory, kernels)
        if training and self.dropqkv:
            seed, *seeds = split_seed(seed, 4)
            query, key, value = self._dropped((query, key, value), seeds)
        position = ops.positions(self.project_positions(positions), query, training)
        scores = self.scores(query, key, position, biases)
        mask = self._checked_mask(attention_mask, hidden.shape[1], k_len)
        if look is not None:
            look(self._probabilities(scores, mask))
        drop = ops.Drop(self.dropatt if training else 0.0, seed)
        return self.combine(ops.attend(scores, value, mask, drop), kernels)

    def _dropped(self, tensors: Sequence[tf.Tensor], seeds: Sequence[tf.Tensor | None]) -> list[tf.Tensor]:
        """Tensors [B, H, n, d] after dropqkv."""
        shared_axis = TIME if self.variational else None
        return [dropout(tensor, self.dropqkv, seed, shared_axis) for tensor, seed in zip(tensors, seeds, strict=True)]

    def residual(self, hidden: tf.Tensor, positions: typing.Any = None) -> tf.Tensor:
        """The rows of `hidden` that the result of `read` is added to."""
        return hidden

    def scores(
        self, query: tf.Tensor, key: tf.Tensor, position: tf.Tensor | None, biases: Biases | None = None
    ) -> Scores:
        """The Scores of queries [B, H, T, d] and keys; arguments as for `read`, position from `ops.positions`."""
        return Scores(query, key, causal=not self.bidirectional)

    def _probabilities(self, scores: Scores, mask: tf.Tensor) -> tf.Tensor:
        """[B, H, T, K], in the dtype of the weights."""
        scores = scores.cast(self.variable_dtype)
        # With each key's number, one-hot, as its value, the weighted values are the probabilities.
        numbers = tf.eye(scores.key.shape[2], batch_shape=tf.shape(scores.key)[:2], dtype=scores.key.dtype)
        return ops.attend(scores, numbers, mask)

    def _checked_mask(self, mask: tf.Tensor | None, t_len: int, k_len: int) -> tf.Tensor:
        """The mask, or the default one; ValueError if it is not [.., T, K]."""
        if mask is None and self.bidirectional:
            return tf.ones([t_len, k_len], tf.bool)
        if mask is None:
            return visible_keys(t_len, k_len - t_len, self.window(k_len - t_len))
        if any(size not in (1, n) for size, n in zip(mask.shape[-2:], (t_len, k_len), strict=True)):
            raise ValueError(
                f"{type(self).__name__} {self.name}: attention_mask must end in [T, K] = [{t_len}, {k_len}], "
                f"got {mask.shape}"
            )
        return mask

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """The `positions` of each of N layers of this kind, for an embedded segment [B, T, D] and M slots of memory.

        Distances above clamp_len are treated as that one; <= 0: no limit. drop: dropout of the positions.
        """
        return [None] * n_layer

    def window(self, m_len: int) -> int | None:
        """The number of keys a query sees if no mask is given; None: all of its past."""
        return None

    def default_positions(self, k_len: int, hidden: tf.Tensor) -> tf.Tensor | None:
        """The `positions` of K keys that are used if none are given."""
        return None

    def project_positions(self, positions: tf.Tensor | None) -> tf.Tensor | None:
        """The vectors [H, K, d'] that are multiplied with the scores' `position_query`; None: there are none."""
        return None

    def extend(
        self,
        hidden: tf.Tensor,
        ring: ops.KeyValueRing,
        position: tf.Tensor,
        attention_mask: tf.Tensor,
        kernels: Kernels,
        biases: Biases | None = None,
        block: int = 1,
    ) -> tuple[tf.Tensor, ops.KeyValueRing]:
        """Writes the segment's keys and values into the ring, then attends from each of its positions to the ring.

        Args:
            hidden: [B, T, D], T <= C.
            ring: a KeyValueRing, or another ring that `ops.write` accepts.
            position: projected positions [H, C, d] of the distances C-1, .., 0.
            attention_mask: as for `call`, its C columns from the oldest key to the newest.
            kernels: from `kernels()`, in the compute dtype.
            biases: as for `call`.
            block: C, T and the ring's start are multiples of it.
        """
        query, key, value = self.project(hidden, None, kernels)
        ring = ops.write(ring, key, value, block)
        scores = self.scores(query, ring.keys, position, biases)
        return self.combine(ops.attend_ring(scores, ring.values, attention_mask, ring.start), kernels), ring

    def kernels(self) -> Kernels:
        """The Kernels, as tensors. Compute them before a loop over tokens, which would reshape them for each token."""
        width = self.n_head * self.d_head
        query, key, value = (
            tf.reshape(kernel, [-1, width]) for kernel in (self.query_kernel, self.key_kernel, self.value_kernel)
        )
        return Kernels(query * self.d_head**-0.5, key, value, tf.reshape(self.output_kernel, [width, -1]))

    def project(self, hidden: tf.Tensor, memory: tf.Tensor | None, kernels: Kernels) -> tuple[tf.Tensor, ...]:
        """Queries of the segment [B, T, D], [B, H, T, d]; keys and values of memory and segment, [B, H, M + T, d]."""
        return self.project_query(hidden, kernels), *self.project_context(hidden, kernels, memory)

    def project_query(self, hidden: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Queries of [B, T, D], scaled by 1 / sqrt(d): [B, H, T, d]."""
        return ops.heads(hidden, kernels.query, self.n_head)

    def project_context(
        self, hidden: tf.Tensor, kernels: Kernels, memory: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Keys and values of memory [B, M, D] and segment [B, T, D]: each [B, H, M + T, d]."""
        return tuple(ops.heads(hidden, kernel, self.n_head, memory) for kernel in (kernels.key, kernels.value))

    def combine(self, weighted: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The output projection of weighted values [B, H, T, d]: [B, T, D]."""
        merged = tf.reshape(tf.transpose(weighted, [0, 2, 1, 3]), [-1, weighted.shape[2], self.n_head * self.d_head])
        return ops.dot(merged, kernels.output)

    def _scaled(self, bias: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
        """A bias [H, d], scaled like the queries [B, H, T, d] so that it can be added to them: [H, 1, d]."""
        return tf.expand_dims(tf.cast(bias, query.dtype) * self.d_head**-0.5, 1)


@keras.saving.register_keras_serializable(package="txl_tf")
class RelMultiHeadAttention(MemoryAttention):
    """Attention of a segment over its memory and itself, with relative positions.

    For query i and key j at distance d the score is the sum of the paper's four terms, divided by sqrt(d_head):

        (a) q_i . k_j     content to content        (b) q_i . W_kR R_d    content to position
        (c) u . k_j       global content bias       (d) v . W_kR R_d      global position bias

    computed as (q + u) . k  +  shift((q + v) . r), where r = W_kR R is projected once for the K distances
    (linear, not quadratic, in length: appendix B). `positions` are the encodings R of the distances, [K, D], by default
    sinusoids.

    Args:
        n_head, d_head, dropatt, init_std: as for `MemoryAttention`.
        own_biases: whether the layer has its own u and v (`untie_r`); otherwise `biases` is passed to every call.
        tied_positions: project positions with the keys' matrix: W_kR = W_kE.
        clamp_len: with no `positions` given, larger distances are encoded as this one; <= 0: no limit.
        same_length: with no `attention_mask` given, let every query see only the M + 1 newest keys.
        bidirectional: queries may see keys in their future, whose distances are negative.

    Examples:
        >>> segment, memory = keras.Input([16, 64]), keras.Input([32, 64])
        >>> output = RelMultiHeadAttention(n_head=4, d_head=16)(segment, mems=memory)
        >>> keras.Model([segment, memory], output).output_shape
        (None, 16, 64)
    """

    cacheable = True
    bias_names: tuple[str, ...] = ("content_bias", "position_bias")
    """u and v, the official r_w_bias and r_r_bias."""
    options: tuple[str, ...] = ("own_biases", "tied_positions")

    def __init__(
        self,
        n_head: int,
        d_head: int,
        *,
        own_biases: bool = True,
        tied_positions: bool = False,
        clamp_len: int = -1,
        same_length: bool = False,
        bidirectional: bool = False,
        **kwargs: typing.Any,
    ):
        super().__init__(n_head, d_head, **kwargs)
        self.keep(locals())

    def build(self, hidden_shape: HiddenShape, mems_shape: HiddenShape | None = None) -> None:
        """Creates the projections for inputs [B, T, D]."""
        super().build(hidden_shape)
        for name in self.bias_names if self.own_biases else ():
            setattr(self, name, self.new_weight(name, self.n_head, self.d_head))

    def build_positions(self, d_model: int) -> None:
        """Creates W_kR, unless it is the keys' matrix."""
        tied = self.tied_positions
        self.position_kernel = (
            self.key_kernel if tied else self.new_weight("position_kernel", d_model, self.n_head, self.d_head)
        )

    def window(self, m_len: int) -> int | None:
        """M + 1 with `same_length`."""
        return m_len + 1 if self.same_length else None

    def default_positions(self, k_len: int, hidden: tf.Tensor) -> tf.Tensor:
        """Sinusoids of the distances, [K, D]; [K + T-1, D] if bidirectional."""
        return self._sinusoids(k_len, hidden, self.clamp_len)

    def _sinusoids(self, k_len: int, hidden: tf.Tensor, clamp_len: int) -> tf.Tensor:
        future = hidden.shape[1] - 1 if self.bidirectional else 0
        return sinusoids(key_distances(k_len, clamp_len, future), hidden.shape[-1], hidden.dtype)

    def layer_positions(
        self, n_layer: int, hidden: tf.Tensor, m_len: int, clamp_len: int = -1, drop: PositionDropout | None = None
    ) -> list[tf.Tensor | None]:
        """The same sinusoids for all layers, with one dropout mask."""
        drop = drop or PositionDropout()
        encoding = self._sinusoids(m_len + hidden.shape[1], hidden, clamp_len)
        return [dropout(encoding, drop.rate, drop.seed, drop.shared_axis)] * n_layer

    def project_positions(self, positions: tf.Tensor) -> tf.Tensor:
        """r = W_kR R, [H, K, d], of R [K, D]."""
        return ops.rows_by_head(positions, tf.convert_to_tensor(self.position_kernel))

    def scores(
        self, query: tf.Tensor, key: tf.Tensor, position: tf.Tensor | None, biases: Biases | None = None
    ) -> Scores:
        """Terms (a) and (c), (q + u) . k, and terms (b) and (d), (q + v) . r."""
        u, v = (self._scaled(bias, query) for bias in self._biases(biases)[:2])
        return Scores(query + u, key, query + v, position, causal=not self.bidirectional)

    def _biases(self, given: Biases | None) -> Biases:
        if self.own_biases:
            return tuple(getattr(self, name) for name in self.bias_names)
        if given is None:
            raise ValueError(
                f"{type(self).__name__} {self.name}: with own_biases=False pass biases=(u, v) or (u, v, w)"
            )
        return given

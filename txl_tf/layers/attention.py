"""Multi-head attention over memory and segment, and Transformer-XL's own with relative positions (section 3.3).

The other kinds of positions, for the paper's ablations, are in shaw_attention.py and absolute_attention.py.
"""

import typing

import keras
import tensorflow as tf

from txl_tf.layers import scopes
from txl_tf.layers.attention_core import attend
from txl_tf.layers.dropout import checked_rate
from txl_tf.layers.relative import key_distances, sinusoids, visible_keys


class KeyValueRing(typing.NamedTuple):
    """The newest C keys and values of a layer, projected once: what inference keeps instead of hidden states.

    New ones overwrite the oldest in place, so no token costs a copy of the rest. The slot after the newest, where the
    next one goes, is the oldest.

    keys, values: [B, H, C, d].
    start: int32 scalar, the slot where the segment to be read begins; it goes on at slot 0 after slot C - 1.
    """

    keys: tf.Tensor
    values: tf.Tensor
    start: tf.Tensor


class Kernels(typing.NamedTuple):
    """The projections as matrices; the query's is scaled by 1 / sqrt(d).

    query, key, value: [D, H d].
    output: [H d, D].
    """

    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    output: tf.Tensor


class MemoryAttention(keras.layers.Layer):
    """Attention of a segment over its memory and itself. Subclasses say how it learns of positions.

    A score is (query . key + what the subclass adds) / sqrt(d_head). No gradient flows into the memory.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D].

    Args:
        n_head: H.
        d_head: size of one head, d.
        dropatt: dropout rate of the attention probabilities.
        init_std: the projections start as normal(0, init_std).

    Raises:
        ValueError: sizes that are not positive, inputs whose shapes do not fit together.
    """

    def __init__(self, n_head, d_head, *, dropatt=0.0, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        if n_head < 1 or d_head < 1:
            raise ValueError(f"{type(self).__name__}: n_head and d_head must be positive, got {n_head} and {d_head}")
        self.n_head = n_head
        self.d_head = d_head
        self.dropatt = checked_rate(dropatt, "dropatt", self)
        self.init_std = init_std

    def build(self, hidden_shape, mems_shape=None):
        """Creates the projections for inputs [B, T, D]."""
        d_model, heads = hidden_shape[-1], (self.n_head, self.d_head)
        self.query_kernel = self._weight("query_kernel", d_model, *heads)
        self.key_kernel = self._weight("key_kernel", d_model, *heads)
        self.value_kernel = self._weight("value_kernel", d_model, *heads)
        self.build_positions(d_model)
        self.output_kernel = self._weight("output_kernel", *heads, d_model)

    def build_positions(self, d_model):
        """Creates the weights that stand for positions, if there are any."""

    def call(self, hidden, mems=None, positions=None, attention_mask=None, biases=None, seed=None, training=False):
        """Attends from each position of the segment.

        Args:
            hidden: [B, T, D].
            mems: [B, M, D] states before the segment, oldest first; None: no memory.
            positions: what the subclass takes for the distances K-1, .., 0; None: its default.
            attention_mask: bool, true where a query may see a key, [T, K] or broadcastable to [B, H, T, K];
                None: causal.
            biases: for `RelMultiHeadAttention` without own_biases: (u, v), each [H, d].
            seed: int32 [2] or None, as for `dropout`.
            training: whether to drop attention probabilities.

        Returns:
            [B, T, D].
        """
        hidden, memory = self.place(hidden, mems, positions)
        return self.read(hidden, memory, positions, attention_mask, biases, seed, training)

    def place(self, hidden, mems=None, positions=None):
        """What is read, with absolute positions if any: the segment [B, T, D], and the memory [B, M, D] or None.

        No gradient flows into mems.
        """
        self._check(hidden, mems, positions)
        return hidden, None if mems is None else tf.stop_gradient(mems)

    def _check(self, hidden, mems, positions):
        """ValueError for inputs whose shapes do not fit together, before TensorFlow says so in its own way."""
        where = f"{type(self).__name__} {self.name}"
        batch, t_len, d_model = hidden.shape if len(hidden.shape) == 3 else (None,) * 3
        if t_len is None or d_model != self.query_kernel.shape[0]:
            raise ValueError(
                f"{where}: hidden must be [B, T, D] with T known and D={self.query_kernel.shape[0]}, got {hidden.shape}"
            )
        m_len = 0
        if mems is not None:
            fits = len(mems.shape) == 3 and mems.shape[1] is not None and mems.shape[2] == d_model
            if not fits or (None not in (batch, mems.shape[0]) and batch != mems.shape[0]):
                raise ValueError(f"{where}: mems must be [B, M, D] to hidden's {hidden.shape}, got {mems.shape}")
            m_len = mems.shape[1]
        if positions is not None:
            *_, given, width = (*positions.shape, d_model) if len(positions.shape) == 1 else positions.shape
            if given != m_len + t_len or width != d_model:
                raise ValueError(
                    f"{where}: {m_len + t_len} keys (memory and segment) need as many positions, "
                    f"[K] distances or [K, D] encodings, got {given} of shape {positions.shape}"
                )

    def read(self, hidden, memory, positions=None, attention_mask=None, biases=None, seed=None, training=False):
        """`call` with what `place` returns, perhaps normalised."""
        t_len = hidden.shape[1]
        k_len = t_len + (0 if memory is None else memory.shape[1])
        if attention_mask is None:
            attention_mask = visible_keys(t_len, k_len - t_len, self.window(k_len - t_len))
        elif any(size not in (1, n) for size, n in zip(attention_mask.shape[-2:], (t_len, k_len), strict=True)):
            raise ValueError(
                f"{type(self).__name__} {self.name}: attention_mask must end in [T, K] = [{t_len}, {k_len}], "
                f"got {attention_mask.shape}"
            )
        if positions is None:
            positions = self.default_positions(k_len, hidden)
        kernels = self.kernels()
        if memory is None:
            key, value = self.project_context(hidden, kernels)
        else:
            key, value = (self._project_both(memory, hidden, kernel) for kernel in (kernels.key, kernels.value))
        query, position = self.project_query(hidden, kernels), self.project_positions(positions)
        rate = self.dropatt if training else 0.0
        queries = self.content_query(query, biases), self.position_query(query, biases)
        return self.combine(attend(queries[0], key, value, attention_mask, queries[1], position, rate, seed), kernels)

    def window(self, m_len):
        """With no mask given, the number of keys a query sees; None: all of its past."""

    def default_positions(self, k_len, hidden):
        """The `positions` of K keys where none are given."""

    def project_positions(self, positions):
        """What `position_score` takes."""

    def content_query(self, query, biases):
        """Queries [B, H, T, d] as they meet the keys."""
        return query

    def position_query(self, query, biases):
        """Queries [B, H, T, d'] as they meet `project_positions`; None: they do not."""

    def extend(self, hidden, ring, position, attention_mask, biases=None, kernels=None, block=1):
        """Attends from each position of the segment to the ring, into which the segment's own keys go first.

        Args:
            hidden: [B, T, D], T <= C.
            ring: a KeyValueRing.
            position: projected positions [H, C, d] of the distances C-1, .., 0.
            attention_mask: as for `call`, its C columns from the oldest key to the newest.
            biases: as for `call`.
            kernels: what `kernels` makes, where the caller has made it once for many calls.
            block: int; C, T and the ring's start are its multiples, so that it is written so many slots at a time.

        Returns:
            [B, T, D], and the ring with the segment's keys and values.
        """
        kernels = kernels or self.kernels()
        key, value = self.project_context(hidden, kernels)
        keys, values = (
            _write(slots, new, ring.start, block) for slots, new in ((ring.keys, key), (ring.values, value))
        )
        start = (ring.start + hidden.shape[1]) % keys.shape[2]
        query = self.project_query(hidden, kernels)
        queries = self.content_query(query, biases), self.position_query(query, biases)
        output = attend(queries[0], keys, values, attention_mask, queries[1], position, turn=start)
        return self.combine(output, kernels), KeyValueRing(keys, values, start)

    def kernels(self):
        """The Kernels, as tensors.

        A loop over tokens makes them outside: where a product of one row is by a matrix that was reshaped inside the
        loop, XLA for CPU takes five times as long.
        """
        width = self.n_head * self.d_head
        query, key, value = (
            tf.reshape(kernel, [-1, width]) for kernel in (self.query_kernel, self.key_kernel, self.value_kernel)
        )
        return Kernels(query * self.d_head**-0.5, key, value, tf.reshape(self.output_kernel, [width, -1]))

    def project_query(self, hidden, kernels):
        """Queries of [B, T, D], scaled by 1 / sqrt(d): [B, H, T, d]."""
        return self._split_heads(tf.einsum("btD,Dn->btn", hidden, kernels.query))

    def project_context(self, context, kernels):
        """Keys and values of [B, K, D]: each [B, H, K, d]."""
        return tuple(
            self._split_heads(tf.einsum("bkD,Dn->bkn", context, kernel)) for kernel in (kernels.key, kernels.value)
        )

    def _project_both(self, memory, hidden, kernel):
        """[B, H, M + T, d], keys or values, of memory [B, M, D] and segment [B, T, D].

        The gradient is TensorFlow's, but one matmul for the kernel, where two apart would have to be added up, and one
        each for memory and segment, so that compilers drop the memory's where nothing wants it.
        """

        @tf.custom_gradient
        def run(memory, hidden, kernel):
            context = tf.concat([memory, hidden], axis=1)

            def gradient(d_heads):
                with tf.name_scope(scopes.ATTENTION):
                    parts = tf.split(d_heads, [memory.shape[1], hidden.shape[1]], axis=2)
                    d_memory, d_hidden = (tf.einsum("bkn,Dn->bkD", self._merge_heads(part), kernel) for part in parts)
                    return d_memory, d_hidden, tf.einsum("bkD,bkn->Dn", context, self._merge_heads(d_heads))

            return self._split_heads(tf.einsum("bkD,Dn->bkn", context, kernel)), gradient

        return run(memory, hidden, kernel)

    def combine(self, head_output, kernels):
        """Weighted values [B, H, T, d] through the output projection: [B, T, D]."""
        return tf.einsum("btn,nD->btD", self._merge_heads(head_output), kernels.output)

    def _split_heads(self, merged):
        """[B, K, H d] -> [B, H, K, d]."""
        return tf.transpose(tf.reshape(merged, [-1, merged.shape[1], self.n_head, self.d_head]), [0, 2, 1, 3])

    def _merge_heads(self, heads):
        """[B, H, K, d] -> [B, K, H d]."""
        return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, heads.shape[2], self.n_head * self.d_head])

    def get_config(self):
        """The constructor's arguments."""
        names = ("n_head", "d_head", "dropatt", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in names}

    def _weight(self, name, *shape, initializer=None):
        initializer = initializer or keras.initializers.RandomNormal(stddev=self.init_std)
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def _scaled(self, bias, query):
        """A bias as it meets queries, which are scaled already."""
        return tf.cast(bias * self.d_head**-0.5, query.dtype)


@keras.saving.register_keras_serializable(package="txl_tf")
class RelMultiHeadAttention(MemoryAttention):
    """Attention of a segment over its memory and itself, with relative positions.

    For query i and key j at distance d the score is the sum of the paper's four terms, divided by sqrt(d_head):

        (a) q_i . k_j     content to content        (b) q_i . W_kR R_d    content to position
        (c) u . k_j       global content bias       (d) v . W_kR R_d      global position bias

    computed as (q + u) . k  +  shift((q + v) . r), where r = W_kR R is projected once for the K distances
    (linear, not quadratic, in length: appendix B). No gradient flows into the memory.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D]; `positions` are the encodings R of the
    distances, [K, D], by default sinusoids.

    Args:
        n_head: H.
        d_head: size of one head, d.
        dropatt: dropout rate of the attention probabilities.
        own_biases: whether the layer has its own u and v (`untie_r`); otherwise `biases` is passed to every call.
        clamp_len: with no `positions` given, the largest distance that is told apart; <= 0: no limit.
        same_length: with no `attention_mask` given, let every query see only the M + 1 newest keys.
        init_std: the five projections, u and v start as normal(0, init_std).

    Raises:
        ValueError: sizes that are not positive, inputs whose shapes do not fit together.

    Example:
        >>> segment, memory = keras.Input([16, 64]), keras.Input([32, 64])
        >>> output = RelMultiHeadAttention(n_head=4, d_head=16)(segment, mems=memory)
        >>> keras.Model([segment, memory], output).output_shape
        (None, 16, 64)
    """

    def __init__(self, n_head, d_head, *, own_biases=True, clamp_len=-1, same_length=False, **kwargs):
        super().__init__(n_head, d_head, **kwargs)
        self.own_biases = own_biases
        self.clamp_len = clamp_len
        self.same_length = same_length

    def build(self, hidden_shape, mems_shape=None):
        """Creates the projections for inputs [B, T, D]."""
        super().build(hidden_shape)
        if self.own_biases:
            self.content_bias = self._weight("content_bias", self.n_head, self.d_head)  # u, the official r_w_bias
            self.position_bias = self._weight("position_bias", self.n_head, self.d_head)  # v, the official r_r_bias

    def build_positions(self, d_model):
        """Creates W_kR."""
        self.position_kernel = self._weight("position_kernel", d_model, self.n_head, self.d_head)

    def window(self, m_len):
        """M + 1 with `same_length`."""
        return m_len + 1 if self.same_length else None

    def default_positions(self, k_len, hidden):
        """Sinusoids."""
        return sinusoids(key_distances(k_len, self.clamp_len), hidden.shape[-1], hidden.dtype)

    def project_positions(self, positions):
        """r = W_kR R of [K, D]: [H, K, d]."""
        return tf.einsum("kD,Dhd->hkd", positions, self.position_kernel)

    def content_query(self, query, biases):
        """q + u: terms (a) and (c) with the keys."""
        content_bias, _ = self._biases(biases)
        return query + self._scaled(content_bias, query)[:, None]

    def position_query(self, query, biases):
        """q + v: terms (b) and (d) with the positions."""
        _, position_bias = self._biases(biases)
        return query + self._scaled(position_bias, query)[:, None]

    def _biases(self, given):
        if self.own_biases:
            return self.content_bias, self.position_bias
        if given is None:
            raise ValueError(f"RelMultiHeadAttention {self.name}: with own_biases=False pass biases=(u, v)")
        return given

    def get_config(self):
        """The constructor's arguments."""
        names = ("own_biases", "clamp_len", "same_length")
        return super().get_config() | {name: getattr(self, name) for name in names}


def _write(slots, new, start, block):
    """A ring's `slots` [B, H, C, d] with `new` [B, H, T, d] from slot `start` on; after the last comes the first."""
    _, n_head, c_len, d_head = slots.shape
    n_blocks = c_len // block
    written = (start // block + tf.range(new.shape[2] // block)) % n_blocks
    places = tf.range(tf.shape(slots)[0] * n_head)[:, None] * n_blocks + written
    blocks = tf.tensor_scatter_nd_update(
        tf.reshape(slots, [-1, block, d_head]), tf.reshape(places, [-1, 1]), tf.reshape(new, [-1, block, d_head])
    )
    return tf.reshape(blocks, [-1, n_head, c_len, d_head])

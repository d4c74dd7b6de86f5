"""Multi-head attention with the relative positional encoding of Transformer-XL (paper, section 3.3)."""

import typing

import keras
import tensorflow as tf

from txl_tf.layers.dropout import dropout
from txl_tf.layers.relative import key_distances, relative_shift, sinusoids, visible_keys

MASKED = -1e30  # added to scores of keys that may not be seen; finite, so that no row can become NaN


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


@keras.saving.register_keras_serializable(package="txl_tf")
class RelMultiHeadAttention(keras.layers.Layer):
    """Attention of a segment over its memory and itself, with relative positions.

    For query i and key j at distance d the score is the sum of the paper's four terms, divided by sqrt(d_head):

        (a) q_i . k_j     content to content        (b) q_i . W_kR R_d    content to position
        (c) u . k_j       global content bias       (d) v . W_kR R_d      global position bias

    computed as (q + u) . k  +  shift((q + v) . r), where r = W_kR R is projected once for the K distances
    (linear, not quadratic, in length: appendix B). No gradient flows into the memory.

    Shapes: hidden [B, T, D], mems [B, M, D], K = M + T, result [B, T, D].

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

    def __init__(
        self,
        n_head,
        d_head,
        *,
        dropatt=0.0,
        own_biases=True,
        clamp_len=-1,
        same_length=False,
        init_std=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if n_head < 1 or d_head < 1:
            raise ValueError(f"RelMultiHeadAttention: n_head and d_head must be positive, got {n_head} and {d_head}")
        self.n_head = n_head
        self.d_head = d_head
        self.dropatt = dropatt
        self.own_biases = own_biases
        self.clamp_len = clamp_len
        self.same_length = same_length
        self.init_std = init_std

    def build(self, hidden_shape, mems_shape=None):
        """Creates the projections for inputs [B, T, D]."""
        d_model = hidden_shape[-1]
        heads = (self.n_head, self.d_head)

        def weight(name, *shape):
            initializer = keras.initializers.RandomNormal(stddev=self.init_std)
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.query_kernel = weight("query_kernel", d_model, *heads)
        self.key_kernel = weight("key_kernel", d_model, *heads)
        self.value_kernel = weight("value_kernel", d_model, *heads)
        self.position_kernel = weight("position_kernel", d_model, *heads)  # W_kR
        self.output_kernel = weight("output_kernel", *heads, d_model)
        if self.own_biases:
            self.content_bias = weight("content_bias", *heads)  # u, the official r_w_bias
            self.position_bias = weight("position_bias", *heads)  # v, the official r_r_bias

    def call(self, hidden, mems=None, positions=None, attention_mask=None, biases=None, seed=None, training=False):
        """Attends from each position of the segment.

        Args:
            hidden: [B, T, D].
            mems: [B, M, D] states before the segment, oldest first; None: no memory.
            positions: [K, D] encodings R of the distances K-1, .., 0; None: sinusoids.
            attention_mask: bool, true where a query may see a key, [T, K] or broadcastable to [B, H, T, K];
                None: causal.
            biases: (u, v), each [H, d], where the layer has none of its own.
            seed: int32 [2] or None, as for `dropout`.
            training: whether to drop attention probabilities.

        Returns:
            [B, T, D].
        """
        return self.read(hidden, with_memory(hidden, mems), positions, attention_mask, biases, seed, training)

    def read(self, hidden, context, positions=None, attention_mask=None, biases=None, seed=None, training=False):
        """`call` with memory and segment already put together, and perhaps normalised: context [B, K, D].

        What gradient flows into the memory is then the caller's choice.
        """
        t_len, k_len = hidden.shape[1], context.shape[1]
        if positions is None:
            positions = sinusoids(key_distances(k_len, self.clamp_len), hidden.shape[-1], hidden.dtype)
        if attention_mask is None:
            window = k_len - t_len + 1 if self.same_length else None
            attention_mask = visible_keys(t_len, k_len - t_len, window)
        if positions.shape[0] != k_len:
            raise ValueError(
                f"RelMultiHeadAttention {self.name}: {k_len} keys (memory and segment) need as many positions, "
                f"got {positions.shape[0]}"
            )
        key, value = self.project_context(context)
        query, position = self.project_query(hidden), self.project_positions(positions)
        probabilities = self.attend(query, key, position, attention_mask, biases)
        probabilities = dropout(probabilities, self.dropatt if training else 0.0, seed)
        return self.combine(probabilities, value)

    def extend(self, hidden, ring, position, attention_mask, biases=None):
        """Attends from each position of the segment to the ring, into which the segment's own keys go first.

        Args:
            hidden: [B, T, D], T <= C.
            ring: a KeyValueRing.
            position: projected positions [H, C, d] of the distances C-1, .., 0.
            attention_mask: as for `call`, its C columns from the oldest key to the newest.
            biases: as for `call`.

        Returns:
            [B, T, D], and the ring with the segment's keys and values.
        """
        key, value = self.project_context(hidden)
        keys, values = _write(ring.keys, key, ring.start), _write(ring.values, value, ring.start)
        start = (ring.start + hidden.shape[1]) % keys.shape[2]
        probabilities = self.attend(self.project_query(hidden), keys, position, attention_mask, biases, turn=start)
        return self.combine(probabilities, values), KeyValueRing(keys, values, start)

    def project_query(self, hidden):
        """Queries of [B, T, D], scaled by 1 / sqrt(d): [B, H, T, d]."""
        return tf.einsum("btD,Dhd->bhtd", hidden, self.query_kernel * self.d_head**-0.5)

    def project_context(self, context):
        """Keys and values of [B, K, D]: each [B, H, K, d]."""
        return (
            tf.einsum("bkD,Dhd->bhkd", context, self.key_kernel),
            tf.einsum("bkD,Dhd->bhkd", context, self.value_kernel),
        )

    def project_positions(self, positions):
        """r = W_kR R of [K, D]: [H, K, d]."""
        return tf.einsum("kD,Dhd->hkd", positions, self.position_kernel)

    def attend(self, query, key, position, attention_mask, biases=None, turn=None):
        """Attention probabilities of projected queries [B, H, T, d]: [B, H, T, K], softmax in float32.

        `turn`, where given, is the column of the oldest key: `key` is a ring, while positions and mask go from the
        oldest key to the newest.
        """
        content_bias, position_bias = (self.content_bias, self.position_bias) if self.own_biases else biases
        scale = self.d_head**-0.5
        content_bias, position_bias = (
            tf.cast(bias * scale, query.dtype)[:, None] for bias in (content_bias, position_bias)
        )
        content_score = tf.einsum("bhtd,bhkd->bhtk", query + content_bias, key)
        position_score = tf.einsum("bhtd,hkd->bhtk", query + position_bias, position)
        position_score = relative_shift(position_score)
        if turn is not None:
            position_score = tf.roll(position_score, turn, axis=-1)
            attention_mask = tf.roll(attention_mask, turn, axis=-1)
        score = content_score + position_score
        accurate = tf.float64 if score.dtype == tf.float64 else tf.float32
        hide = tf.where(attention_mask, tf.zeros([], accurate), tf.constant(MASKED, accurate))
        score = tf.cast(score, accurate) + hide
        return tf.cast(tf.nn.softmax(score), query.dtype)

    def combine(self, probabilities, value):
        """Weighted values through the output projection: [B, T, D]."""
        head_output = tf.einsum("bhtk,bhkd->bhtd", probabilities, value)
        return tf.einsum("bhtd,hdD->btD", head_output, self.output_kernel)

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config() | {
            "n_head": self.n_head,
            "d_head": self.d_head,
            "dropatt": self.dropatt,
            "own_biases": self.own_biases,
            "clamp_len": self.clamp_len,
            "same_length": self.same_length,
            "init_std": self.init_std,
        }


def with_memory(hidden, mems=None):
    """Memory [B, M, D], through which no gradient flows, and then the segment [B, T, D]: [B, K, D]."""
    return hidden if mems is None else tf.concat([tf.stop_gradient(mems), hidden], axis=1)


def _write(ring, new, start):
    """`ring` [B, H, C, d] with `new` [B, H, T, d] from slot `start` on; after the last slot comes the first."""
    batch, heads, t_len = tf.shape(new)[0], new.shape[1], new.shape[2]
    slots = (start + tf.range(t_len)) % ring.shape[2]
    places = tf.meshgrid(tf.range(batch), tf.range(heads), slots, indexing="ij")
    return tf.tensor_scatter_nd_update(ring, tf.stack(places, axis=-1), new)

"""Heads: layers that map a model's last hidden states [B, T, D] to labels, scores or answers."""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.absolute_attention import AbsoluteAttention
from txl_tf.layers.dropout import checked_rate, dropout, split_seed
from txl_tf.layers.memory_attention import HiddenShape

SUMMARY_TYPES = ("last", "first", "mean", "attn")
"""How a sequence becomes one vector: see `Summary`."""

IMPOSSIBLE = -1e30
"""The logit of a position where no answer may begin or end."""


class AnswerLogits(typing.NamedTuple):
    """The logits of an answer's position; those of its end are conditioned on its start.

    start: [B, T], logits of where it starts.
    end: [B, T], logits of where it ends.
    impossible: [B], the logit that there is no answer.
    """

    start: tf.Tensor
    end: tf.Tensor
    impossible: tf.Tensor


class BestAnswers(typing.NamedTuple):
    """The most likely start positions, and the most likely end positions for each; best first, log-probabilities in
    nats.

    start, start_log_prob: [B, S].
    end, end_log_prob: [B, S, E]; an end's probability is conditioned on its start.
    impossible: [B], the logit that there is no answer.
    """

    start: tf.Tensor
    start_log_prob: tf.Tensor
    end: tf.Tensor
    end_log_prob: tf.Tensor
    impossible: tf.Tensor


def _dense(layer: keras.layers.Layer, units: int, name: str, **options: typing.Any) -> keras.layers.Dense:
    """A dense layer of a head, in the head's dtype."""
    initializer = keras.initializers.RandomNormal(stddev=layer.init_std)
    return keras.layers.Dense(units, kernel_initializer=initializer, dtype=layer.dtype_policy, name=name, **options)


@keras.saving.register_keras_serializable(package="txl_tf")
class Summary(keras.layers.Layer):
    """One vector for a sequence: [B, T, D] -> [B, D].

    "last" and "first" are the hidden state of the last or first token. "mean" is the mean over all tokens, including
    padding, as in the official code. "attn" is the attention output of a learned query, followed by layer norm. Then,
    if `use_proj`, a dense layer with tanh follows; then dropout.

    Args:
        summary_type: one of SUMMARY_TYPES.
        use_proj: whether there is a dense layer.
        n_head, d_head, layer_norm_epsilon: of "attn".
        dropout: dropout rate of the result and, in "attn", of the attention output.
        dropatt: dropout rate of the attention probabilities.
        init_std: the kernels and the learned query start as normal(0, init_std).

    Raises:
        ValueError: an unknown summary_type, or "attn" without sizes.
    """

    def __init__(
        self,
        *,
        summary_type: str = "last",
        use_proj: bool = True,
        n_head: int = 0,
        d_head: int = 0,
        layer_norm_epsilon: float = 1e-12,
        dropout: float = 0.0,
        dropatt: float = 0.0,
        init_std: float = 0.02,
        **kwargs: typing.Any,
    ):
        super().__init__(**kwargs)
        if summary_type not in SUMMARY_TYPES:
            raise ValueError(f"Summary: summary_type is {summary_type!r}; choose from {SUMMARY_TYPES}")
        self.summary_type = summary_type
        self.use_proj = use_proj
        self.n_head, self.d_head, self.layer_norm_epsilon = n_head, d_head, layer_norm_epsilon
        self.dropout = checked_rate(dropout, "dropout", self)
        self.dropatt = dropatt
        self.init_std = init_std
        self.attention: AbsoluteAttention | None = None
        self.projection: typing.Any = None
        if summary_type == "attn":
            self.attention = AbsoluteAttention(
                n_head, d_head, dropatt=dropatt, init_std=init_std, dtype=self.dtype_policy, name="attention"
            )
            self.attention_norm = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="attention_norm"
            )

    def build(self, hidden_shape: HiddenShape) -> None:
        """Creates the weights for inputs [B, T, D]."""
        d_model = hidden_shape[-1]
        if self.attention is not None:
            initializer = keras.initializers.RandomNormal(stddev=self.init_std)
            self.query = self.add_weight(name="query", shape=(d_model,), initializer=initializer)
            self.attention.build((None, None, d_model))
            self.attention_norm.build((None, None, d_model))
        if self.use_proj:
            self.projection = _dense(self, d_model, "projection", activation="tanh")
            self.projection.build((None, d_model))

    def call(
        self,
        hidden: tf.Tensor,
        padding: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """The vectors of sequences.

        Args:
            hidden: [B, T, D].
            padding: bool [B, T], true where there is no token; only "attn" uses it. None: there is no padding.
            seed: as for `dropout`.
            training: whether to apply dropout.

        Returns:
            [B, D].
        """
        rate = self.dropout if training else 0.0
        result_seed, output_seed, attention_seed = split_seed(seed, 3)
        if self.summary_type == "last":
            summary = hidden[:, -1]
        elif self.summary_type == "first":
            summary = hidden[:, 0]
        elif self.summary_type == "mean":
            summary = tf.reduce_mean(hidden, axis=1)
        else:
            attention = typing.cast(AbsoluteAttention, self.attention)
            summary = self._attend(attention, hidden, padding, self.dropatt if training else 0.0, attention_seed)
            summary = self.attention_norm(dropout(summary, rate, output_seed))[:, 0]
        if self.projection is not None:
            summary = self.projection(summary)
        return dropout(summary, rate, result_seed)

    def _attend(
        self,
        attention: AbsoluteAttention,
        hidden: tf.Tensor,
        padding: tf.Tensor | None,
        rate: float,
        seed: tf.Tensor | None,
    ) -> tf.Tensor:
        """The attention output of the learned query: [B, 1, D]."""
        kernels = attention.kernels()
        query = tf.broadcast_to(tf.cast(self.query, hidden.dtype), [tf.shape(hidden)[0], 1, hidden.shape[2]])
        key, value = attention.project_context(hidden, kernels)
        mask = tf.ones([1, hidden.shape[1]], tf.bool) if padding is None else ~padding[:, None, None]
        query = attention.project_query(query, kernels)
        scores = ops.Scores(query, key, causal=False)
        return attention.combine(ops.attend(scores, value, mask, ops.Drop(rate, seed)), kernels)

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        names = ("summary_type", "use_proj", "n_head", "d_head", "layer_norm_epsilon", "dropout", "dropatt", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="txl_tf")
class SummaryLogits(keras.layers.Layer):
    """Numbers for a sequence, from its summary: [B, T, D] -> [B, C].

    A classifier gives the logits of C classes. A regressor gives one prediction. A model that chooses among sequences
    gives one logit for each sequence.

    Args:
        n_class: C.
        init_std: the kernels start as normal(0, init_std).
        summary: the other arguments of `Summary`.
    """

    def __init__(self, n_class: int, *, init_std: float = 0.02, summary: dict[str, typing.Any], **kwargs: typing.Any):
        super().__init__(**kwargs)
        if n_class < 1:
            raise ValueError(f"SummaryLogits: n_class must be positive, got {n_class}")
        self.n_class = n_class
        self.init_std = init_std
        self.arguments = dict(summary)
        self.summary = Summary(**summary, init_std=init_std, dtype=self.dtype_policy, name="summary")

    def build(self, hidden_shape: HiddenShape) -> None:
        """Creates the weights for inputs [B, T, D]."""
        self.summary.build(hidden_shape)
        self.logits = _dense(self, self.n_class, "logits")
        self.logits.build((None, hidden_shape[-1]))

    def call(
        self,
        hidden: tf.Tensor,
        padding: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """The numbers [B, C] in the dtype of the weights; arguments as for `Summary`."""
        summary = self.summary(hidden, padding, seed=seed, training=training)
        return tf.cast(self.logits(summary), self.variable_dtype)

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        return super().get_config() | {
            "n_class": self.n_class,
            "init_std": self.init_std,
            "summary": self.arguments,
        }


@keras.saving.register_keras_serializable(package="txl_tf")
class AnswerSpan(keras.layers.Layer):
    """Finds the position of the answer to a question in a text, and whether there is an answer.

    The logit of a start at t is x_t . w. The logit of an end at t, given the start s, is LN(tanh([x_t; x_s] W)) . w.
    The logit that there is no answer is tanh([x; x_cls] W) . w, where x is the expected hidden state of the start. Each
    formula has weights w and W of its own.

    Results are in the dtype of the weights.

    Args:
        layer_norm_epsilon: added to the variance.
        dropout: dropout rate inside the logit that there is no answer.
        init_std: the kernels start as normal(0, init_std).
    """

    def __init__(
        self, *, layer_norm_epsilon: float = 1e-12, dropout: float = 0.0, init_std: float = 0.02, **kwargs: typing.Any
    ):
        super().__init__(**kwargs)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = checked_rate(dropout, "dropout", self)
        self.init_std = init_std

    def build(self, hidden_shape: HiddenShape) -> None:
        """Creates the weights for inputs [B, T, D]."""
        d_model = hidden_shape[-1]
        self.start = _dense(self, 1, "start")
        self.end_inner = _dense(self, d_model, "end_inner", activation="tanh")
        self.end_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="end_norm"
        )
        self.end_outer = _dense(self, 1, "end_outer")
        self.impossible_inner = _dense(self, d_model, "impossible_inner", activation="tanh")
        self.impossible_outer = _dense(self, 1, "impossible_outer", use_bias=False)
        for layer in (self.start, self.end_norm, self.end_outer, self.impossible_outer):
            layer.build((None, None, d_model))
        for layer in (self.end_inner, self.impossible_inner):
            layer.build((None, 2 * d_model))

    def call(
        self,
        hidden: tf.Tensor,
        allowed: tf.Tensor,
        cls_index: tf.Tensor,
        start: tf.Tensor,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> AnswerLogits:
        """All logits, given the true start; used in training.

        Args:
            hidden: [B, T, D].
            allowed: bool [B, T], where an answer may start and end.
            cls_index: int [B], the position of CLS.
            start: int [B], the true start of the answer.
            seed: as for `dropout`.
            training: whether to apply dropout.
        """
        starts = self.start_logits(hidden, allowed)
        ends = self.end_logits(hidden, allowed, start[:, None])[:, 0]
        begin = self.expected_start(hidden, starts)
        cls = tf.gather(hidden, cls_index, batch_dims=1)
        return AnswerLogits(starts, ends, self.impossible_logit(begin, cls, seed, training))

    def best(
        self, hidden: tf.Tensor, allowed: tf.Tensor, cls_index: tf.Tensor, n_starts: int, n_ends: int
    ) -> BestAnswers:
        """The `n_starts` most likely start positions and, for each, the `n_ends` most likely end positions.

        Args:
            hidden, allowed, cls_index: as for `call`.
            n_starts, n_ends: S and E; at most T of each are returned.
        """
        t_len = hidden.shape[1]
        starts = self.start_logits(hidden, allowed)
        start_log_prob, start = tf.math.top_k(tf.nn.log_softmax(starts), min(n_starts, t_len))
        ends = tf.nn.log_softmax(self.end_logits(hidden, allowed, start))
        end_log_prob, end = tf.math.top_k(ends, min(n_ends, t_len))
        cls = tf.gather(hidden, cls_index, batch_dims=1)
        impossible = self.impossible_logit(self.expected_start(hidden, starts), cls)
        return BestAnswers(start, start_log_prob, end, end_log_prob, impossible)

    def start_logits(self, hidden: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
        """[B, T], IMPOSSIBLE where not allowed."""
        return self._masked(self.start(hidden)[..., 0], allowed)

    def end_logits(self, hidden: tf.Tensor, allowed: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        """[B, S, T] for S start positions, int [B, S]; IMPOSSIBLE where not allowed.

        [x_t; x_s] W is the sum of two products, each computed once for all pairs.
        """
        kernel, d_model = tf.cast(self.end_inner.kernel, hidden.dtype), hidden.shape[2]
        own = tf.einsum("btD,De->bte", hidden, kernel[:d_model])
        begin = tf.einsum("bsD,De->bse", tf.gather(hidden, start, batch_dims=1), kernel[d_model:])
        inner = own[:, None] + begin[:, :, None] + tf.cast(self.end_inner.bias, hidden.dtype)
        logits = self.end_outer(self.end_norm(self.end_inner.activation(inner)))[..., 0]
        return self._masked(logits, allowed[:, None])

    def expected_start(self, hidden: tf.Tensor, start_logits: tf.Tensor) -> tf.Tensor:
        """The expected hidden state [B, D] under the probabilities of the start."""
        return tf.einsum("bt,btD->bD", tf.cast(tf.nn.softmax(start_logits), hidden.dtype), hidden)

    def impossible_logit(
        self, begin: tf.Tensor, cls: tf.Tensor, seed: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """The logit [B] that there is no answer, from the start's and CLS's hidden states, each [B, D]."""
        inner = self.impossible_inner(tf.concat([begin, cls], axis=-1))
        inner = dropout(inner, self.dropout if training else 0.0, seed)
        return tf.cast(self.impossible_outer(inner)[..., 0], self.variable_dtype)

    def _masked(self, logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
        logits = tf.cast(logits, self.variable_dtype)
        return tf.where(allowed, logits, tf.constant(IMPOSSIBLE, logits.dtype))

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        names = ("layer_norm_epsilon", "dropout", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in names}

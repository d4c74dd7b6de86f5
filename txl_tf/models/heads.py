"""Heads: layers that map a model's last hidden states [B, T, D] to labels or scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.ablation_attention import AbsoluteAttention
from txl_tf.layers.attention import HiddenShape
from txl_tf.layers.dropout import check_rate, dropout, split_seed
from txl_tf.layers.layer import Layer

SUMMARY_TYPES = ("last", "first", "mean", "attn")
"""How a sequence becomes one vector: see `Summary`."""


@keras.saving.register_keras_serializable(package="txl_tf")
class Summary(Layer):
    """One vector for a sequence: [B, T, D] -> [B, D].

    "last" and "first" are the hidden state of the last or first token. "mean" is the mean over all tokens, including
    padding, as in the official code. "attn" is the attention output of a learned query, followed by layer norm. Then
    come a dense layer with tanh, if `use_proj`, and dropout.

    Args:
        n_head, d_head, layer_norm_epsilon: of "attn".
        dropout: dropout rate of the result and, in "attn", of the attention output.
        dropatt: of the attention probabilities.
        init_std: the kernels and the learned query start as normal(0, init_std).
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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if summary_type not in SUMMARY_TYPES:
            raise ValueError(f"Summary: summary_type is {summary_type!r}; choose from {SUMMARY_TYPES}")
        self.keep(locals())
        check_rate(dropout, "dropout", self)
        self.attention: Any = None
        self.projection: Any = None
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
            self.query = self.new_weight("query", d_model)
            self.attention.build((None, None, d_model))
            self.attention_norm.build((None, None, d_model))
        if self.use_proj:
            self.projection = self.new_dense(d_model, "projection", activation="tanh")
            self.projection.build((None, d_model))

    def call(
        self,
        hidden: tf.Tensor,
        padding: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """The vectors [B, D] of sequences, hidden [B, T, D].

        padding: bool [B, T], true where there is no token; only "attn" uses it. None: there is no padding.
        seed, training: as for `dropout`, and whether to apply it.
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
            attention, kernels = self.attention, self.attention.kernels()
            query = tf.broadcast_to(tf.cast(self.query, hidden.dtype), [tf.shape(hidden)[0], 1, hidden.shape[2]])
            key, value = attention.project_context(hidden, kernels)
            mask = tf.ones([1, hidden.shape[1]], tf.bool) if padding is None else ~padding[:, None, None]
            scores = ops.Scores(attention.project_query(query, kernels), key, causal=False)
            drop = ops.Drop(self.dropatt if training else 0.0, attention_seed)
            summary = attention.combine(ops.attend(scores, value, mask, drop), kernels)
            summary = self.attention_norm(dropout(summary, rate, output_seed))[:, 0]
        if self.projection is not None:
            summary = self.projection(summary)
        return dropout(summary, rate, result_seed)


@keras.saving.register_keras_serializable(package="txl_tf")
class SummaryLogits(Layer):
    """Numbers for a sequence, from its summary: [B, T, D] -> [B, C], C = n_class; `summary` are arguments of `Summary`.

    A classifier gives the logits of C classes. A regressor gives one prediction. A model that chooses among sequences
    gives one logit for each sequence.
    """

    def __init__(self, n_class: int, *, init_std: float = 0.02, summary: dict[str, Any], **kwargs: Any):
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
        self.logits = self.new_dense(self.n_class, "logits")
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

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"summary": self.arguments}


IMPOSSIBLE = -1e30
"""The logit of a position where no answer may begin or end."""


class AnswerLogits(NamedTuple):
    """The logits of an answer's position.

    start, end: [B, T], of where it starts and ends; `AnswerSpan` conditions those of the end on the start.
    impossible: [B], the logit that there is no answer; None: it follows from the others, and is not learned.
    """

    start: tf.Tensor
    end: tf.Tensor
    impossible: tf.Tensor | None


class BestAnswers(NamedTuple):
    """The most likely start positions, and for each the most likely end positions; best first, in nats.

    start, start_log_prob: [B, S]. end, end_log_prob: [B, S, E]; `AnswerSpan` conditions them on their start.
    impossible: [B], the logit that there is no answer.
    """

    start: tf.Tensor
    start_log_prob: tf.Tensor
    end: tf.Tensor
    end_log_prob: tf.Tensor
    impossible: tf.Tensor


@keras.saving.register_keras_serializable(package="txl_tf")
class AnswerSpan(Layer):
    """Finds the position of the answer to a question in a text, and whether there is an answer.

    The logit of a start at t is x_t . w. The logit of an end at t, given the start s, is LN(tanh([x_t; x_s] W)) . w.
    The logit that there is no answer is tanh([x; x_cls] W) . w, where x is the expected hidden state of the start, with
    dropout inside. Each formula has its own weights w and W; kernels start as normal(0, init_std).

    Results are in the dtype of the weights.
    """

    def __init__(
        self, *, layer_norm_epsilon: float = 1e-12, dropout: float = 0.0, init_std: float = 0.02, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        check_rate(dropout, "dropout", self)

    def build(self, hidden_shape: HiddenShape) -> None:
        """Creates the weights for inputs [B, T, D]."""
        d_model = hidden_shape[-1]
        self.start = self.new_dense(1, "start")
        self.end_inner = self.new_dense(d_model, "end_inner", activation="tanh")
        self.end_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="end_norm"
        )
        self.end_outer = self.new_dense(1, "end_outer")
        self.impossible_inner = self.new_dense(d_model, "impossible_inner", activation="tanh")
        self.impossible_outer = self.new_dense(1, "impossible_outer", use_bias=False)
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
        """All logits for hidden [B, T, D], given the true start; used in training.

        allowed: bool [B, T], where an answer may start and end.
        cls_index, start: int [B], the position of CLS, and the true start of the answer.
        seed, training: as for `dropout`, and whether to apply it.
        """
        starts, impossible = self._starts(hidden, allowed, cls_index, self.dropout if training else 0.0, seed)
        return AnswerLogits(starts, self._ends(hidden, allowed, start[:, None])[:, 0], impossible)

    def best(
        self, hidden: tf.Tensor, allowed: tf.Tensor, cls_index: tf.Tensor, n_starts: int, n_ends: int
    ) -> BestAnswers:
        """The S = `n_starts` most likely start positions and, for each, the E = `n_ends` most likely end positions.

        At most T of each are returned. Other arguments as for `call`.
        """
        t_len = hidden.shape[1]
        starts, impossible = self._starts(hidden, allowed, cls_index)
        start_log_prob, start = tf.math.top_k(tf.nn.log_softmax(starts), min(n_starts, t_len))
        ends = tf.nn.log_softmax(self._ends(hidden, allowed, start))
        end_log_prob, end = tf.math.top_k(ends, min(n_ends, t_len))
        return BestAnswers(start, start_log_prob, end, end_log_prob, impossible)

    def _starts(
        self, hidden: tf.Tensor, allowed: tf.Tensor, cls_index: tf.Tensor, rate: float = 0.0, seed: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The logits of a start, [B, T], and the logit that there is no answer, [B]."""
        starts = _masked(tf.cast(self.start(hidden)[..., 0], self.variable_dtype), allowed)
        expected = tf.einsum("bt,btD->bD", tf.cast(tf.nn.softmax(starts), hidden.dtype), hidden)
        cls = tf.gather(hidden, cls_index, batch_dims=1)
        inner = dropout(self.impossible_inner(tf.concat([expected, cls], axis=-1)), rate, seed)
        return starts, tf.cast(self.impossible_outer(inner)[..., 0], self.variable_dtype)

    def _ends(self, hidden: tf.Tensor, allowed: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        """The logits of an end, [B, S, T], for S start positions, int [B, S]."""
        # [x_t; x_s] W is the sum of two products, each computed once for all pairs.
        kernel, d_model = tf.cast(self.end_inner.kernel, hidden.dtype), hidden.shape[2]
        own = tf.einsum("btD,De->bte", hidden, kernel[:d_model])
        begin = tf.einsum("bsD,De->bse", tf.gather(hidden, start, batch_dims=1), kernel[d_model:])
        inner = own[:, None] + begin[:, :, None] + tf.cast(self.end_inner.bias, hidden.dtype)
        logits = self.end_outer(self.end_norm(self.end_inner.activation(inner)))[..., 0]
        return _masked(tf.cast(logits, self.variable_dtype), allowed[:, None])


def _masked(logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    return tf.where(allowed, logits, tf.constant(IMPOSSIBLE, logits.dtype))


@keras.saving.register_keras_serializable(package="txl_tf")
class PlainSpan(Layer):
    """Finds the position of the answer to a question in a text; its start and its end do not depend on each other.

    The logits of a start and of an end at t are the two entries of x_t W + b. No answer is a start and an end at CLS:
    its probability is the product of theirs. Results are in the dtype of the weights.
    """

    def __init__(self, *, init_std: float = 0.02, **kwargs: Any):
        super().__init__(**kwargs)
        self.init_std = init_std

    def build(self, hidden_shape: HiddenShape) -> None:
        """Creates the weights for inputs [B, T, D]."""
        self.positions = self.new_dense(2, "positions")
        self.positions.build(hidden_shape)

    def call(
        self,
        hidden: tf.Tensor,
        allowed: tf.Tensor,
        cls_index: tf.Tensor,
        start: tf.Tensor,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> AnswerLogits:
        """All logits; arguments as for `AnswerSpan.call`, of which only the first two matter here."""
        logits = _masked(tf.cast(self.positions(hidden), self.variable_dtype), allowed[..., None])
        return AnswerLogits(logits[..., 0], logits[..., 1], None)

    def best(
        self, hidden: tf.Tensor, allowed: tf.Tensor, cls_index: tf.Tensor, n_starts: int, n_ends: int
    ) -> BestAnswers:
        """The `n_starts` positions at which the most likely answers start, and their `n_ends` most likely ends.

        An answer ends at or after its start. One that starts at CLS ends there, and no other does. Arguments as for
        `AnswerSpan.best`.
        """
        t_len = hidden.shape[1]
        logits = self(hidden, allowed, cls_index, cls_index)
        starts, ends = tf.nn.log_softmax(logits.start), tf.nn.log_softmax(logits.end)
        is_cls = tf.one_hot(cls_index, t_len, on_value=True, off_value=False)
        column = tf.range(t_len)
        together = (column[:, None] <= column) & tf.equal(is_cls[:, :, None], is_cls[:, None])
        pairs = _masked(ends[:, None], together)
        _, start = tf.math.top_k(starts + tf.reduce_max(pairs, axis=2), min(n_starts, t_len))
        end_log_prob, end = tf.math.top_k(tf.gather(pairs, start, batch_dims=1), min(n_ends, t_len))
        none = sum(tf.gather(part, cls_index, batch_dims=1) for part in (starts, ends))
        none = tf.minimum(none, -1e-7)  # so that the logit of certainty is finite
        impossible = none - tf.math.log(-tf.math.expm1(none))
        return BestAnswers(start, tf.gather(starts, start, batch_dims=1), end, end_log_prob, impossible)

"""Heads: layers that map a model's last hidden states [B, T, D] to labels or scores."""

from __future__ import annotations

import typing

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
        summary_type: one of SUMMARY_TYPES.
        n_head, d_head, layer_norm_epsilon: of "attn".
        dropout: dropout rate of the result and, in "attn", of the attention output.
        dropatt: dropout rate of the attention probabilities.
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
        **kwargs: typing.Any,
    ):
        super().__init__(**kwargs)
        if summary_type not in SUMMARY_TYPES:
            raise ValueError(f"Summary: summary_type is {summary_type!r}; choose from {SUMMARY_TYPES}")
        self.keep(locals())
        check_rate(dropout, "dropout", self)
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
            attention = typing.cast(AbsoluteAttention, self.attention)
            kernels = attention.kernels()
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

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        return super().get_config() | {"summary": self.arguments}

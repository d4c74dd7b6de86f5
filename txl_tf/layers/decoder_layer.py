"""One layer of the decoder: attention and feed-forward, each with residual and layer norm."""

import keras

from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.layers.dropout import dropout, split_seed
from txl_tf.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable(package="txl_tf")
class DecoderLayer(keras.layers.Layer):
    """LayerNorm(h + Attention(h, mems)), then LayerNorm(h + FeedForward(h)): post-LN, as in the paper.

    Shapes: hidden [B, T, D], mems [B, M, D], result [B, T, D].

    Args:
        n_head, d_head, dropatt, own_biases: as for `RelMultiHeadAttention`.
        d_inner: as for `FeedForward`.
        dropout: rate after the attention's output and inside the feed-forward block.
        init_std: of all kernels.
        layer_norm_epsilon: added to the variance.
    """

    def __init__(
        self,
        *,
        n_head,
        d_head,
        d_inner,
        dropout=0.0,
        dropatt=0.0,
        own_biases=True,
        init_std=0.02,
        layer_norm_epsilon=1e-5,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.arguments = {
            "n_head": n_head,
            "d_head": d_head,
            "d_inner": d_inner,
            "dropout": dropout,
            "dropatt": dropatt,
            "own_biases": own_biases,
            "init_std": init_std,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        policy = self.dtype_policy
        self.attention = RelMultiHeadAttention(
            n_head,
            d_head,
            dropatt=dropatt,
            own_biases=own_biases,
            init_std=init_std,
            dtype=policy,
            name="attention",
        )
        self.attention_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="attention_norm"
        )
        self.feed_forward = FeedForward(d_inner, dropout=dropout, init_std=init_std, dtype=policy, name="feed_forward")
        self.feed_forward_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="feed_forward_norm"
        )

    def build(self, hidden_shape, mems_shape=None):
        """Builds the sublayers for inputs [B, T, D]."""
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            layer.build(hidden_shape)

    def call(
        self, hidden, mems=None, positions=None, attention_mask=None, biases=None, seed=None, training=False, ring=None
    ):
        """The layer's output [B, T, D]; arguments as for `RelMultiHeadAttention.call`.

        With a `ring` (inference) arguments are as for `RelMultiHeadAttention.extend`, and so is the result.
        """
        attention_seed, output_seed, feed_forward_seed = split_seed(seed, 3)
        if ring is None:
            attended = self.attention(
                hidden, mems, positions, attention_mask, biases, seed=attention_seed, training=training
            )
        else:
            attended, ring = self.attention.extend(hidden, ring, positions, attention_mask, biases)
        attended = dropout(attended, self.dropout if training else 0.0, output_seed)
        hidden = self.attention_norm(hidden + attended)
        hidden = self.feed_forward_norm(hidden + self.feed_forward(hidden, seed=feed_forward_seed, training=training))
        return hidden if ring is None else (hidden, ring)

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config() | self.arguments

"""XLNet with outputs for every token, such as a tag for each word."""

from __future__ import annotations

import keras
import tensorflow as tf

from txl_tf.layers.dropout import Seeds
from txl_tf.models.stack import Watch
from txl_tf.models.xlnet.head_config import XLNetTagsConfig
from txl_tf.models.xlnet.with_head import Texts, XLNetWithHead


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNetWithTags(XLNetWithHead):
    """XLNet with C outputs for every token.

    Examples:
        >>> sizes = {"n_layer": 2, "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128}
        >>> model = XLNetWithTags(XLNetTagsConfig(**sizes, n_class=9))
        >>> model(tf.constant([[17, 18, 4, 3]])).shape
        TensorShape([1, 4, 9])
    """

    settings = XLNetTagsConfig

    def __init__(self, config: XLNetTagsConfig, name: str = "xlnet_with_tags"):
        super().__init__(config, name)
        initializer = keras.initializers.RandomNormal(stddev=config.init_std)
        self.head = keras.layers.Dense(
            config.n_class, kernel_initializer=initializer, dtype=self.dtype_policy, name="head"
        )
        self.build((None, None))

    def call(
        self,
        tokens: tf.Tensor,
        *,
        segments: tf.Tensor | None = None,
        padding: tf.Tensor | None = None,
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
        watch: Watch | None = None,
        segment_len: int | None = None,
    ) -> tf.Tensor:
        """The outputs for all tokens, [B, L, C], in the dtype of the weights; arguments as for `XLNet.call`.

        `watch` sees the last segment; for `segment_len` see `Texts` and `hidden_of_segments`.
        """
        texts = Texts(tokens, segments, padding, Seeds.of(seed), training, watch, segment_len)
        hidden = self.hidden(texts, self.hidden_of_segments)
        return tf.cast(self.head(hidden), self.variable_dtype)

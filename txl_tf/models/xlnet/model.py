"""XLNet with its language-model head: (tokens, mems, ..) -> (content stream, query stream, new mems)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.attention import PositionDropout
from txl_tf.layers.dropout import Seeds, dropout, split_seed
from txl_tf.layers.masks import empty_slots, stream_masks
from txl_tf.layers.segment_attention import Rows, Streams
from txl_tf.models.decoder import Decoder, Look
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.config import XLNetConfig


class Text(NamedTuple):
    """Facts of the tokens of segments, besides their ids.

    segments: int [B, T], ids from 0 to 7 that tell segments apart; memory is of segment 0. None: the text is
        one segment.
    visible: bool [B, T, T] or [1, T, T], which tokens a token is predicted from; in the content stream each
        token also sees itself. None: all. A query that sees no key attends equally to all keys but empty slots
        of memory (`mem_init`).
    padding: bool [B, T], true where there is no token; None: there is no padding.
    backward: bool [B], whether a lane's text runs backward; None: none does.
    """

    segments: tf.Tensor | None = None
    visible: tf.Tensor | None = None
    padding: tf.Tensor | None = None
    backward: tf.Tensor | None = None


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNet(Decoder):
    """The two-stream model of Yang et al. 2019 and its softmax, tied to the embedding.

    Without `predicts` it has no softmax, and its query stream is not trained: it is the body of a model with another
    head. It keeps its mask embedding, as the published fine-tuned models do.

    Examples:
        >>> model = XLNet(XLNetConfig(n_layer=2, d_model=64, n_head=4, d_head=16, d_inner=128))
        >>> content, _, _ = model(tf.constant([[17, 18, 19]]))  # all tokens see each other, no memory
        >>> content.shape
        TensorShape([1, 3, 64])
        >>> visible = ~tf.eye(3, dtype=tf.bool)[None]  # every token is predicted from the others
        >>> _, query, _ = model(tf.constant([[17, 18, 19]]), text=Text(visible=visible), targets=tf.constant([[0, 2]]))
        >>> model.nll(query, tf.constant([[17, 19]])).shape
        TensorShape([1, 2])
    """

    settings = XLNetConfig

    def __init__(self, config: XLNetConfig, predicts: bool = True, name: str = "xlnet"):
        self.predicts = predicts
        super().__init__(config, name, {"attn_type": "xlnet"}, {"scale": 1.0}, {} if predicts else None)

    def build_own(self) -> None:
        """Creates the query stream's mask embedding."""
        limit = (6 / (1 + self.config.d_model)) ** 0.5  # as in the official code: TF 1's default for [1, 1, D]
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(self.config.d_model,),
            initializer=keras.initializers.RandomUniform(-limit, limit),
            trainable=self.predicts,
        )

    def initial_mems(self, batch_size: int | tf.Tensor, mem_len: int | None = None) -> Mems:
        """The memory before any text: M zero vectors, attended to or masked by `mem_init`."""
        m_len = self.config.mem_len if mem_len is None else mem_len
        return self.first_mems(batch_size, m_len, self.config.mem_init == "empty")

    def call(
        self,
        tokens: tf.Tensor,
        mems: Mems | None = None,
        *,
        text: Text | None = None,
        targets: tf.Tensor | None = None,
        rows: Rows = "all",
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
        look: Look | None = None,
    ) -> tuple[tf.Tensor | None, tf.Tensor | None, Mems]:
        """Reads a segment with its memory.

        Args:
            tokens: int32 [B, T], T static; the real tokens, including those to be predicted.
            mems: Mems of the segments before, with any number of slots; None: there is no memory.
            text: what is known of the tokens; None: nothing.
            targets: int [B, P], P static: the tokens that the query stream predicts; -1: an unused prediction, which
                has no effect. None: there is no query stream.
            rows: of the result: "all"; "query", without the content stream; or "last", of the content stream only the
                last token's.
            seed, training: as for `TransformerXL.call`. Positions have one mask for all lanes; in the official code
                each lane has its own.
            look: as for `read_segment`. The tensors have T + P rows: the content stream's, the query stream's.

        Returns:
            The content stream [B, T, D], [B, 1, D] with rows="last", or None with "query"; the query stream
            [B, P, D], or None without targets; and the new Mems of the first `reuse_len` tokens, without gradient.

        Raises:
            ValueError: tokens or mems of another shape, or rows="query" without targets or with `look`.
        """
        mems = self.initial_mems(tf.shape(tokens)[0], 0) if mems is None else mems
        self.check(tokens, mems, mems.hidden[0].shape[1])
        if rows == "query" and (targets is None or look is not None):
            raise ValueError("rows='query' needs targets, and leaves nothing to look at")
        segments, visible, padding, backward = text or Text()
        config, t_len, m_len = self.config, tokens.shape[1], mems.hidden[0].shape[1]
        rate, seeds = config.dropout if training else 0.0, Seeds.of(seed)
        (position_seed,) = split_seed(seeds.shared, 1)
        embedding_seed, output_seed, *layer_seeds = split_seed(seeds.lanes, 2 + config.n_layer)
        hidden = self.embedding(tokens)
        drop = PositionDropout(rate, position_seed)
        (encoding,) = self.attention.layer_positions(1, hidden, m_len, config.clamp_len, drop)
        predictions = 0 if targets is None else targets.shape[1]
        hidden, targets = self._with_query_stream(hidden, targets)
        hidden = dropout(hidden, rate, embedding_seed)
        valid = mems.length if config.mem_init == "empty" else None
        query_mask, content_mask = stream_masks(t_len, m_len, visible, padding, valid)
        if segments is not None:
            segments = tf.concat([tf.zeros([tf.shape(tokens)[0], m_len], segments.dtype), segments], axis=1)
        absent = None if valid is None else empty_slots(t_len, m_len, valid)
        streams = Streams(encoding, backward, segments, targets, query_mask, absent)
        last_streams = dataclasses.replace(streams, rows=rows)
        remembered = min(config.reuse_len, t_len) or t_len
        hidden, new_states = self.read_segment(
            hidden,
            mems,
            positions=[streams] * (config.n_layer - 1) + [last_streams],
            seeds=layer_seeds,
            training=training,
            remembered=remembered,
            look=look,
            attention_mask=content_mask,
        )
        hidden = dropout(hidden, rate, output_seed)
        new_mems = Mems(new_states, tf.minimum(mems.length + remembered, m_len))
        count = {"all": t_len, "last": 1, "query": 0}[rows]  # of the content stream
        content = None if not count else hidden if targets is None else hidden[:, :count]
        return content, None if targets is None else hidden[:, count : count + predictions], new_mems

    def _with_query_stream(self, hidden: tf.Tensor, targets: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The embedded segment [B, T, D] and a mask embedding for each target, with unused targets for even rows."""
        if targets is None:
            return hidden, None
        missing = -(hidden.shape[1] + targets.shape[1]) % ops.implementation().row_multiple
        if missing:
            targets = tf.pad(targets, [[0, 0], [0, missing]], constant_values=-1)
        query = tf.cast(tf.convert_to_tensor(self.mask_embedding), hidden.dtype)
        query = tf.broadcast_to(query, [tf.shape(hidden)[0], targets.shape[1], self.config.d_model])
        return tf.concat([hidden, query], axis=1), targets

    def get_config(self) -> dict[str, Any]:
        """The XLNetConfig as a dict, and `predicts`."""
        return super().get_config() | {"predicts": self.predicts}

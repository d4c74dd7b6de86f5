"""XLNets with a head other than the language model's: one stream, and all tokens of a segment see each other.

There is no memory, unless a text is longer than a segment.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf.layers.dropout import Seeds, split_seed
from txl_tf.layers.segment_attention import Rows
from txl_tf.models.decoder import Configured
from txl_tf.models.heads import AnswerLogits, AnswerSpan, PlainSpan, SummaryLogits
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.head_config import XLNetAnswersConfig, XLNetLogitsConfig, XLNetTagsConfig
from txl_tf.models.xlnet.model import Text, XLNet


class HeadInput(NamedTuple):
    """Texts that are read by a model with a head, and how; other fields as for `XLNet.call`.

    tokens: int [B, L].
    segment_len: texts of more tokens than T are read in segments of T; then `segments` and `padding` must be given.
        None: texts are read as they are.
    """

    tokens: tf.Tensor
    segments: tf.Tensor | None
    padding: tf.Tensor | None
    seed: Seeds
    training: bool
    segment_len: int | None = None

    @property
    def at_once(self) -> int:
        """T, or L if they are not longer."""
        length = self.tokens.shape[1]
        return length if self.segment_len is None else min(length, self.segment_len)


class XLNetWithHead(Configured):
    """An XLNet without its softmax, `body`; subclasses add the head, and `outputs_for` HeadInput.

    The body's weights have the paths of a pretrained XLNet's ("xlnet/layer_0/..").
    """

    head: keras.layers.Layer

    def __init__(self, config: Any, name: str = "xlnet_with_head"):
        super().__init__(config, name)
        own = {field.name: getattr(config, field.name) for field in dataclasses.fields(XLNetConfig)}
        self.body = XLNet(XLNetConfig(**own), predicts=False)

    def build(self, tokens_shape: tuple[int | None, ...]) -> None:
        """Creates the head's weights."""
        self.head.build((None, None, self.config.d_model))
        self.built = True

    def call(
        self,
        tokens: tf.Tensor,
        *,
        segments: tf.Tensor | None = None,
        padding: tf.Tensor | None = None,
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
        segment_len: int | None = None,
    ) -> tf.Tensor:
        """The outputs, in the dtype of the weights. The arguments are those of `HeadInput`; lanes are examples."""
        return self.outputs_for(HeadInput(tokens, segments, padding, Seeds.of(seed), training, segment_len))

    def hidden(self, texts: HeadInput, last: bool, rows: Rows = "all") -> tf.Tensor:
        """The body's last hidden states, [B, L, D], or [B, 1, D] with rows="last".

        Texts of more than `segment_len` tokens are read in S segments of T, each with the memory of those before it,
        into which no gradient flows. With `last` only the states of the last T tokens are returned, [B, T, D]. Padding
        must be on the left: so the newest slots of memory are those of real tokens, and the others are masked. A text
        of at most T tokens has the same hidden states as without memory. Memory is of segment 0, so tokens of other
        segments should all be among the last T.

        Raises:
            ValueError: the length is not a multiple of T, or the model forgets tokens or attends to empty slots.
        """
        segment_len = texts.at_once
        if segment_len == texts.tokens.shape[1]:
            text = Text(texts.segments, padding=texts.padding)
            return self.body(texts.tokens, text=text, rows=rows, seed=texts.seed, training=texts.training)[0]
        if texts.segments is None or texts.padding is None:
            raise ValueError("texts that are read in segments need their segment ids and their padding")
        count, rest = divmod(texts.tokens.shape[1], segment_len)
        if rest or self.config.reuse_len or self.config.mem_init != "empty":
            raise ValueError(
                f"texts of {texts.tokens.shape[1]} tokens are not whole segments of {segment_len}, or reuse_len="
                f"{self.config.reuse_len} is not 0, or mem_init={self.config.mem_init!r} not 'empty'"
            )
        shared, lanes = ([None] * count if each is None else tf.stack(split_seed(each, count)) for each in texts.seed)

        def read(i: int | tf.Tensor, mems: Mems) -> tuple[tf.Tensor, Mems]:
            def cut(tensor: tf.Tensor) -> tf.Tensor:
                return tf.gather(tf.reshape(tensor, [-1, count, segment_len]), i, axis=1)

            padding = cut(texts.padding)
            hidden, _, new = self.body(
                cut(texts.tokens),
                mems,
                text=Text(cut(texts.segments), padding=padding),
                seed=Seeds(None if shared[0] is None else shared[i], None if lanes[0] is None else lanes[i]),
                training=texts.training,
            )
            known = mems.length + tf.reduce_sum(tf.cast(~padding, tf.int32), axis=1)
            return hidden, Mems(new.hidden, tf.minimum(known, mems.hidden[0].shape[1]))

        mems = self.body.initial_mems(tf.shape(texts.tokens)[0], min(self.config.mem_len, (count - 1) * segment_len))
        if last:
            _, mems = tf.while_loop(
                lambda i, _: i < count - 1,
                lambda i, mems: (i + 1, read(i, mems)[1]),
                (0, mems),
                maximum_iterations=count - 1,
            )
            return read(count - 1, tf.nest.map_structure(tf.stop_gradient, mems))[0]
        found = []
        for i in range(count):
            hidden, mems = read(i, mems)
            found.append(hidden)
        return tf.concat(found, axis=1)


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNetWithLogits(XLNetWithHead):
    """XLNet with C outputs for a sequence: a classifier, a regressor, or a model that scores choices.

    Examples:
        >>> sizes = {"n_layer": 2, "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128}
        >>> model = XLNetWithLogits(XLNetLogitsConfig(**sizes, n_class=3))
        >>> model(tf.constant([[17, 18, 4, 3]])).shape
        TensorShape([1, 3])
    """

    settings = XLNetLogitsConfig

    def __init__(self, config: XLNetLogitsConfig, name: str = "xlnet_with_logits"):
        super().__init__(config, name)
        summary = {name: getattr(config, name) for name in ("summary_type", "n_head", "d_head", "dropatt")}
        summary |= {"use_proj": config.summary_use_proj, "dropout": config.summary_dropout}
        summary |= {"layer_norm_epsilon": config.layer_norm_epsilon}
        self.head = SummaryLogits(
            config.n_class, init_std=config.init_std, summary=summary, dtype=self.dtype_policy, name="head"
        )
        self.build((None, None))

    def outputs_for(self, texts: HeadInput) -> tf.Tensor:
        """[B, C], or [B, n, C] for n sequences per example: then tokens are [B, n, T], n static."""
        if len(texts.tokens.shape) == 3:
            n, t_len = texts.tokens.shape[1:]
            tokens, segments, padding = (None if x is None else tf.reshape(x, [-1, t_len]) for x in texts[:3])
            seeds = texts.seed
            if seeds.lanes is not None and len(seeds.lanes.shape) == 2:
                seeds = Seeds(seeds.shared, tf.reshape(tf.stack(split_seed(seeds.lanes, n), axis=1), [-1, 2]))
            logits = self.outputs_for(HeadInput(tokens, segments, padding, seeds, texts.training))
            return tf.reshape(logits, [-1, n, self.config.n_class])
        body_seeds, head_seeds = texts.seed.split(2)
        rows: Rows = "last" if self.config.summary_type == "last" else "all"
        hidden = self.hidden(texts._replace(seed=body_seeds), True, rows)
        padding = None if texts.padding is None else texts.padding[:, -texts.at_once :]
        return self.head(hidden, padding, seed=head_seeds.lanes, training=texts.training)


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNetWithTags(XLNetWithHead):
    """XLNet with C outputs for every token, [B, L, C]."""

    settings = XLNetTagsConfig

    def __init__(self, config: XLNetTagsConfig, name: str = "xlnet_with_tags"):
        super().__init__(config, name)
        initializer = keras.initializers.RandomNormal(stddev=config.init_std)
        self.head = keras.layers.Dense(
            config.n_class, kernel_initializer=initializer, dtype=self.dtype_policy, name="head"
        )
        self.build((None, None))

    def outputs_for(self, texts: HeadInput) -> tf.Tensor:
        """[B, L, C]."""
        return tf.cast(self.head(self.hidden(texts, last=False)), self.variable_dtype)


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNetWithAnswers(XLNetWithHead):
    """XLNet that finds the position of the answer to a question in a text, and whether there is an answer.

    Examples:
        >>> model = XLNetWithAnswers(XLNetAnswersConfig(n_layer=2, d_model=64, n_head=4, d_head=16, d_inner=128))
        >>> allowed = tf.constant([[True, True, False, False, True]])  # two tokens of the text, and CLS
        >>> model(tf.constant([[17, 18, 4, 19, 3]]), allowed, tf.constant([4]), tf.constant([0])).end.shape
        TensorShape([1, 5])
    """

    settings = XLNetAnswersConfig

    def __init__(self, config: XLNetAnswersConfig, name: str = "xlnet_with_answers"):
        super().__init__(config, name)
        common: dict[str, Any] = {"init_std": config.init_std, "dtype": self.dtype_policy, "name": "head"}
        if config.answer_head == "simple":
            self.head = PlainSpan(**common)
        else:
            self.head = AnswerSpan(layer_norm_epsilon=config.layer_norm_epsilon, dropout=config.dropout, **common)
        self.build((None, None))

    def call(  # type: ignore[override]
        self,
        tokens: tf.Tensor,
        allowed: tf.Tensor,
        cls_index: tf.Tensor,
        start: tf.Tensor,
        *,
        segments: tf.Tensor | None = None,
        padding: tf.Tensor | None = None,
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
    ) -> AnswerLogits:
        """All logits for tokens [B, T], given the true start; arguments as for `AnswerSpan.call` and `XLNet.call`."""
        body_seeds, head_seeds = Seeds.of(seed).split(2)
        hidden, _, _ = self.body(tokens, text=Text(segments, padding=padding), seed=body_seeds, training=training)
        return self.head(hidden, allowed, cls_index, start, seed=head_seeds.lanes, training=training)

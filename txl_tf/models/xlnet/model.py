"""XLNet with its language-model head: (tokens, mems, ..) -> (content stream, query stream, new mems)."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.dropout import Seeds, dropout, split_seed
from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.layers.masks import empty_slots, stream_masks
from txl_tf.layers.memory_attention import PositionDropout
from txl_tf.layers.segment_attention import SegmentAttention, Streams
from txl_tf.layers.softmax import AdaptiveSoftmax
from txl_tf.models.alike_layers import AlikeLayers, alike_seeds
from txl_tf.models.memory import Mems, check_mems, first_mems
from txl_tf.models.stack import Look, Watch, read_segment, way_to_run
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.ops import Cluster
from txl_tf.settings.groups import from_dict


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNet(keras.Model):
    """The two-stream model of Yang et al. 2019 and its softmax, tied to the embedding.

    Args:
        config: an XLNetConfig.
        predicts: whether it has a softmax, and its query stream is trained. If not, it is the body of a model with
            another head. It keeps its mask embedding, as the published fine-tuned models do.

    Examples:
        >>> model = XLNet(XLNetConfig(n_layer=2, d_model=64, n_head=4, d_head=16, d_inner=128))
        >>> content, _, _ = model(tf.constant([[17, 18, 19]]))  # all tokens see each other, no memory
        >>> content.shape
        TensorShape([1, 3, 64])
        >>> visible = ~tf.eye(3, dtype=tf.bool)[None]  # every token is predicted from the others
        >>> _, query, _ = model(tf.constant([[17, 18, 19]]), visible=visible, targets=tf.constant([[0, 2]]))
        >>> model.nll(query, tf.constant([[17, 19]])).shape
        TensorShape([1, 2])
    """

    def __init__(self, config: XLNetConfig, predicts: bool = True, name: str = "xlnet"):
        super().__init__(name=name, dtype=config.dtype)
        self.config = config
        self.predicts = predicts
        policy, shared = self.dtype_policy, dataclasses.asdict(config)

        def pick(*names: str) -> dict[str, Any]:
            return {name: shared[name] for name in names}

        vocabulary = pick("vocab_size", "d_model", "init_std")
        self.embedding = AdaptiveEmbedding(**vocabulary, scale=1.0, tied=predicts, dtype=policy, name="embedding")
        self.decoder_layers = [
            DecoderLayer(
                **pick("n_head", "d_head", "d_inner", "activation", "dropout", "dropatt"),
                **pick("init_std", "layer_norm_epsilon"),
                attn_type="xlnet",
                own_biases=config.untie_r,
                dtype=policy,
                name=f"layer_{i}",
            )
            for i in range(config.n_layer)
        ]
        self.softmax = AdaptiveSoftmax(**vocabulary, dtype=policy, name="softmax") if predicts else None
        self.build((None, None))

    def build(self, tokens_shape: tuple[int | None, ...]) -> None:
        """Creates all weights; they depend on no length or batch size."""
        config = self.config
        hidden_shape = (None, None, config.d_model)
        self.embedding.build(tokens_shape)
        for layer in self.decoder_layers:
            layer.build(hidden_shape)
        if self.softmax is not None:
            self.softmax.build(hidden_shape)
        limit = (6 / (1 + config.d_model)) ** 0.5  # as in the official code: TF 1's default for a variable [1, 1, D]
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(config.d_model,),
            initializer=keras.initializers.RandomUniform(-limit, limit),
            trainable=self.predicts,
        )
        self.shared_biases = None
        if not config.untie_r:
            self.shared_biases = [
                self.add_weight(
                    name=name,
                    shape=(config.n_head, config.d_head),
                    initializer=keras.initializers.RandomNormal(stddev=config.init_std),
                )
                for name in ("content_bias", "position_bias", "segment_bias")
            ]
        self.alike_layers = AlikeLayers(self.decoder_layers)
        self.built = True

    @property
    def attention(self) -> SegmentAttention:
        """The first layer's attention."""
        return self.decoder_layers[0].attention

    @property
    def activations(self) -> tuple[str, ...]:
        """The names that are passed to `watch`, in order."""
        return ("embedding", *(layer.name for layer in self.decoder_layers))

    def initial_mems(self, batch_size: int | tf.Tensor, mem_len: int | None = None) -> Mems:
        """The memory before any text: zero vectors, attended to or masked by `mem_init`.

        Args:
            batch_size: B.
            mem_len: M; None: the config's.
        """
        config = self.config
        m_len, masked = config.mem_len if mem_len is None else mem_len, config.mem_init == "empty"
        return first_mems(config.n_layer, batch_size, m_len, config.d_model, self.compute_dtype, masked)

    def call(
        self,
        tokens: tf.Tensor,
        mems: Mems | None = None,
        *,
        segments: tf.Tensor | None = None,
        visible: tf.Tensor | None = None,
        padding: tf.Tensor | None = None,
        targets: tf.Tensor | None = None,
        query_only: bool = False,
        last_only: bool = False,
        first_part: int = 0,
        backward: tf.Tensor | None = None,
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
        watch: Watch | None = None,
        look: Look | None = None,
    ) -> tuple[tf.Tensor | None, tf.Tensor | None, Mems]:
        """Reads a segment with its memory.

        Args:
            tokens: int32 [B, T], T static; the real tokens, including those to be predicted.
            mems: Mems of the segments before, with any number of slots; None: there is no memory.
            segments: int [B, T], ids from 0 to 7 that tell segments apart; memory is of segment 0. None: the text is
                one segment.
            visible: bool [B, T, T] or [1, T, T], which tokens a token is predicted from; in the content stream each
                token also sees itself. None: all. A query that sees no key attends equally to all
                keys, without the empty slots of memory (`mem_init`).
            padding: bool [B, T], true where there is no token; None: there is no padding.
            targets: int [B, P], P static: the tokens that the query stream predicts; -1: an unused prediction, which
                has no effect. None: there is no query stream.
            query_only: do not compute the content stream's own result.
            last_only: compute the content stream's result for the last token alone.
            first_part: a number of tokens at the segment's start that, by `visible`, see no later token; the content
                stream then does not compute their scores with later tokens. 0: not known.
            backward: bool [B], in which lanes the text runs backward; None: in none.
            seed: Seeds or int32 [2], of this call's dropout; None: drawn from TensorFlow's global generator. Positions
                have one mask for all lanes; in the official code each lane has its own.
            training: whether to apply dropout.
            watch, look: as for `read_segment`; watch is also called with the embedded segment. The tensors have T + P
                rows, the content stream's and the query stream's.

        Returns:
            The content stream [B, T, D], [B, 1, D] with `last_only`, or None with `query_only`; the query stream
            [B, P, D], or None without targets; and the new Mems, which remember the first `reuse_len` tokens. No
            gradient flows into either Mems.

        Raises:
            ValueError: tokens or mems of another shape, or `query_only` without targets or with `look`.
        """
        mems = self._checked_mems(tokens, mems)
        if query_only and (targets is None or look is not None):
            raise ValueError("query_only needs targets, and leaves nothing to look at")
        config, t_len, m_len = self.config, tokens.shape[1], mems.hidden[0].shape[1]
        rate, seeds = config.dropout if training else 0.0, Seeds.of(seed)
        (position_seed,) = split_seed(seeds.shared, 1)
        embedding_seed, output_seed, *layer_seeds = alike_seeds(seeds.lanes, 2 + config.n_layer)
        hidden = self.embedding(tokens)
        drop = PositionDropout(rate, position_seed)
        (encoding,) = self.attention.layer_positions(1, hidden, m_len, config.clamp_len, drop)
        predictions = 0 if targets is None else targets.shape[1]
        hidden, targets = self._with_query_stream(hidden, targets)
        hidden = dropout(hidden, rate, embedding_seed)
        if watch is not None:
            watch("embedding", hidden)

        valid = mems.length if config.mem_init == "empty" else None
        query_mask, content_mask = stream_masks(t_len, m_len, visible, padding, valid)
        if segments is not None:
            segments = tf.concat([tf.zeros([tf.shape(tokens)[0], m_len], segments.dtype), segments], axis=1)
        absent = None if valid is None else empty_slots(t_len, m_len, valid)
        streams = Streams(encoding, backward, segments, targets, query_mask, absent, first_part=first_part)
        last_streams = dataclasses.replace(streams, query_only=query_only, last_only=last_only)
        remembered = min(config.reuse_len, t_len) or t_len
        hidden, new_states = read_segment(
            self.decoder_layers,
            hidden,
            mems.hidden,
            way_to_run(self.alike_layers, config.remat and training, look),
            remembered=remembered,
            positions=[streams] * (config.n_layer - 1) + [last_streams],
            seeds=layer_seeds,
            watch=watch,
            look=look,
            attention_mask=content_mask,
            biases=self.shared_biases,
            training=training,
        )
        hidden = dropout(hidden, rate, output_seed)
        new_mems = Mems(new_states, tf.minimum(mems.length + remembered, m_len))
        rows = 0 if query_only else 1 if last_only else t_len
        content = None if query_only else hidden if targets is None else hidden[:, :rows]
        return content, None if targets is None else hidden[:, rows : rows + predictions], new_mems

    def _checked_mems(self, tokens: tf.Tensor, mems: Mems | None) -> Mems:
        """The memory, without any slots if there is none; ValueError for tokens or mems of another shape."""
        if len(tokens.shape) != 2 or tokens.shape[1] is None or not tokens.dtype.is_integer:
            raise ValueError(f"tokens must be integers [B, T] with T known, got {tokens.dtype.name} {tokens.shape}")
        if mems is None:
            mems = self.initial_mems(tf.shape(tokens)[0], 0)
        check_mems(mems, tokens, self.config.n_layer, mems.hidden[0].shape[1], self.config.d_model)
        return mems

    def _with_query_stream(self, hidden: tf.Tensor, targets: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The embedded segment [B, T, D] and a mask embedding for each target, with unused targets for even rows."""
        if targets is None:
            return hidden, None
        missing = ops.missing_rows(hidden.shape[1] + targets.shape[1])
        if missing:
            targets = tf.pad(targets, [[0, 0], [0, missing]], constant_values=-1)
        query = tf.cast(tf.convert_to_tensor(self.mask_embedding), hidden.dtype)
        query = tf.broadcast_to(query, [tf.shape(hidden)[0], targets.shape[1], self.config.d_model])
        return tf.concat([hidden, query], axis=1), targets

    def nll(self, hidden: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Negative log-likelihood of tokens [B, P] given hidden [B, P, D]: float32 [B, P], in nats.

        A token of -1 is not scored: its value is 0, without a gradient.

        Raises:
            ValueError: the numbers of tokens and hidden states differ.
        """
        if not tf.TensorShape(hidden.shape[:-1]).is_compatible_with(targets.shape):
            raise ValueError(f"each of hidden's {hidden.shape[:-1]} states needs a target, got targets {targets.shape}")
        return self._checked_softmax().nll(hidden, targets, self.embedding)

    def log_prob(self, hidden: tf.Tensor, clusters: list[Cluster] | None = None) -> tf.Tensor:
        """Log-probabilities of all V tokens: float32 [.., V]; clusters: as for `AdaptiveSoftmax.log_prob`."""
        return self._checked_softmax().log_prob(hidden, self.embedding, clusters)

    def _checked_softmax(self) -> AdaptiveSoftmax:
        if self.softmax is None:
            raise ValueError(
                f"{self.name} is the body of a model with another head (predicts=False): it has no softmax"
            )
        return self.softmax

    def get_config(self) -> dict[str, Any]:
        """The XLNetConfig as a dict, and `predicts`."""
        return {"config": dataclasses.asdict(self.config), "predicts": self.predicts}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> XLNet:
        """The model of `get_config`'s dict."""
        return cls(from_dict(XLNetConfig, config["config"], "saved model"), config["predicts"])

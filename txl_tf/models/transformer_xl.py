"""The Transformer-XL decoder with its language-model head: (tokens, mems) -> (hidden, new mems)."""

import dataclasses
import functools
import typing

import keras
import tensorflow as tf

from txl_tf.config import ModelConfig, from_dict
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.dropout import TIME, dropout, split_seed, token_dropout
from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.layers.relative import visible_keys
from txl_tf.layers.softmax import AdaptiveSoftmax
from txl_tf.models.positions import layer_positions


class Mems(typing.NamedTuple):
    """What the decoder remembers of earlier segments: a value, passed in and handed back, never kept inside.

    hidden: a tuple of N tensors [B, M, D], the newest M inputs of each layer, oldest first.
    length: int32 [B], how many of the M slots are real; the others are older than the text. It counts only where
        empty slots are masked (`mem_init="empty"`).
    """

    hidden: tuple
    length: tf.Tensor


@keras.saving.register_keras_serializable(package="txl_tf")
class TransformerXL(keras.Model):
    """The decoder of Dai et al. 2019 and its softmax, tied to the embedding.

    Args:
        config: a ModelConfig.

    Example:
        >>> model = TransformerXL(ModelConfig(vocab_size=256, n_layer=2, mem_len=32))
        >>> mems = model.initial_mems(batch_size=4)
        >>> for inputs, targets in segments:  # int32 [4, T] each
        ...     hidden, mems = model(inputs, mems)
        ...     nll = model.nll(hidden, targets)  # [4, T], nats
    """

    def __init__(self, config, name="transformer_xl"):
        super().__init__(name=name, dtype=config.dtype)
        self.config = config
        policy, shared = self.dtype_policy, dataclasses.asdict(config)

        def pick(*names):
            return {name: shared[name] for name in names}

        vocabulary = pick(
            "vocab_size", "d_model", "d_embed", "cutoffs", "div_val", "proj_same_dim", "init_std", "proj_init_std"
        )
        self.embedding = AdaptiveEmbedding(**vocabulary, dtype=policy, name="embedding")
        self.decoder_layers = [
            DecoderLayer(
                **pick("n_head", "d_head", "d_inner", "activation", "pre_lnorm", "dropout", "dropatt"),
                variational=config.dropout_type == "variational",
                **pick("init_std", "layer_norm_epsilon", "attn_type", "max_klen"),
                own_biases=config.untie_r,
                dtype=policy,
                name=f"layer_{i}",
            )
            for i in range(config.n_layer)
        ]
        self.softmax = AdaptiveSoftmax(
            **vocabulary, **pick("tie_weight", "proj_share_all_but_first"), dtype=policy, name="softmax"
        )
        self.build((None, None))

    def build(self, tokens_shape):
        """Creates all weights; they depend on no length or batch size."""
        hidden_shape = (None, None, self.config.d_model)
        self.embedding.build(tokens_shape)
        for layer in self.decoder_layers:
            layer.build(hidden_shape)
        self.softmax.build(hidden_shape)
        self.shared_biases = None
        if self.config.attn_type == "transformer_xl" and not self.config.untie_r:
            self.shared_biases = [
                self.add_weight(
                    name=name,
                    shape=(self.config.n_head, self.config.d_head),
                    initializer=keras.initializers.RandomNormal(stddev=self.config.init_std),
                )
                for name in ("content_bias", "position_bias")
            ]
        self.built = True

    def initial_mems(self, batch_size, reach=None):
        """The memory before any text: zero vectors, attended to or masked by `mem_init`.

        Args:
            batch_size: B.
            reach: a Reach; None: the config's.
        """
        reach = reach or self.config.reach
        shape = [batch_size, reach.mem_len, self.config.d_model]
        return Mems(
            hidden=tuple(tf.zeros(shape, self.compute_dtype) for _ in self.decoder_layers),
            length=tf.fill([batch_size], reach.mem_len if reach.mem_init == "zeros" else 0),
        )

    def call(self, tokens, mems=None, *, reach=None, seed=None, training=False):
        """Reads a segment in the light of the memory.

        Args:
            tokens: int32 [B, T], T static.
            mems: Mems of the segments before, or None at the start.
            reach: a Reach; None: the config's. Its mem_len is that of `mems`.
            seed: int32 [2], of this call's dropout; None: drawn from TensorFlow's global generator.
            training: whether to drop.

        Returns:
            hidden [B, T, D], for `nll` or `log_prob`, and the new Mems; no gradient flows into either Mems.

        Raises:
            ValueError: tokens or mems of another shape.
        """
        reach = reach or self.config.reach
        if len(tokens.shape) != 2 or tokens.shape[1] is None or not tokens.dtype.is_integer:
            raise ValueError(f"tokens must be integers [B, T] with T known, got {tokens.dtype.name} {tokens.shape}")
        if mems is None:
            mems = self.initial_mems(tf.shape(tokens)[0], reach)
        t_len, m_len = tokens.shape[1], reach.mem_len
        self._check_mems(tokens, mems, m_len)
        config = self.config
        rate, token_rate = (config.dropout, config.dropemb) if training else (0.0, 0.0)
        shared_axis = TIME if config.dropout_type == "variational" else None
        embedding_seed, position_seed, output_seed, *layer_seeds = split_seed(seed, 3 + len(self.decoder_layers))
        token_seed, embedding_seed = split_seed(embedding_seed, 2) if token_rate else (None, embedding_seed)
        mask = visible_keys(t_len, m_len, reach.window, mems.length if reach.mem_init == "empty" else None)
        hidden = token_dropout(self.embedding(tokens), tokens, config.vocab_size, token_rate, token_seed)
        hidden = dropout(hidden, rate, embedding_seed, shared_axis)
        positions = layer_positions(config, reach, hidden, m_len, rate, position_seed, embedding_seed, shared_axis)
        new_hidden = []
        for layer, memory, position, layer_seed in zip(
            self.decoder_layers, mems.hidden, positions, layer_seeds, strict=True
        ):
            new_hidden.append(_shift_in(memory, hidden))
            read = functools.partial(
                layer,
                positions=position,
                attention_mask=mask,
                biases=self.shared_biases,
                seed=layer_seed,
                training=training,
            )
            hidden = (tf.recompute_grad(read) if config.remat and training else read)(hidden, memory)
        new_mems = Mems(tuple(new_hidden), tf.minimum(mems.length + t_len, m_len))
        return dropout(hidden, rate, output_seed, shared_axis), new_mems

    def _check_mems(self, tokens, mems, m_len):
        want = tf.TensorShape([tokens.shape[0], m_len, self.config.d_model])
        given = [memory.shape for memory in mems.hidden]
        if len(given) != self.config.n_layer or not all(want.is_compatible_with(shape) for shape in given):
            raise ValueError(
                f"mems must be {self.config.n_layer} tensors {want} for tokens {tokens.shape} and mem_len={m_len}, got "
                f"{[tuple(shape) for shape in given]}: take them from initial_mems with the same batch size and reach"
            )

    def nll(self, hidden, targets, clusters=None):
        """Negative log-likelihood of targets [B, T] given hidden [B, T, D]: float32 [B, T], in nats.

        Where the target is -1 there is nothing to score: 0, with no gradient. clusters: as for `AdaptiveSoftmax.nll`.

        Raises:
            ValueError: not as many targets as hidden states.
        """
        if not tf.TensorShape(hidden.shape[:-1]).is_compatible_with(targets.shape):
            raise ValueError(f"each of hidden's {hidden.shape[:-1]} states needs a target, got targets {targets.shape}")
        return self.softmax.nll(hidden, targets, self.embedding, clusters)

    def log_prob(self, hidden):
        """Log-probabilities of every next token: float32 [.., V]."""
        return self.softmax.log_prob(hidden, self.embedding)

    def get_config(self):
        """The ModelConfig as a dict."""
        return {"config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config):
        """The model of `get_config`'s dict."""
        return cls(from_dict(ModelConfig, config["config"], "saved model"))


def _shift_in(memory, hidden):
    """The newest M of [memory, hidden] along time, without gradient: [B, M, D]."""
    m_len, t_len = memory.shape[1], hidden.shape[1]
    hidden = tf.stop_gradient(hidden)
    if m_len <= t_len:
        return hidden[:, t_len - m_len :]
    return tf.concat([memory[:, t_len:], hidden], axis=1)

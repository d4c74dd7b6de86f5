"""The Transformer-XL decoder with its language-model head: (tokens, mems) -> (hidden, new mems)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from txl_tf.layers.attention import PositionDropout
from txl_tf.layers.dropout import TIME, Seeds, dropout, split_seed, token_dropout
from txl_tf.layers.dropout_rates import Rates
from txl_tf.layers.masks import visible_keys, without_padding
from txl_tf.models.decoder import Decoder, Look
from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl.config import Reach, TransformerXLConfig
from txl_tf.ops.int8 import round_table, round_variable


class Lengths(NamedTuple):
    """How many tokens of a segment belong to the text; the others are padding.

    context: int32 [B], of the first E tokens, if they are the extended context (`reach.ext_len`): the newest ones. The
        memory then ends before these E tokens. None: there is no extended context.
    segment: int32 scalar, of the other tokens. The rest is padding, which no token sees and no memory holds. None: all.
    """

    context: tf.Tensor | None = None
    segment: tf.Tensor | None = None


@keras.saving.register_keras_serializable(package="txl_tf")
class TransformerXL(Decoder):
    """The decoder of Dai et al. 2019 and its softmax, tied to the embedding.

    Examples:
        >>> model = TransformerXL(TransformerXLConfig(vocab_size=256, n_layer=2, mem_len=32))
        >>> mems = model.initial_mems(batch_size=4)
        >>> for inputs, targets in segments:  # int32 [4, T] each
        ...     hidden, mems = model(inputs, mems)
        ...     nll = model.nll(hidden, targets)  # [4, T], nats
    """

    settings = TransformerXLConfig

    def __init__(self, config: TransformerXLConfig, name: str = "transformer_xl"):
        names = ("pre_lnorm", "attn_type", "max_klen", "norm_init_std", "tied_positions")
        layer = {name: getattr(config, name) for name in names}
        layer |= {"variational": config.dropout_type == "variational", "dropout": config.rates}
        softmax = {name: getattr(config, name) for name in ("tie_weight", "proj_share_all_but_first")}
        super().__init__(config, name, layer, {}, softmax)

    def round_to_int8(self) -> None:
        """Rounds matrices to int8 numbers times a scale for each output channel, for inference.

        Rounds the matrices of all layers, and the softmax's tables, with a scale for each token. If the embedding has
        the same tables, it is rounded, too. Biases, layer norms, the tables' projections and the projection of
        positions, which inference computes once, stay as they are.
        """
        for layer in self.decoder_layers:
            attention, feed_forward = layer.attention, layer.feed_forward
            dense = [part.kernel for part in (feed_forward.inner, feed_forward.outer)]
            for kernel in (attention.query_kernel, attention.key_kernel, attention.value_kernel, *dense):
                round_variable(kernel, inputs=1)
            round_variable(attention.output_kernel, inputs=2)
        for table in self.softmax.output_tables(self.embedding):
            round_table(table)

    def initial_mems(self, batch_size: int | tf.Tensor, reach: Reach | None = None) -> Mems:
        """The memory before any text: zero vectors, attended to or masked by `mem_init`; reach: None: the config's."""
        reach = reach or self.config.reach
        return self.first_mems(batch_size, reach.mem_len, reach.mem_init == "empty")

    def call(
        self,
        tokens: tf.Tensor,
        mems: Mems | None = None,
        *,
        reach: Reach | None = None,
        seed: Seeds | tf.Tensor | None = None,
        training: bool = False,
        look: Look | None = None,
        lengths: Lengths | None = None,
        before_dropout: Callable[[tf.Tensor], None] | None = None,
    ) -> tuple[tf.Tensor, Mems]:
        """Reads a segment with the memory of earlier segments: hidden [B, T, D], for `nll` or `log_prob`, and new Mems.

        No gradient flows into either Mems. The hidden states are without those of the extended context.

        Args:
            tokens: int32 [B, T], T static.
            mems: Mems of the segments before, or None at the start.
            reach: a Reach; None: the config's. Its mem_len is that of `mems`.
            seed: Seeds or int32 [2], of this call's dropout; None: drawn from TensorFlow's global generator.
            training: whether to drop.
            look: as for `read_segment`.
            lengths: how many tokens belong to the text; None: all.
            before_dropout: called with the hidden states as they are before the last dropout.

        Raises:
            ValueError: tokens or mems of another shape.
        """
        reach = reach or self.config.reach
        mems = self.initial_mems(tf.shape(tokens)[0], reach) if mems is None else mems
        self.check(tokens, mems, reach.mem_len)
        config, t_len, m_len = self.config, tokens.shape[1], reach.mem_len
        rates, token_rate = (config.rates, config.dropemb) if training else (Rates(), 0.0)
        shared_axis = TIME if config.dropout_type == "variational" else None
        seeds = Seeds.of(seed)
        token_seed, position_seed = split_seed(seeds.shared, 2)
        embedding_seed, output_seed, *layer_seeds = split_seed(seeds.lanes, 2 + len(self.decoder_layers))
        mask = visible_keys(t_len, m_len, reach.window, mems.length if reach.mem_init == "empty" else None)
        seen, length = lengths or Lengths()
        moved = t_len if length is None else length  # tokens that enter the memory
        remembered = length
        if seen is not None:
            mask = without_padding(mask, tf.range(t_len)[None] < reach.ext_len - seen[:, None])
            remembered = t_len - reach.ext_len if length is None else length
            moved = tf.maximum(seen + remembered - reach.ext_len, 0)
        hidden = token_dropout(self.embedding(tokens), tokens, config.vocab_size, token_rate, token_seed)
        hidden = dropout(hidden, rates.input, embedding_seed, shared_axis)
        drop = PositionDropout(rates.positions, position_seed, embedding_seed, shared_axis)
        hidden, new_states = self.read_segment(
            hidden,
            mems,
            positions=self.attention.layer_positions(config.n_layer, hidden, m_len, reach.clamp_len, drop),
            seeds=layer_seeds,
            training=training,
            remembered=remembered,
            look=look,
            attention_mask=mask,
        )
        new_mems = Mems(new_states, tf.minimum(mems.length + moved, m_len))
        hidden = hidden if seen is None else hidden[:, reach.ext_len :]
        if before_dropout is not None:
            before_dropout(hidden)
        return dropout(hidden, rates.output, output_seed, shared_axis), new_mems

    def attention_probabilities(self, tokens: tf.Tensor, mems: Mems, reach: Reach | None = None) -> tf.Tensor:
        """Attention probabilities [B, N, H, T, K] in the dtype of the weights; arguments as for `call`."""
        layers: list[tf.Tensor] = []
        self(tokens, mems, reach=reach, look=lambda _, probabilities: layers.append(probabilities))
        return tf.stack(layers, axis=1)

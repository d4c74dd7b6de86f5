"""The number of floating-point operations of a training step: the numerator of MFU (model FLOPs utilisation)."""

from __future__ import annotations

from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig


def transformer_xl_step(config: TransformerXLRunConfig) -> int:
    """`transformer_xl` of a step of a run."""
    tgt_len = config.data.tgt_len
    scored = tgt_len - tgt_len // 2 if config.objective.loss_positions == "half" else tgt_len
    return transformer_xl(config.model, config.data.batch_size, tgt_len, scored)


def transformer_xl(config: TransformerXLConfig, batch_size: int, tgt_len: int, scored: int | None = None) -> int:
    """Multiplications and additions of the matmuls of one training step, forward and backward.

    Computed from the sizes only: the operations that the model needs, not those that a program executes.
    Recomputation (`remat`), padding and unused gradients do not count. All K = M + T keys of a query count, including
    future keys that a mask hides, as in the usual definition of MFU (Chowdhery et al. 2022, arXiv 2204.02311,
    appendix B).

    A matmul [a, b] x [b, c] takes 2 a b c forward, and the same again backward for each of its two gradients: a factor
    of 3. The factor is 2 where no gradient flows back: into the sinusoids, and into the memory, unless the layer norm
    of pre-LN or alrfou's vectors are applied to it.

    With cutoffs only the head is counted; the tails, which have few tokens, would add little. batch_size is that of all
    replicas; T is tgt_len + ext_len; scored: how many targets of a segment count in the loss; None: all.
    """
    B, T, M, D = batch_size, tgt_len + config.ext_len, config.mem_len, config.d_model
    K, E = M + T, config.n_head * config.d_head
    scored = tgt_len if scored is None else scored
    learns_through_memory = config.pre_lnorm or config.attn_type == "alrfou"
    layer = 3 * 2 * B * T * (4 * D * E + 2 * D * config.d_inner)  # query, key, value, output; feed-forward
    layer += (3 if learns_through_memory else 2) * 2 * B * M * 2 * D * E  # the memory's keys and values
    layer += 3 * 2 * B * T * K * 2 * E  # the content's scores, and weighted values
    if config.attn_type in ("transformer_xl", "shaw"):
        layer += 3 * 2 * B * T * K * E  # the positions' scores
    if config.attn_type == "transformer_xl":
        layer += 2 * 2 * K * D * E  # projected sinusoids
    head = config.cutoffs[0] + len(config.cutoffs) if config.cutoffs else config.vocab_size
    one_table = config.div_val == 1 or not config.cutoffs
    vocabulary = 3 * 2 * B * scored * config.d_embed * head
    if config.d_embed != D or (config.proj_same_dim and not one_table):  # the projections of embeddings and logits
        vocabulary += 3 * 2 * B * (scored + T) * D * config.d_embed
    return config.n_layer * layer + vocabulary


def xlnet_step(config: XLNetRunConfig) -> int:
    """`xlnet` of a step of a run."""
    return xlnet(config.model, config.data.batch_size, config.data.tgt_len, config.objective.num_predict)


def xlnet(config: XLNetConfig, batch_size: int, tgt_len: int, predictions: int) -> int:
    """Multiplications and additions of the matmuls of one step of pretraining, counted as in `transformer_xl`.

    In the last layer only the query stream is counted, and only keys and values of the content stream. Segments and the
    sign of distances in backward text are not counted. batch_size is that of all replicas.
    """
    B, T, M, D = batch_size, tgt_len, config.mem_len, config.d_model
    K, E = M + T, config.n_head * config.d_head

    def layer(rows: int) -> int:
        # Query and output; feed-forward; scores of content and positions, and weighted values.
        per_row = 3 * 2 * B * rows * (2 * D * E + 2 * D * config.d_inner + K * 3 * E)
        # Keys and values of the segment and of the memory; projected sinusoids.
        return per_row + (3 * T + 2 * M) * 2 * B * 2 * D * E + 2 * 2 * (K + T - 1) * D * E

    vocabulary = 3 * 2 * B * predictions * D * config.vocab_size
    return (config.n_layer - 1) * layer(T + predictions) + layer(predictions) + vocabulary

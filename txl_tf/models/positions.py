"""What each layer of the decoder is told of positions, for every attn_type."""

import tensorflow as tf

from txl_tf.layers.dropout import dropout
from txl_tf.layers.relative import key_distances, sinusoids


def layer_positions(config, reach, hidden, m_len, rate, position_seed, embedding_seed, shared_axis=None):
    """The `positions` of each layer's attention.

    Args:
        config: a ModelConfig.
        reach: a Reach, for clamp_len.
        hidden: the embedded segment [B, T, D], for its shape and dtype.
        m_len: M.
        rate: dropout.
        position_seed, embedding_seed: of the dropout of positions, and of that which `hidden` went through.
        shared_axis: as for `dropout`.

    Returns:
        a list of N, each as that layer takes it.
    """
    t_len = hidden.shape[1]
    k_len = m_len + t_len
    if config.attn_type == "alrfou":
        return [key_distances(k_len)] * config.n_layer  # officially clamp_len means nothing here
    if config.attn_type == "shaw":
        # Officially the table is cut to its clamp_len nearest rows: the farthest distance that counts is one less.
        distances = key_distances(k_len)
        if reach.clamp_len > 0:
            distances = tf.minimum(distances, reach.clamp_len - 1)
        return [distances] * config.n_layer

    encoding = sinusoids(key_distances(k_len, reach.clamp_len), config.d_model, hidden.dtype)
    if config.attn_type == "vaswani":
        if rate:
            # Officially dropout acts on embedding + position of the segment: so the same mask twice, since memory
            # keeps the embedding alone.
            encoding = tf.broadcast_to(encoding, [tf.shape(hidden)[0], k_len, config.d_model])
            segment = dropout(encoding[:, m_len:], rate, embedding_seed, shared_axis)
            encoding = tf.concat([encoding[:, :m_len], segment], axis=1)
        return [encoding] + [None] * (config.n_layer - 1)
    return [dropout(encoding, rate, position_seed, shared_axis)] * config.n_layer

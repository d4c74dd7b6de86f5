"""Where a model looks: attention probabilities of one segment of valid, as pictures.

They are computed from the layers' weights and inputs, which the mems hold: the training step knows nothing of it.
Shapes: B lanes, T queries of a segment, M memory slots, K = M + T keys, H heads, N layers.
"""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from txl_tf.data.pipeline import evaluation_batches
from txl_tf.layers.attention_core import attend
from txl_tf.layers.relative import visible_keys
from txl_tf.models.positions import layer_positions
from txl_tf.training.pictures import attention_picture, distance_picture

QUERIES = 64
"""Pictures show so many queries, the segment's last."""


class AttentionMaps:
    """Attention over the beginning of valid: over the first segment that finds its memory full.

    Args:
        strategy: of the run.
        model: its TransformerXL.
        corpus: a Corpus with a "valid" split.
        tgt_len: of training; segments are at most as long as the memory, where there is one.
    """

    def __init__(self, strategy, model, corpus, tgt_len):
        reach = model.config.reach
        t_len = min(tgt_len, reach.mem_len or tgt_len)
        if not reach.mem_len:
            # The inputs of the layers are read from the memory they leave: it must be there, though nothing sees it.
            reach = dataclasses.replace(reach, mem_len=t_len, mem_init="empty", same_length=False)
        self.m_len = model.config.mem_len
        batches = evaluation_batches(corpus, "valid", 1, t_len).take(-(-self.m_len // t_len) + 1)
        self.tokens = tf.stack([inputs for inputs, _ in batches])  # [segments, 1, T]

        def replica(tokens):
            def read(mems, segment):
                return model(segment, mems, reach=reach)[1]

            mems = tf.foldl(read, tokens[:-1], initializer=model.initial_mems(1, reach))
            return segment_attention(model, tokens[-1], mems, reach)[0, :, :, -QUERIES:]

        @tf.function
        def probabilities(tokens):
            return strategy.experimental_local_results(strategy.run(replica, args=(tokens,)))[0]

        self._probabilities = probabilities

    def probabilities(self):
        """With the model's present weights: [N, H, Q, K], Q the segment's last queries, at most QUERIES."""
        keys = self.m_len + self.tokens.shape[-1]
        return self._probabilities(self.tokens).numpy()[..., -keys:]

    def pictures(self, step, all_heads=True):
        """Yields (name, pixels): attention by distance, then, with `all_heads`, a picture of each layer's."""
        probabilities = self.probabilities()
        bounds = octaves(probabilities.shape[-1])
        shares = by_distance(probabilities, bounds).mean(1)
        yield "attention/by_distance", distance_picture(shares, bounds, f"Attention by distance, step {step:,}")
        for layer, heads in enumerate(probabilities if all_heads else ()):
            title = f"Attention of layer {layer}, step {step:,}"
            yield f"attention/layer_{layer:02d}", attention_picture(heads, self.m_len, title)


def segment_attention(model, tokens, mems, reach):
    """Attention probabilities of a segment, as `model(tokens, mems, reach=reach)` has them: [B, N, H, T, K].

    Args:
        model: a TransformerXL.
        tokens: int32 [B, T], T <= M.
        mems: Mems.
        reach: a Reach.
    """
    t_len, dtype = tokens.shape[1], model.variable_dtype
    hidden, new_mems = model(tokens, mems, reach=reach)
    mask = visible_keys(t_len, reach.mem_len, reach.window, mems.length if reach.mem_init == "empty" else None)
    positions = layer_positions(model.config, reach, tf.cast(hidden, dtype), reach.mem_len, 0.0, None, None)
    layers = [
        layer_attention(layer, inputs[:, -t_len:], memory, position, mask, model.shared_biases)
        for layer, inputs, memory, position in zip(
            model.decoder_layers, new_mems.hidden, mems.hidden, positions, strict=True
        )
    ]
    return tf.stack(layers, axis=1)


def layer_attention(layer, hidden, memory, positions, mask, biases):
    """Attention probabilities of a DecoderLayer [B, H, T, K], in the dtype of its weights; arguments as for `call`."""
    attention, dtype = layer.attention, layer.variable_dtype
    hidden, memory = attention.place(tf.cast(hidden, dtype), tf.cast(memory, dtype), positions)
    if layer.pre_lnorm:
        hidden, memory = (tf.cast(layer.attention_norm(states), dtype) for states in (hidden, memory))
    kernels = attention.kernels()
    key = tf.concat([attention.project_context(states, kernels)[0] for states in (memory, hidden)], axis=2)
    query, position = attention.project_query(hidden, kernels), attention.project_positions(positions)
    queries = attention.content_query(query, biases), attention.position_query(query, biases)
    one_hot = tf.broadcast_to(tf.eye(key.shape[2], dtype=key.dtype), [*key.shape[:3], key.shape[2]])
    return attend(queries[0], key, one_hot, mask, queries[1], position)  # each key's value is its own number


def octaves(k_len):
    """Bounds of bins over K distances: [0, 1, 2, 4, 8, .., K]."""
    return [0, *itertools.takewhile(lambda bound: bound < k_len, (2**i for i in itertools.count())), k_len]


def by_distance(probabilities, bounds):
    """Attention [.., Q, K] of a segment's last Q queries, summed over bins of distances: [.., bins], their mean."""
    *_, queries, keys = probabilities.shape
    distance = keys - queries + np.arange(queries)[:, None] - np.arange(keys)
    bins = [(first <= distance) & (distance < end) for first, end in itertools.pairwise(bounds)]
    return np.stack([(probabilities * inside).sum((-2, -1)) for inside in bins], -1) / queries

"""Draws why keys can be cached: a key's part of the score stays as it moves into the past; and what caching changes."""

import numpy as np
from drawing import INK, MEDIUM, STRONG, WARM, new_figure, save

TOKENS, MEMORY = 48, 16


def draw():
    figure, (scores, errors) = new_figure(5.0, 2)
    content, position = score_terms()
    distances = np.arange(len(position))
    scores.plot(distances, np.full(len(position), content), color=STRONG, label="(q + u) · key, from the cache")
    scores.plot(distances, position, color=WARM, label="(q + v) · position")
    scores.set_xlabel("distance from the query to the key")
    scores.set_title("one key's score, as the text grows", fontsize=10, loc="left")
    for dtype, colour in (("float32", MEDIUM), ("float64", STRONG)):
        difference = differences(dtype)
        errors.semilogy(np.arange(1, TOKENS + 1), difference, ".", color=colour, label=dtype)
    errors.set_xlabel("token")
    errors.set_title("largest difference of the log-probabilities", fontsize=10, loc="left")
    errors.set_ylim(1e-17, 1e-4)  # no dot where the difference is 0
    for axes in (scores, errors):
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
        axes.tick_params(colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def score_terms():
    """The content's part of the score of one query and one key of a random layer, and the positions' by distance."""
    import tensorflow as tf

    from txl_tf.layers.attention import RelMultiHeadAttention
    from txl_tf.layers.positions import sinusoids

    layer = RelMultiHeadAttention(n_head=1, d_head=16)
    draw = np.random.default_rng(1)
    layer.build([1, 2, 32])
    for weight in layer.trainable_variables:
        weight.assign(draw.normal(size=weight.shape) * 0.25)
    hidden = tf.constant(draw.normal(size=[1, 2, 32]), tf.float32)
    kernels = layer.kernels()
    query = layer.project_query(hidden[:, 1:], kernels)
    key, _ = layer.project_context(hidden[:, :1], kernels)
    positions = layer.project_positions(sinusoids(tf.range(TOKENS), 32))
    scores = layer.scores(query, key, positions)
    content = tf.reduce_sum(scores.query * scores.key)
    by_distance = tf.einsum("bhtd,hkd->bhtk", scores.position_query, positions)
    return float(content), by_distance.numpy()[0, 0, 0]


def differences(dtype):
    """The largest difference after each token [TOKENS], with cached keys and with mems, both token by token."""
    import keras
    import tensorflow as tf

    from txl_tf.models.transformer_xl.cached import CachedDecoder
    from txl_tf.models.transformer_xl.config import Reach, TransformerXLConfig
    from txl_tf.models.transformer_xl.model import TransformerXL

    keras.utils.set_random_seed(1)
    config = TransformerXLConfig(
        vocab_size=50, n_layer=3, d_model=32, d_embed=32, n_head=2, d_head=16, d_inner=64, mem_len=MEMORY, dtype=dtype
    )
    model, reach = TransformerXL(config), Reach(MEMORY)
    decoder = CachedDecoder(model, reach, 1)
    tokens = tf.random.stateless_uniform([TOKENS, 1, 1], [1, 2], 0, 50, tf.int32)
    plain = read(lambda token, mems: model(token, mems, reach=reach), tokens, model.initial_mems(1, reach), model)
    cached = read(decoder, tokens, decoder.initial_cache(1), model)
    return np.abs(plain - cached).max(axis=1)


def read(reader, tokens, memory, model):
    """The log-probabilities [L, V] after each of the tokens [L, 1, 1], read one by one."""
    import tensorflow as tf

    step, found = tf.function(reader, autograph=False), []
    for token in tokens:
        hidden, memory = step(token, memory)
        found.append(model.log_prob(hidden).numpy()[0, 0])
    return np.array(found, np.float64)


if __name__ == "__main__":
    save(draw)

"""The model of the inference benchmarks, and the machine's limits for it. Not a script.

Nothing is imported before it is called, since peers run in environments of their own.
"""

import os

from beside import sizes

NAMES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size", "batch_size", "tgt_len", "mem_len")
NAMED = {
    "base": dict(zip(NAMES, (6, 512, 8, 64, 2048, 204, 4, 64, 1024), strict=True)),
    "narrow": dict(zip(NAMES, (4, 384, 6, 64, 1536, 204, 3, 100, 600), strict=True)),
    "wide": dict(zip(NAMES, (3, 768, 12, 64, 3072, 5000, 2, 128, 384), strict=True)),
}
"""The sizes; batch_size and tgt_len are for evaluation."""
N, D, H, D_HEAD, D_INNER, V, B, T, M = sizes.chosen(NAMED).values()
SEGMENTS = 16  # of evaluation, per round
STREAMED_TOKENS = 128  # whose bytes `limit` reads
FORMATS = {
    "float32": ("float32", False),
    "bfloat16": ("mixed_bfloat16", False),
    "float32_int8": ("float32", True),
    "bfloat16_int8": ("mixed_bfloat16", True),
}
"""Formats of generation: {name: dtype policy, whether weights are in int8}."""
SEGMENT_FLOPS = 2 * B * T * (N * (4 * D * H * D_HEAD + 2 * D * D_INNER + 3 * (M + T) * H * D_HEAD) + D * V)
"""FLOPs of the matmuls for scoring a segment, with every key, value and position projected once."""


def token_bytes(weight=4, number=4):
    """Bytes read for a generated token: weights, output table, cached keys, values and projected positions.

    weight, number: bytes of a weight or a number of the table, and of a cached number.
    """
    weights = N * (4 * D * H * D_HEAD + 2 * D * D_INNER) + D * V
    return weights * weight + N * 3 * (M + 1) * H * D_HEAD * number


def weights():
    """(embedding [V, D], bias [V], and per layer a dict of arrays named as in the paper)."""
    import numpy as np

    draw = np.random.default_rng(0)

    def normal(*shape, mean=0.0, std=0.06):
        return draw.normal(mean, std, shape).astype("float32")

    embedding, bias = normal(V, D, std=0.02), normal(V)
    layers = []
    for _ in range(N):
        layers.append({name: normal(D, H, D_HEAD) for name in ("query", "key", "value", "position")})
        layers[-1] |= {"content_bias": normal(H, D_HEAD), "position_bias": normal(H, D_HEAD)}
        layers[-1] |= {"output": normal(H, D_HEAD, D)}
        layers[-1] |= {"inner": normal(D, D_INNER), "inner_bias": normal(D_INNER)}
        layers[-1] |= {"outer": normal(D_INNER, D), "outer_bias": normal(D)}
        for norm in ("attention", "feed_forward"):
            layers[-1] |= {f"{norm}_gamma": normal(D, mean=1.0), f"{norm}_beta": normal(D)}
    return embedding, bias, layers


def our_model(dtype):
    from txl_tf.models.transformer_xl.config import TransformerXLConfig
    from txl_tf.models.transformer_xl.model import TransformerXL

    sizes = {"n_layer": N, "d_model": D, "d_embed": D, "n_head": H, "d_head": D_HEAD, "d_inner": D_INNER}
    model = TransformerXL(TransformerXLConfig(vocab_size=V, mem_len=M, dropout=0.0, untie_r=True, dtype=dtype, **sizes))
    embedding, bias, layers = weights()
    model.embedding.tables[0].assign(embedding)
    model.softmax.biases[0].assign(bias)
    for layer, values in zip(model.decoder_layers, layers, strict=True):
        attention, feed_forward = layer.attention, layer.feed_forward
        for name in ("query", "key", "value", "position", "output"):
            getattr(attention, f"{name}_kernel").assign(values[name])
        for name in ("content_bias", "position_bias"):
            getattr(attention, name).assign(values[name])
        for name in ("inner", "outer"):
            getattr(feed_forward, name).kernel.assign(values[name])
            getattr(feed_forward, name).bias.assign(values[f"{name}_bias"])
        for norm in ("attention", "feed_forward"):
            getattr(layer, f"{norm}_norm").gamma.assign(values[f"{norm}_gamma"])
            getattr(layer, f"{norm}_norm").beta.assign(values[f"{norm}_beta"])
    return model


def limit():
    """The machine's limits: matmuls with evaluation's FLOPs, matrix-vector products with generation's bytes."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each part has its own thread
    import concurrent.futures

    import numpy as np
    import tensorflow as tf

    from beside import side_by_side

    a, b = tf.random.normal([2048, 2048]), tf.random.normal([2048, 2048])
    product = tf.function(lambda: tf.reduce_sum(a @ b))
    cores = side_by_side.cores()
    vector, threads = np.ones(D, np.float32), concurrent.futures.ThreadPoolExecutor(cores)
    parts = np.array_split(np.ones([token_bytes() // (4 * D), D], np.float32), cores)

    def multiply():
        for _ in range(round(SEGMENTS * SEGMENT_FLOPS / (2 * 2048**3))):
            product().numpy()

    def stream():
        for _ in range(STREAMED_TOKENS):
            list(threads.map(lambda part: part.dot(vector), parts))

    return {"evaluate": multiply, "generate": stream}

"""Log-probabilities of given token sequences."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.inference.causal.generator import Generator
from txl_tf.models.transformer_xl.cached import Cache


def score_tokens(
    generator: Generator, tokens: tf.Tensor, lengths: tf.Tensor, start_token: int | tf.Tensor
) -> tf.Tensor:
    """The log-probability of every token of each text, the first one's given `start_token`.

    The texts, with `start_token` before them, are read in whole segments. Without same_length in the generator's reach,
    the results are those of the model with mems on segments of that length.

    Args:
        tokens: int32 [B, P], padded with any ids.
        lengths: int32 [B], tokens of each text; 0 is allowed.
        start_token: the id before the first token; one for all texts, or int32 [B].

    Returns:
        float32 (float64 if that is the compute dtype) [B, P], natural logarithms; 0 past a text's end.
    """
    segment = generator.segment
    batch_size, longest = tf.shape(tokens)[0], tf.shape(tokens)[1]
    segments = tf.maximum(1, -(-longest // segment))
    real = tf.range(longest) < lengths[:, None]
    padding = [[0, 0], [0, segments * segment - longest]]
    targets = tf.pad(tf.where(real, tokens, -1), padding, constant_values=-1)
    start = tf.broadcast_to(tf.reshape(start_token, [-1, 1]), [batch_size, 1])
    inputs = tf.concat([start, tf.maximum(targets, 0)], axis=1)

    dtype = tf.float64 if generator.model.compute_dtype == "float64" else tf.float32

    def body(i: tf.Tensor, cache: Cache, scores: tf.TensorArray) -> tuple[Any, ...]:
        hidden, cache = generator.read_segment(generator.cut(inputs, i), cache)
        nll = generator.model.nll(hidden, generator.cut(targets, i))
        return i + 1, cache, scores.write(i, -tf.transpose(nll))

    state = (
        0,
        generator.initial_cache(batch_size),
        tf.TensorArray(dtype, segments, element_shape=[segment, None]),
    )
    scores = tf.while_loop(lambda i, *_: i < segments, body, state)[-1]
    return tf.transpose(scores.concat())[:, :longest]

"""Log-probabilities of given token sequences."""

import tensorflow as tf


def score_tokens(generator, tokens, lengths, start_token):
    """The log-probability of every token of each text, the first one's given `start_token`.

    Args:
        generator: a Generator.
        tokens: int32 [B, P], padded with anything.
        lengths: int32 [B], tokens of each text; 0 is allowed.
        start_token: the id before the first token; one for all texts, or int32 [B].

    Returns:
        float32 [B, P], natural logarithms; 0 past a text's end.
    """
    segment = generator.segment
    batch_size, longest = tf.shape(tokens)[0], tf.shape(tokens)[1]
    segments = tf.maximum(1, -(-longest // segment))
    real = tf.range(longest) < lengths[:, None]
    padding = [[0, 0], [0, segments * segment - longest]]
    targets = tf.pad(tf.where(real, tokens, -1), padding, constant_values=-1)
    start = tf.broadcast_to(tf.reshape(start_token, [-1, 1]), [batch_size, 1])
    inputs = tf.concat([start, tf.maximum(targets, 0)], axis=1)

    def body(i, cache, scores):
        hidden, cache = generator.read_segment(generator.cut(inputs, i), cache)
        nll = generator.model.nll(hidden, generator.cut(targets, i))
        return i + 1, cache, scores.write(i, -tf.transpose(tf.cast(nll, tf.float32)))

    state = (
        0,
        generator.initial_cache(batch_size),
        tf.TensorArray(tf.float32, segments, element_shape=[segment, None]),
    )
    scores = tf.while_loop(lambda i, *_: i < segments, body, state)[-1]
    return tf.transpose(scores.concat())[:, :longest]

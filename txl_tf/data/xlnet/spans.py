"""XLNet's published rules for which tokens are predicted, and in which order, as pure functions of seeds.

All functions use TensorFlow ops on n rows at once, with static shapes. A seed is int32 [n, 2], one for each row.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from txl_tf.hashing import numbered_seeds, random_bits, random_integers, split_seed
from txl_tf.settings.pretraining import PermutationLMConfig


def sample_spans(starts: tf.Tensor, goal: int, rule: PermutationLMConfig, seeds: tf.Tensor) -> tf.Tensor:
    """Draws the tokens to be predicted in a part of a segment, exactly `goal` of them: bool [n, L].

    Spans are drawn one after another, from the start of the part. The probability of a span of n tokens is proportional
    to 1 / n; n is at most max_span and at most the number of tokens left to draw. A span has n * mask_alpha tokens of
    context around it, rounded down: a random number of them, fewer than all, before the span and the rest after it. The
    span begins at the next token that may start one, by `starts`, bool [n, L]. If it would reach the part's last token,
    no more spans are drawn. The remaining tokens are drawn one by one, all equally likely.
    """
    rows, length = tf.shape(starts)[0], starts.shape[1]
    place = tf.range(length)
    span_seeds, single_seeds = split_seed(seeds, 2)
    # Thresholds for 32 random bits, above which a span has more than 1, 2, .. tokens.
    odds = np.cumsum(1 / np.arange(1, rule.max_span + 1))
    size_limits = (odds[:-1] / odds[-1] * 2**32).astype(np.uint32)
    # As a float a fraction such as 10 / 3 is a little less, and three times that would be rounded down to 9.
    contexts = np.floor(np.arange(rule.max_span + 1) * rule.mask_alpha + 1e-6).astype(np.int32)
    # The next start at or after p is the first place where the count of starts passes the count before p.
    counts = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
    before = tf.pad(counts, [[0, 0], [1, 0]])

    def draw(i: tf.Tensor, at: tf.Tensor, left: tf.Tensor, chosen: tf.Tensor) -> tuple[tf.Tensor, ...]:
        bits = random_bits([rows, 2], numbered_seeds(span_seeds, i))
        size = 1 + tf.reduce_sum(tf.cast(bits[:, :1] >= size_limits, tf.int32), axis=1)
        size = tf.minimum(size, left)
        context = tf.gather(contexts, size)
        first = tf.cast(random_integers(bits[:, 1], tf.maximum(context, 1)), tf.int32)
        passed = tf.gather(before, tf.minimum(at + first, length), batch_dims=1)
        begin = tf.searchsorted(counts, passed[:, None] + 1)[:, 0]
        is_in = (at < length) & (begin + size < length) & (left > 0)
        size = tf.where(is_in, size, 0)
        chosen |= (place >= begin[:, None]) & (place < (begin + size)[:, None])
        return i + 1, tf.where(is_in, begin + size + context - first, length), left - size, chosen

    _, _, left, chosen = tf.while_loop(
        lambda i, at, left, chosen: tf.reduce_any((at < length) & (left > 0)),
        draw,
        (tf.constant(0), tf.zeros([rows], tf.int32), tf.fill([rows], goal), tf.zeros_like(starts)),
        maximum_iterations=goal,
    )
    order = tf.cast(random_bits([rows, length], single_seeds), tf.int64)
    order = tf.argsort(tf.where(chosen, np.iinfo(np.int64).max, order), axis=1, stable=True)
    ranks = tf.argsort(order, axis=1, stable=True)
    return chosen | (ranks < left[:, None])


def permutation_ranks(length: int, perm_size: int, seeds: tf.Tensor) -> tf.Tensor:
    """A factorization order for a part of a segment: int32 [n, L], each token's position in the order.

    One permutation of perm_size positions is used for every block of perm_size tokens. The blocks keep their order.
    """
    bits = tf.bitcast(random_bits([tf.shape(seeds)[0], perm_size], seeds), tf.int32)
    permutation = tf.argsort(bits, axis=1, stable=True)
    place = tf.range(length)
    return tf.gather(permutation, place % perm_size, axis=1) + place // perm_size * perm_size

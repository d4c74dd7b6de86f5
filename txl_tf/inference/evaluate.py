"""Evaluation as the paper does it: every token of a split scored once, with memory carried from segment to segment."""

import math
import time

import tensorflow as tf

from txl_tf import distribute
from txl_tf.data.pipeline import evaluation_batches, evaluation_steps

STEPS_PER_CALL = 50  # between progress reports


def evaluate(model, corpus, split, evaluation, reach, strategy, progress=None):
    """The mean loss of a split.

    Args:
        model: a TransformerXL, made in the strategy's scope.
        corpus: a Corpus.
        split: name of one of its splits.
        evaluation: an EvalConfig, for batch_size and tgt_len.
        reach: a Reach: memory length, clamp_len and window, which may differ from training's.
        strategy: where to run.
        progress: called with (steps done, steps in all, mean loss so far).

    Returns:
        dict: loss in nats per token, ppl, bpc, tokens scored, tokens_dropped (of the split, neither scored nor the
        first of a lane: 0), tokens_per_sec, and the settings it was measured with.

    Raises:
        InputError: the batch cannot be cut from the split or shared out over the replicas.
    """
    batch_size, tgt_len = evaluation.batch_size, evaluation.tgt_len
    mems = distribute.initial_mems(strategy, model, batch_size, reach)
    steps = evaluation_steps(corpus, split, batch_size, tgt_len)
    batches = distribute.distribute_batches(
        strategy, lambda **hosts: evaluation_batches(corpus, split, batch_size, tgt_len, **hosts)
    )
    iterator = iter(batches)

    def score(inputs, targets, mems):
        hidden, mems = model(inputs, mems, reach=reach)
        return tf.reduce_sum(model.nll(hidden, targets)), tf.reduce_sum(tf.cast(targets >= 0, tf.int64)), mems

    @tf.function
    def score_steps(iterator, mems, n):
        total, tokens = tf.constant(0.0, tf.float64), tf.constant(0, tf.int64)
        for _ in tf.range(n):
            inputs, targets = next(iterator)
            nll, scored, mems = strategy.run(score, args=(inputs, targets, mems))
            # Over steps in float64, on the host: float32 would lose digits over millions of tokens.
            total += tf.cast(strategy.reduce("SUM", nll, axis=None), tf.float64)
            tokens += strategy.reduce("SUM", scored, axis=None)
        return total, tokens, mems

    total, tokens, done = 0.0, 0, 0
    timed_tokens, start = 0, None
    while done < steps:
        n = min(STEPS_PER_CALL, steps - done) if done else 1  # the first step compiles: it is not timed
        nll, scored, mems = score_steps(iterator, mems, tf.constant(n))
        total, tokens, done = total + float(nll), tokens + int(scored), done + n
        if start is None:
            start = time.perf_counter()
        else:
            timed_tokens += int(scored)
        if progress:
            progress(done, steps, total / tokens)
    seconds = time.perf_counter() - start
    loss = total / tokens
    return {
        "split": split,
        "loss": loss,
        "ppl": math.exp(min(loss, 700.0)),
        "bpc": loss / math.log(2),
        "tokens": tokens,
        "tokens_dropped": corpus.split(split).tokens - batch_size - tokens,
        "batch_size": batch_size,
        "tgt_len": tgt_len,
        "mem_len": reach.mem_len,
        "clamp_len": reach.clamp_len,
        "same_length": reach.same_length,
        "same_length_window": reach.same_length_window,
        "mem_init": reach.mem_init,
        "tokens_per_sec": round(timed_tokens / seconds, 1) if timed_tokens else None,
    }

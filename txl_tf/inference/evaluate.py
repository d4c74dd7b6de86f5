"""Evaluation as the paper does it: every token of a split scored once, with memory carried from segment to segment."""

import functools
import math
import time

import numpy as np
import tensorflow as tf

from txl_tf import distribute
from txl_tf.data.pipeline import evaluation_batches, evaluation_steps, named_read_errors
from txl_tf.inference.cache import CachedDecoder
from txl_tf.inference.sliding_window import SlidingWindow

STEPS_PER_CALL = 50  # between progress reports


def evaluate(model, corpus, split, evaluation, reach, strategy, progress=None, *, sliding_window=0, record=None):
    """The mean loss of a split, measured once: see `Evaluator` for the arguments and the result."""
    return Evaluator(model, corpus, split, evaluation, reach, strategy, sliding_window=sliding_window)(progress, record)


class Evaluator:
    """Measures the mean loss of a split as often as the model's weights change, and is traced only once.

    Args:
        model: a TransformerXL, made in the strategy's scope.
        corpus: a Corpus.
        split: name of one of its splits.
        evaluation: an EvalConfig, for batch_size, tgt_len and jit_compile.
        reach: a Reach: memory length, clamp_len and window, which may differ from training's.
        strategy: where to run.
        sliding_window: W > 0: no memory, each token is predicted from a fresh window of the W tokens before it, as
            the paper evaluates Transformers without recurrence (its table 9).

    Raises:
        InputError: the batch cannot be cut from the split or shared out over the replicas.
    """

    def __init__(self, model, corpus, split, evaluation, reach, strategy, *, sliding_window=0):
        batch_size, tgt_len = evaluation.batch_size, evaluation.tgt_len
        self._corpus, self._strategy = corpus, strategy
        lanes = distribute.lanes_per_replica(strategy, batch_size)
        self._steps = evaluation_steps(corpus, split, batch_size, tgt_len)
        self._batches = distribute.distribute_batches(
            strategy, lambda **hosts: evaluation_batches(corpus, split, batch_size, tgt_len, **hosts)
        )
        with strategy.scope():
            initial_state, self._read = make_reader(model, reach, tgt_len, sliding_window)
        self._initial_state = distribute.on_replicas(strategy, initial_state, lanes)
        self._score_steps = make_score_steps(strategy, model, self._read, evaluation.jit_compile)
        self._split_targets = corpus.split(split).tokens - batch_size
        self._settings = {
            "batch_size": batch_size,
            "tgt_len": tgt_len,
            "mem_len": 0 if sliding_window else reach.mem_len,
            "clamp_len": reach.clamp_len,
            "same_length": reach.same_length,
            "same_length_window": reach.same_length_window,
            "mem_init": reach.mem_init,
            "sliding_window": sliding_window,
        }
        self._split = split

    def __call__(self, progress=None, record=None):
        """Evaluates with the model's present weights.

        Args:
            progress: called with (steps done, steps in all, mean loss so far) every STEPS_PER_CALL steps; may raise
                to end the evaluation.
            record: called at the end with (token ids [n], log-probabilities float32 [n]), all scored tokens in the
                order of the text.

        Returns:
            dict: loss in nats per token, ppl, bpc, tokens scored, tokens_dropped (of the split, neither scored nor
            the first of a lane: 0), tokens_per_sec, and the settings it was measured with.
        """
        if isinstance(self._read, CachedDecoder):
            with self._strategy.scope():
                self._read.refresh()
        iterator, state, texts, scores = iter(self._batches), self._initial_state(), [], []
        total, tokens, done = 0.0, 0, 0
        timed_tokens, start = 0, None
        while done < self._steps:
            n = min(STEPS_PER_CALL, self._steps - done) if done else 1  # the first step compiles: it is not timed
            with named_read_errors(self._corpus):
                targets, nll, state = self._score_steps(iterator, state, tf.constant(n))
            count = int(np.count_nonzero(targets >= 0))
            total, tokens, done = total + float(np.sum(nll, dtype=np.float64)), tokens + count, done + n
            if record:
                texts.append(targets)
                scores.append(-nll)
            if start is None:
                start = time.perf_counter()
            else:
                timed_tokens += count
            if progress:
                progress(done, self._steps, total / tokens)
        seconds = time.perf_counter() - start
        if record:
            targets, log_probs = (np.concatenate(parts).swapaxes(0, 1).ravel() for parts in (texts, scores))
            record(targets[targets >= 0], log_probs[targets >= 0])
        loss = total / tokens
        return {
            "split": self._split,
            "loss": loss,
            "ppl": math.exp(min(loss, 700.0)),
            "bpc": loss / math.log(2),
            "tokens": tokens,
            "tokens_dropped": self._split_targets - tokens,
            **self._settings,
            "tokens_per_sec": round(timed_tokens / seconds, 1) if timed_tokens else None,
        }


def make_reader(model, reach, tgt_len, sliding_window=0):
    """How a model reads segments: through the cache where its attention has one, else with mems.

    Args:
        model, reach: as for `Evaluator`.
        tgt_len: T.
        sliding_window: as for `Evaluator`.

    Returns:
        initial_state(batch_size), and read(tokens [B, T], state) -> (hidden [B, T, D], state).
    """
    if sliding_window:
        reader = SlidingWindow(model, reach, sliding_window)
        return reader.initial_state, reader
    if model.config.attn_type == "transformer_xl":
        keep_weights = model.compute_dtype != model.variable_dtype
        reader = CachedDecoder(model, reach, tgt_len, whole_segments=True, keep_weights=keep_weights)
        return reader.initial_cache, reader
    return functools.partial(model.initial_mems, reach=reach), functools.partial(model, reach=reach)


def score_step(model, read, inputs, targets, state):
    """One segment of one replica's lanes; runs inside `strategy.run`.

    Args:
        model: as for `Evaluator`.
        read: from `make_reader`.
        inputs, targets: int32 [B / replicas, T].
        state: what `read` carries.

    Returns:
        the targets' negative log-likelihoods [B / replicas, T], and the new state.
    """
    hidden, state = read(inputs, state)
    nll = read.nll if isinstance(read, CachedDecoder) else model.nll
    return nll(hidden, targets), state


def make_score_steps(strategy, model, read, jit_compile):
    """A function that scores n batches in one call.

    Args:
        strategy, model: as for `Evaluator`.
        read: from `make_reader`.
        jit_compile: whether XLA compiles a step, where the strategy has one device.

    Returns:
        score_steps(iterator, state, n) -> (targets [n, B, T], their negative log-likelihoods [n, B, T], state), the
        first two as arrays; where a target is -1 there was nothing to score.
    """

    def score(inputs, targets, state):
        return score_step(model, read, inputs, targets, state)

    if jit_compile and distribute.compiles(strategy, model.compute_dtype):
        score = tf.function(score, jit_compile=True)

    @tf.function
    def run(iterator, state, n):
        all_targets = tf.TensorArray(tf.int32, n)
        all_nll = tf.TensorArray(tf.float32, n)
        for i in tf.range(n):
            inputs, targets = next(iterator)
            nll, state = strategy.run(score, args=(inputs, targets, state))
            all_targets = all_targets.write(i, strategy.gather(targets, axis=0))
            all_nll = all_nll.write(i, tf.cast(strategy.gather(nll, axis=0), tf.float32))
        return all_targets.stack(), all_nll.stack(), state

    def score_steps(iterator, state, n):
        targets, nll, state = run(iterator, state, n)
        return targets.numpy(), nll.numpy(), state

    return score_steps

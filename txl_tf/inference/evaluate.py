"""Evaluation: scores every target of a split once and carries the state from batch to batch."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.data.lanes import named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.devices import distribute, host_memory
from txl_tf.errors import InputError
from txl_tf.objectives.base import Batch, ScoredBatch, Scorer, State
from txl_tf.settings.run import Config

ScoreSteps = Callable[[Any, State, tf.Tensor], ScoredBatch]
"""score_steps(iterator, state, n), from `make_score_steps`."""

STEPS_PER_CALL = 50  # between progress reports


class Evaluator:
    """Measures the mean loss of a split. It can be called again after the weights change, and is traced only once.

    Args:
        config: a Config, for its task and how to evaluate.
        model: the model, made in the strategy's scope.
        tokens: how many tokens of the split are read, about; they are taken from the start of each lane; 0: all.
        options: further options of the task's scorer and data, such as sliding_window.

    Attributes:
        note: a warning about the result, or "".
        part: a line about what part of the split is read; "": all.

    Raises:
        InputError: the batch is too large for the split, cannot be divided among the replicas, or needs more memory
            than there is.
    """

    def __init__(
        self,
        config: Config,
        model: keras.Model,
        corpus: Corpus,
        split: str,
        strategy: tf.distribute.Strategy,
        tokens: int = 0,
        **options: Any,
    ):
        task = families.task_of(config, families.Pretraining)
        self._corpus, self._strategy, self._split = corpus, strategy, split
        with strategy.scope():
            self._scorer = task.scorer(model, config, **options)
        self._data = task.evaluation_data(corpus, split, config, **options)
        whole = corpus.splits[split].tokens
        step_tokens = -(-whole // self._data.steps)
        self._steps = min(max(tokens // step_tokens, 1), self._data.steps) if tokens else self._data.steps
        read = f"evaluations read about {self._steps * step_tokens:,} of the {whole:,} tokens of {split}"
        self.part = read if self._steps < self._data.steps else ""
        lanes = distribute.lanes_per_replica(strategy, self._data.lanes)
        self._batches = distribute.distribute_batches(strategy, self._data.batches)
        if distribute.on_cpu(strategy):
            lanes_state = functools.partial(self._scorer.initial_state, self._data.lanes)
            host_memory.require({"mems (batch_size, mem_len, d_model, n_layer)": host_memory.bytes_of(lanes_state)})
        self._initial_state = distribute.on_replicas(strategy, self._scorer.initial_state, lanes)
        compiled = config.eval.jit_compile and distribute.compiles(strategy)
        self._score_steps = make_score_steps(strategy, self._scorer, compiled)
        self._settings = {"batch_size": self._data.lanes, **self._scorer.settings}
        self.note = _note(corpus.splits[split].tokens // self._data.lanes, self._data.lanes, self._settings)

    def __call__(
        self,
        progress: Callable[[int, int, float], None] | None = None,
        record: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> dict[str, Any]:
        """Evaluates with the model's current weights.

        Args:
            progress: called with (steps done, total steps, mean loss so far) every STEPS_PER_CALL steps; may raise
                to end the evaluation.
            record: called at the end with (token ids [n], log-probabilities float32 [n]), for all scored tokens in
                the order of the text.

        Returns:
            dict: loss in nats per token, ppl, bpc and bits_per_byte (`_bits`), tokens scored, tokens_per_sec, and the
            settings of the evaluation.
            Also tokens_dropped, the number of targets of the split that were not scored (0); or, if targets are drawn
            at random, targets, their number. If the scorer has breakdowns, loss_by has a dict for each: {"bins":
            labels, "loss": mean of each bin, None if it is empty, "targets": their numbers}.

        Raises:
            InputError: `record` where targets are drawn at random.
        """
        if record and self._data.targets is None:
            raise InputError(
                "--per_token_out: this objective's targets are drawn at random, so there is no list of a text's "
                "tokens in order; omit it"
            )
        with self._strategy.scope():
            self._scorer.refresh()
        iterator, state, texts, scores = iter(self._batches), None, [], []
        total, tokens, done = 0.0, 0, 0
        sums = {name: np.zeros([2, len(labels)]) for name, labels in self._scorer.breakdowns.items()}
        timed_tokens, start = 0, 0.0
        while done < self._steps:
            n = min(STEPS_PER_CALL, self._steps - done) if done else 1  # the first step compiles, so it is not timed
            given = [self._initial_state() if state is None else state]
            with named_read_errors(self._corpus):  # nothing here keeps the first state, which takes memory
                targets, nll, state, bins = self._score_steps(iterator, given.pop(), tf.constant(n))
            scored = targets >= 0
            count = int(np.count_nonzero(scored))
            for sum_and_count, places in zip(sums.values(), bins, strict=True):
                for part, weights in zip(sum_and_count, (nll[scored], None), strict=True):
                    part += np.bincount(places[scored], weights, len(part))
            total, tokens, done = total + float(np.sum(nll, dtype=np.float64)), tokens + count, done + n
            if record:
                texts.append(targets)
                scores.append(-nll)
            if done == n:  # after the first call
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
            **self._bits(loss),
            "tokens": tokens,
            **({"targets": tokens} if self._data.targets is None else {}),
            "tokens_dropped": 0 if self._data.targets is None else self._data.targets - tokens,
            **self._settings,
            "tokens_per_sec": round(timed_tokens / seconds, 1) if timed_tokens else None,
            **({"loss_by": self._loss_by(sums)} if sums else {}),
        }

    def _bits(self, loss: float) -> dict[str, float]:
        """bpc, where a token is a byte or a character; bits_per_byte, where the bytes of the split are known.

        bits_per_byte compares models with different vocabularies. It counts the unscored first token of a lane like an
        average token.
        """
        bits = {"bpc": loss / math.log(2)} if self._corpus.unit in ("byte", "char") else {}
        if self._data.targets is not None and (text := self._corpus.texts.get(self._split)):
            bits["bits_per_byte"] = loss / math.log(2) * self._corpus.split(self._split).tokens / text["bytes"]
        return bits

    def _loss_by(self, sums: dict[str, np.ndarray]) -> dict[str, dict[str, list]]:
        """Means and counts of the bins of each breakdown, from its sums and counts [2, bins]."""
        return {
            name: {
                "bins": list(self._scorer.breakdowns[name]),
                "loss": [total / count if count else None for total, count in parts.T.tolist()],
                "targets": [int(count) for count in parts[1]],
            }
            for name, parts in sums.items()
        }


def _note(length: int, lanes: int, settings: Mapping[str, Any]) -> str:
    """A line about several lanes of `length` tokens that are shorter than the memory; "" if they are not."""
    if lanes == 1 or length >= settings.get("mem_len", 0):  # one lane begins where the text does
        return ""
    return (
        f"the {lanes} lanes of {length:,} tokens are shorter than the memory of {settings['mem_len']:,}: each begins "
        "without the text before it, so the loss is higher than with a smaller --batch_size"
    )


def make_score_steps(strategy: tf.distribute.Strategy, scorer: Scorer, compiled: bool) -> ScoreSteps:
    """A function that scores n batches in one call, each step compiled or not.

    It is score_steps(iterator, state, n) -> the ScoredBatch of all steps, with targets, their nll and bins as arrays
    [n, B, ..]; where a target is -1 there was nothing to score. A compiled step may return its state as
    variables, which the next call overwrites.
    """
    in_place = compiled and distribute.on_cpu(strategy)

    def score(batch: Batch, state: State) -> ScoredBatch:
        scored = scorer(batch, tf.nest.map_structure(tf.convert_to_tensor, state))
        if in_place:  # XLA reads and writes a variable in the same memory, but never a loop's state
            tf.nest.map_structure(lambda variable, new: variable.assign(new), state, scored.state)
        return scored._replace(state=() if in_place else scored.state)

    if compiled:
        score = tf.function(score, jit_compile=True, autograph=False)

    @tf.function(autograph=False)
    def run(iterator: Any, held: State, n: tf.Tensor) -> tuple[list[tf.Tensor], State]:
        def score_next(i: tf.Tensor, state: State, arrays: list[tf.TensorArray]) -> tuple:
            scores = distribute.run(strategy, score, args=(iterator.get_next(), held if in_place else state))
            found = [strategy.gather(tensor, axis=0) for tensor in (scores.nll, scores.targets, *scores.bins)]
            arrays = [array.write(i, tf.cast(new, array.dtype)) for array, new in zip(arrays, found, strict=True)]
            return i + 1, scores.state, arrays

        dtypes = [tf.float32, tf.int32, *[tf.int32] * len(scorer.breakdowns)]
        start = (tf.constant(0), () if in_place else held, [tf.TensorArray(dtype, n) for dtype in dtypes])
        _, state, arrays = tf.while_loop(lambda i, *_: i < n, score_next, start)
        return [array.stack() for array in arrays], state

    def score_steps(iterator: Any, state: State, n: tf.Tensor) -> ScoredBatch:
        if in_place:
            state = tf.nest.map_structure(
                lambda part: part if isinstance(part, tf.Variable) else tf.Variable(part, trainable=False), state
            )
        (nll, targets, *bins), new = run(iterator, state, n)
        return ScoredBatch(
            targets.numpy(), nll.numpy(), state if in_place else new, tuple(part.numpy() for part in bins)
        )

    return score_steps

"""Causal language modelling: every token is predicted from the tokens before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.lanes import EvaluationLanes, named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.layers.decoder_layer import ATTENTION
from txl_tf.layers.dropout import Seeds
from txl_tf.models.kept import Kept
from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl import extended
from txl_tf.models.transformer_xl.cached import CachedDecoder, in_compute_dtype
from txl_tf.models.transformer_xl.config import EvalConfig, Reach, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import Lengths, TransformerXL
from txl_tf.objectives.base import AttentionView, Loss, Objective, ScoredBatch, State
from txl_tf.ops import scores
from txl_tf.ops.plain import accurate_dtype

Segment = tuple[tf.Tensor, tf.Tensor]
"""Inputs and targets, int32 [b, T] each; -1: no target. Evaluation may read several segments at once."""


def activation_penalty(hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """The mean square of the states [B, T, D] that are counted, bool [B, T], times their number: a scalar.

    It is float32 if hidden is in bfloat16 (Merity et al. 2017, arXiv 1708.01009).
    """
    return tf.reduce_sum(tf.where(counted, _mean_squares(hidden), 0))


def slowness_penalty(hidden: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """The mean square of the differences between neighbours in time, times the number of counted states.

    Both neighbours must be counted. Arguments, result and source as for `activation_penalty`.
    """
    squares = _mean_squares(hidden[:, 1:] - hidden[:, :-1])
    pairs = counted[:, 1:] & counted[:, :-1]
    states, differences = (tf.reduce_sum(tf.cast(which, squares.dtype)) for which in (counted, pairs))
    return tf.reduce_sum(tf.where(pairs, squares, 0)) * tf.math.divide_no_nan(states, differences)


def _mean_squares(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(x, accurate_dtype(x.dtype)) ** 2, axis=-1)


_PENALTIES = {"activation_penalty": activation_penalty, "slowness_penalty": slowness_penalty}


class CausalLM(Objective):
    """The objective of causal language modelling; its state is the model's Mems, or Extended with an ext_len."""

    def __init__(self, model: TransformerXL, config: TransformerXLRunConfig):
        self.model = model
        self.config = config.objective
        self.reach = model.config.reach
        self.lengths_vary = config.data.tgt_len_std > 0
        self.penalties = tuple(name for name in _PENALTIES if getattr(self.config, name))
        if config.train.lr_by_length:
            self.usual_weight = config.data.batch_size * config.data.tgt_len

    @classmethod
    def batch_spec(cls, config: TransformerXLRunConfig, lanes: int, training: bool) -> Segment:
        """The TensorSpecs of a batch for training, or for evaluation."""
        t_len = config.data.longest if training else segments_at_once(config) * config.eval.tgt_len
        tokens = tf.TensorSpec([lanes, t_len], tf.int32)
        return tokens, tokens

    def initial_state(self, lanes: int) -> State:
        """The memory before any text."""
        if self.reach.ext_len:
            return extended.first_state(self.model, lanes, self.reach)
        return self.model.initial_mems(lanes)

    def __call__(self, batch: Segment, state: State, seed: Seeds | None, training: bool) -> Loss:
        """The loss of a segment; see Objective."""
        inputs, targets = batch
        raw: list[tf.Tensor] = []
        options: dict[str, Any] = {"seed": seed, "training": training, "before_dropout": raw.append}
        # All lanes have the same length.
        length = tf.reduce_sum(tf.cast(targets[0] >= 0, tf.int32)) if self.lengths_vary else None
        if self.reach.ext_len:
            hidden, state = extended.read(self.model, inputs, state, self.reach, length, **options)
        else:
            hidden, state = self.model(inputs, state, lengths=Lengths(segment=length), **options)
        first = targets.shape[1] // 2 if self.config.loss_positions == "half" else 0
        hidden, targets = (hidden[:, first:], targets[:, first:]) if first else (hidden, targets)
        nll = self.model.nll(hidden, targets)
        weight = tf.reduce_sum(tf.cast(targets >= 0, nll.dtype))
        states = {"activation_penalty": hidden, "slowness_penalty": raw[0][:, first:]}
        added = tuple(
            getattr(self.config, name) * _PENALTIES[name](states[name], targets >= 0) for name in self.penalties
        )
        return Loss(tf.reduce_sum(nll), weight, state, added)


def segments_at_once(config: TransformerXLRunConfig, sliding_window: int = 0) -> int:
    """How many segments evaluation reads at once: as many as make up a block of attention's queries.

    The scores are those of one segment after another, up to rounding; larger matrices are multiplied faster.
    """
    if sliding_window or config.eval.ext_len or not ATTENTION[config.model.attn_type].cacheable:
        return 1
    return scores.segments_in_a_block(config.eval.tgt_len)


def evaluation_lanes(
    corpus: Corpus, split: str, config: TransformerXLRunConfig, sliding_window: int = 0
) -> EvaluationLanes:
    """One pass over a split, in the batches that `CausalScorer.of` the same settings reads."""
    tokens_at_once = segments_at_once(config, sliding_window) * config.eval.tgt_len
    return EvaluationLanes(corpus, split, config.eval.batch_size, tokens_at_once)


class CausalScorer:
    """Evaluates a Transformer-XL: with a cache if its attention is cacheable, otherwise with mems.

    With an extended context nothing can be cached: a token's states depend on the segment it is read in.

    Args:
        evaluation: for the length of segments.
        reach: memory length, clamp_len and window, which may differ from training.
        sliding_window: W > 0: by a `SlidingWindow` of W tokens.
        segments: how many segments each lane of a batch has; with a cache only.
    """

    def __init__(
        self, model: TransformerXL, evaluation: EvalConfig, reach: Reach, sliding_window: int = 0, segments: int = 1
    ):
        self.model = model
        self._kept: list[Kept] = []
        self.initial_state: Callable[[int], State]
        self._read: Callable[[tf.Tensor, State], tuple[tf.Tensor, State]]
        self._nll: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = model.nll
        if sliding_window:
            window = SlidingWindow(model, reach, sliding_window)
            self.initial_state, self._read = window.initial_state, window
        elif reach.ext_len:
            self.initial_state = lambda lanes: extended.first_state(model, lanes, reach)
            self._read = lambda tokens, state: extended.read(model, tokens, state, reach)
        elif model.attention.cacheable:
            self._use_cache(CachedDecoder(model, reach, segments * evaluation.tgt_len, True, segments))
        else:
            self.initial_state = lambda lanes: model.initial_mems(lanes, reach)
            self._read = lambda tokens, mems: model(tokens, mems, reach=reach)
        self.breakdowns: dict[str, tuple[str, ...]] = {}
        self.settings: dict[str, Any] = {
            "tgt_len": evaluation.tgt_len,
            **dataclasses.asdict(reach),
            "mem_len": 0 if sliding_window else reach.mem_len,
            "sliding_window": sliding_window,
        }
        if sliding_window or not reach.ext_len:
            del self.settings["ext_len"]

    @classmethod
    def of(cls, model: TransformerXL, config: TransformerXLRunConfig, sliding_window: int = 0) -> CausalScorer:
        """The scorer of a run's evaluation."""
        segments = segments_at_once(config, sliding_window)
        return cls(model, *config.for_evaluation(), sliding_window, segments)

    def _use_cache(self, decoder: CachedDecoder) -> None:
        model, self._kept = self.model, [decoder.positions]
        kernels = self._once(decoder.kernels)
        clusters = self._once(lambda: in_compute_dtype(model, model.softmax.clusters(model.embedding)))
        self.initial_state = decoder.initial_cache
        self._read = lambda tokens, cache: decoder(tokens, cache, kernels())
        self._nll = lambda hidden, targets: model.nll(hidden, targets, clusters())

    def _once(self, cast: Callable[[], list]) -> Callable[[], list]:
        """A function that casts weights; if that changes them, the results are kept, and not computed in every call."""
        if self.model.compute_dtype == self.model.variable_dtype:
            return cast
        self._kept.append(Kept(cast))
        return self._kept[-1].tensors

    def refresh(self) -> None:
        """Updates the cached tensors that were computed from the weights."""
        for kept in self._kept:
            kept.refresh()

    def __call__(self, batch: Segment, state: Any) -> ScoredBatch:
        """The scores of a segment; see Scorer."""
        inputs, targets = batch
        hidden, state = self._read(inputs, state)
        return ScoredBatch(targets, self._nll(hidden, targets), state)


class SlidingWindow:
    """Reads a text token by token; for each token it computes the window of the W newest tokens again.

    So the paper evaluates Transformers without recurrence (its table 9). The reach's memory is not used.
    """

    def __init__(self, model: TransformerXL, reach: Reach, window: int):
        self.model = model
        self.reach = dataclasses.replace(reach, mem_len=0, same_length=False)
        self.window = window

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The state before any text: (the window's tokens int32 [B, W], the number of tokens in it)."""
        return tf.zeros([batch_size, self.window], tf.int32), tf.constant(0)

    def __call__(
        self, tokens: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Reads a segment, int32 [B, T] with T static, after a state: hidden [B, T, D], and the new state."""
        t_len = tokens.shape[1]
        hidden = tf.TensorArray(self.model.compute_dtype, t_len, element_shape=[None, self.model.config.d_model])

        def body(i: tf.Tensor, window: tf.Tensor, filled: tf.Tensor, hidden: tf.TensorArray) -> tuple[Any, ...]:
            # Until the window is full, tokens are added at its end; the newest token does not see the places after it.
            window = tf.where(filled < self.window, window, tf.roll(window, -1, axis=1))
            newest = tf.minimum(filled, self.window - 1)
            window = tf.where(tf.range(self.window) == newest, tokens[:, i, None], window)
            states, _ = self.model(window, reach=self.reach)
            return i + 1, window, newest + 1, hidden.write(i, tf.gather(states, newest, axis=1))

        _, window, filled, hidden = tf.while_loop(lambda i, *_: i < t_len, body, (0, *state, hidden))
        return tf.transpose(hidden.stack(), [1, 0, 2]), (window, filled)


def attention_view(model: TransformerXL, corpus: Corpus, config: TransformerXLRunConfig) -> AttentionView:
    """Attention in the first segment of the corpus's "valid" that is read with a full memory.

    Segments are those of the run's training, but at most as long as the memory, if there is one.
    """
    reach, m_len = model.config.reach, model.config.reach.mem_len
    t_len = min(config.data.tgt_len, m_len or config.data.tgt_len)
    batches = EvaluationLanes(corpus, "valid", 1, t_len).batches().take(-(-m_len // t_len) + 1)
    with named_read_errors(corpus):
        tokens = tf.stack([inputs for inputs, _ in batches])

    def probabilities(tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        def read(mems: Mems, segment: tf.Tensor) -> Mems:
            return model(segment, mems, reach=reach)[1]

        mems = tf.foldl(read, tokens[:-1], initializer=model.initial_mems(1, reach))
        return {"": model.attention_probabilities(tokens[-1], mems, reach)[0]}

    return AttentionView(tokens, probabilities, {"": np.arange(t_len)}, m_len)

"""Permutation language modelling: tokens are predicted in a random order, each from those before it in that order."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.manifest import Corpus
from txl_tf.data.xlnet.pairs import EvaluationPairs, PermutationBatch
from txl_tf.errors import InputError
from txl_tf.layers.dropout import Seeds
from txl_tf.layers.masks import permutation_visible
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.models.xlnet.model import Text, XLNet
from txl_tf.objectives.base import AttentionView, Loss, Objective, ScoredBatch
from txl_tf.settings.pretraining import CONTEXT, TARGET, PermutationLMConfig

RANK_BINS = 8
"""The number of bins into which targets are divided by rank; fewer ranks have one bin each."""


def target_positions(is_target: tf.Tensor, count: int) -> tf.Tensor:
    """The positions of a lane's first `count` targets, ascending: int32 [b, P]; -1 where it has fewer than P <= T."""
    t_len = is_target.shape[1]
    left = tf.where(is_target, tf.range(t_len, 0, -1), 0)  # number of tokens from here to the end
    left = tf.math.top_k(left, count).values
    return tf.where(left > 0, t_len - left, -1)


class PermutationLM(Objective):
    """The objective; its state is the model's Mems.

    Without bi_data no lane runs backward: `backward` is ignored, and the computation is cheaper.
    """

    def __init__(self, model: XLNet, config: XLNetRunConfig):
        self.model = model
        self.config, self.bi_data = config.objective, config.data.bi_data

    @classmethod
    def batch_spec(cls, config: XLNetRunConfig, lanes: int, training: bool) -> PermutationBatch:
        """The TensorSpecs of a batch."""
        return PermutationBatch.spec(lanes, config.data.tgt_len)

    def initial_state(self, lanes: int) -> Mems:
        """The memory before any text."""
        return self.model.initial_mems(lanes)

    def scores(self, batch: PermutationBatch, state: Mems, **options: Any) -> ScoredBatch:
        """The targets of a segment and their NLL; a lane with fewer than P ends in -1; options: of `XLNet.call`."""
        is_target = batch.kind == TARGET
        visible = permutation_visible(batch.rank, batch.kind == CONTEXT, is_target, self.model.config.reuse_len)
        positions = target_positions(is_target, self.config.num_predict)
        targets = tf.gather(batch.tokens, tf.maximum(positions, 0), batch_dims=1)
        targets = tf.where(positions >= 0, targets, -1)
        _, query, state = self.model(
            batch.tokens,
            state,
            text=Text(batch.segments, visible, backward=batch.backward if self.bi_data else None),
            targets=positions,
            rows="query",
            **options,
        )
        return ScoredBatch(targets, self.model.nll(query, targets), state)

    def __call__(self, batch: PermutationBatch, state: Mems, seed: Seeds | None, training: bool) -> Loss:
        """The loss of a segment; see Objective."""
        targets, nll, state, _ = self.scores(batch, state, seed=seed, training=training)
        weight = tf.reduce_sum(tf.cast(targets >= 0, nll.dtype))
        return Loss(tf.reduce_sum(nll), weight, state)


class PermutationScorer:
    """Evaluates an XLNet on its pretraining objective: see Scorer. InputError for options, which other families have.

    The loss is also reported by rank and by span. A target's rank is the number of targets of its part before it in the
    order, which it sees in addition to the context. Its span is the run of adjacent targets in which it lies.
    """

    def __init__(self, model: XLNet, config: XLNetRunConfig, **options: Any):
        if options:
            raise InputError(f"{', '.join(f'--{name}' for name in options)}: not for an XLNet; omit it")
        self.objective = PermutationLM(model, config)
        rule = config.objective
        self._mem_len = config.eval.memory_length(model.config)
        self.settings: dict[str, Any] = {
            "tgt_len": config.data.tgt_len,
            "mem_len": self._mem_len,
            **{name: getattr(model.config, name) for name in ("reuse_len", "clamp_len", "mem_init")},
            **dataclasses.asdict(rule),
            "bi_data": config.data.bi_data,
            "seed": config.eval.seed,
        }
        self._ranks = -(-rule.num_predict // 2)  # in the part with more targets
        self._rank_bins = min(self._ranks, RANK_BINS)
        bounds = [-(-i * self._ranks // self._rank_bins) for i in range(self._rank_bins + 1)]
        ranks = [(str(first), str(end - 1)) for first, end in itertools.pairwise(bounds)]
        self.breakdowns: dict[str, tuple[str, ...]] = {
            "rank": tuple("-".join(dict.fromkeys(ends)) for ends in ranks),
            "span": (*map(str, range(1, rule.max_span)), f"{rule.max_span}+"),
        }

    def initial_state(self, lanes: int) -> Mems:
        """The memory before any text."""
        return self.objective.model.initial_mems(lanes, self._mem_len)

    def refresh(self) -> None:
        """Does nothing: the weights are read for every batch."""

    def __call__(self, batch: PermutationBatch, state: Mems) -> ScoredBatch:
        """The scores of a segment."""
        is_target, config = batch.kind == TARGET, self.objective.config
        reuse_len = self.objective.model.config.reuse_len
        rank_bins = target_ranks(batch.rank, is_target, reuse_len) * self._rank_bins // self._ranks
        span_bins = tf.minimum(target_runs(is_target, reuse_len), config.max_span) - 1
        positions = tf.maximum(target_positions(is_target, config.num_predict), 0)
        bins = tuple(tf.gather(values, positions, batch_dims=1) for values in (rank_bins, span_bins))
        return self.objective.scores(batch, state)._replace(bins=bins)


def target_ranks(rank: tf.Tensor, is_target: tf.Tensor, reuse_len: int) -> tf.Tensor:
    """How many targets of its part come before each token in the order: int32 [B, T]; the first part has R tokens."""
    part = tf.range(rank.shape[1]) >= reuse_len
    before = (rank[:, None] < rank[:, :, None]) & (part[:, None] == part)
    return tf.reduce_sum(tf.cast(before & is_target[:, None], tf.int32), axis=2)


def target_runs(is_target: tf.Tensor, reuse_len: int) -> tf.Tensor:
    """The length of the run of adjacent targets in which each target lies: int32 [B, T]; undefined for other tokens.

    No run goes on from the first R tokens into the second part.
    """
    # Tokens that are not targets, and the second part, begin a new run.
    run = tf.cumsum(tf.cast(~is_target, tf.int32), axis=1) + tf.cast(
        tf.range(is_target.shape[1]) >= reuse_len, tf.int32
    )
    return tf.reduce_sum(tf.cast((run[:, :, None] == run[:, None]) & is_target[:, None], tf.int32), axis=2)


def attention_view(model: XLNet, corpus: Corpus, config: XLNetRunConfig) -> AttentionView:
    """Attention of both streams in the first segment of valid that is read with a full memory."""
    one_lane = config.replace(data={"bi_data": False}, eval={"batch_size": 1})
    count = -(-config.model.mem_len // config.model.reuse_len) + 1
    batches = EvaluationPairs(corpus, "valid", one_lane).batches().take(count)
    segments = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    return view_of(segments, model, config.objective)


def view_of(segments: PermutationBatch, model: XLNet, config: PermutationLMConfig) -> AttentionView:
    """Attention of both streams in the last of some segments, [n, 1, ..], which are read one after the other.

    Their text runs forward. The queries of the content stream are all tokens, those of the query stream the targets.
    """
    t_len = segments.tokens.shape[-1]
    positions = target_positions(segments.kind[-1] == TARGET, config.num_predict)[0].numpy()
    positions = positions[positions >= 0]

    def probabilities(segments: PermutationBatch) -> dict[str, tf.Tensor]:
        def read(mems: Mems, segment: PermutationBatch, **options: Any) -> Mems:
            kinds = segment.kind == CONTEXT, segment.kind == TARGET
            visible = permutation_visible(segment.rank, *kinds, model.config.reuse_len)
            return model(segment.tokens, mems, text=Text(segment.segments, visible), **options)[2]

        earlier = tf.nest.map_structure(lambda part: part[:-1], segments)
        last = tf.nest.map_structure(lambda part: part[-1], segments)
        mems = tf.foldl(read, earlier, initializer=model.initial_mems(1))
        layers: list[tf.Tensor] = []
        read(mems, last, targets=positions[None], look=lambda _, probabilities: layers.append(probabilities[0]))
        both = tf.stack(layers)
        return {"content": both[:, :, :t_len], "query": both[:, :, t_len:]}

    queries = {"content": np.arange(t_len), "query": positions}
    return AttentionView(segments, probabilities, queries, model.config.mem_len)

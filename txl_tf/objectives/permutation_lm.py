"""Permutation language modelling: tokens are predicted in a random order, each from those before it in that order."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.config import CONTEXT, TARGET, PermutationLMConfig
from txl_tf.data.pairs import PermutationBatch
from txl_tf.layers.dropout import Seeds
from txl_tf.layers.masks import permutation_visible
from txl_tf.models.memory import Mems
from txl_tf.models.stack import Watch
from txl_tf.models.xlnet.model import XLNet
from txl_tf.objectives.base import FiniteWatch, Loss, Scores


def target_positions(is_target: tf.Tensor, count: int) -> tf.Tensor:
    """The positions of a lane's first targets, ascending: int32 [b, P]; -1 where it has fewer than P.

    Args:
        is_target: bool [b, T].
        count: P, at most T.
    """
    t_len = is_target.shape[1]
    left = tf.where(is_target, tf.range(t_len, 0, -1), 0)  # number of tokens from here to the end
    left = tf.math.top_k(left, count).values
    return tf.where(left > 0, t_len - left, -1)


class PermutationLM:
    """The objective; its state is the model's Mems.

    Args:
        model: an XLNet.
        config: a PermutationLMConfig, for num_predict.
        bi_data: whether some lanes run backward; if not, `backward` is ignored, and the computation is cheaper.
    """

    def __init__(self, model: XLNet, config: PermutationLMConfig, bi_data: bool = True):
        self.model = model
        self.config = config
        self.bi_data = bi_data
        self.activations = (*model.activations, "loss")

    def initial_state(self, lanes: int) -> Mems:
        """The memory before any text."""
        return self.model.initial_mems(lanes)

    def scores(
        self,
        batch: PermutationBatch,
        state: Mems,
        seed: Seeds | None = None,
        training: bool = False,
        watch: Watch | None = None,
    ) -> Scores:
        """The targets of a segment and their negative log-likelihoods; a lane with fewer than P targets ends in -1."""
        is_target = batch.kind == TARGET
        visible = permutation_visible(batch.rank, batch.kind == CONTEXT, is_target, self.model.config.reuse_len)
        positions = target_positions(is_target, self.config.num_predict)
        targets = tf.gather(batch.tokens, tf.maximum(positions, 0), batch_dims=1)
        targets = tf.where(positions >= 0, targets, -1)
        _, query, state = self.model(
            batch.tokens,
            state,
            segments=batch.segments,
            visible=visible,
            targets=positions,
            query_only=True,
            backward=batch.backward if self.bi_data else None,
            seed=seed,
            training=training,
            watch=watch,
        )
        return Scores(targets, self.model.nll(query, targets), state)

    def __call__(self, batch: PermutationBatch, state: Mems, seed: Seeds | None, training: bool) -> Loss:
        """The loss of a segment; see Objective."""
        watch = FiniteWatch()
        targets, nll, state = self.scores(batch, state, seed, training, watch)
        watch("loss", nll)
        weight = tf.reduce_sum(tf.cast(targets >= 0, nll.dtype))
        return Loss(tf.reduce_sum(nll), weight, state, watch.stacked(self.activations))


class PermutationScorer:
    """Evaluates an XLNet on its pretraining objective: see Scorer.

    Args:
        model, config, bi_data: as for `PermutationLM`.
        seed: the seed from which the batches' pairs, spans and orders are drawn, for the line that reports the result.
    """

    def __init__(self, model: XLNet, config: PermutationLMConfig, bi_data: bool = True, seed: int = 0):
        self.objective = PermutationLM(model, config, bi_data)
        self.initial_state = self.objective.initial_state
        self.settings: dict[str, Any] = {
            "num_predict": config.num_predict,
            "mem_len": model.config.mem_len,
            "reuse_len": model.config.reuse_len,
            "mem_init": model.config.mem_init,
            "bi_data": bi_data,
            "seed": seed,
        }

    def refresh(self) -> None:
        """Does nothing: the weights are read for every batch."""

    def __call__(self, batch: PermutationBatch, state: Mems) -> Scores:
        """The scores of a segment."""
        return self.objective.scores(batch, state)

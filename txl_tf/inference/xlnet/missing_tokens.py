"""Fills missing tokens in rows of ids. Each token is predicted from all known tokens, and is then known itself.

Log-probabilities are exact for the order in which the tokens are predicted: log p(filling | text) is the sum over the
missing tokens, in that order, of log p(token | the text, the missing tokens before it). Other orders give slightly
different sums, because a trained model's conditional probabilities do not agree exactly with one joint distribution.
Shapes: B texts, T tokens, W hypotheses of the beam, n missing tokens, V vocabulary.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.devices.distribute import has_xla
from txl_tf.inference.xlnet.blanks import PADDING
from txl_tf.models.xlnet.model import Text, XLNet
from txl_tf.ops.plain import accurate_dtype

ORDERS = ("left_to_right", "right_to_left", "confident")
"""Orders by name. "confident": each hypothesis next predicts the missing token with the highest probability."""
SCORED_ROWS = 16
"""Number of tokens whose pseudo-log-likelihoods are computed at once; each takes one forward pass over its text."""


class Filled(typing.NamedTuple):
    """Fillings of texts, the most likely first.

    places: int32 [B, n], positions of the missing tokens, ascending; -1 where a text has fewer than n.
    tokens: int32 [B, W, n], the predicted tokens at these positions; -1 where a text has fewer than n.
    log_probs: [B, W, n], the log-probability of each of these tokens at the time it was predicted; 0 where there is
        none.
    total: [B, W], their sums; minus infinity where there are fewer fillings than W.
    """

    places: tf.Tensor
    tokens: tf.Tensor
    log_probs: tf.Tensor
    total: tf.Tensor


class Search(typing.NamedTuple):
    """A beam search for fillings after some steps.

    tokens: int32 [B, W, T]; -1 where the text has none, or none yet.
    log_probs: [B, W, T], of the tokens that were filled; 0 elsewhere.
    total: [B, W], their sums, the largest first.
    """

    tokens: tf.Tensor
    log_probs: tf.Tensor
    total: tf.Tensor


class Filler(tf.Module):
    """Predicts missing tokens with a model's query stream.

    Args:
        model: an XLNet.
        allowed: bool [3, V], the tokens allowed for ANY, GLUED and SPACED: see `blanks.allowed_tokens`.
        jit_compile: whether the model is compiled: once for every T and number of rows.
    """

    def __init__(self, model: XLNet, allowed: np.ndarray, jit_compile: bool = True):
        super().__init__(name="filler")
        self.model = model
        self.allowed = tf.constant(allowed)
        self.dtype = accurate_dtype(model.compute_dtype)
        compiled = functools.partial(tf.function, jit_compile=jit_compile and has_xla(), autograph=False)
        self.predict = compiled(self.predict)
        self.score_rows = compiled(self.score_rows)
        number, order, free = (tf.TensorSpec([], dtype) for dtype in (tf.int32, tf.string, tf.bool))

        def search_specs(t_len: int) -> list[Any]:
            wide = [[None, None, t_len], [None, None, t_len], [None, None]]
            so_far = Search(*map(tf.TensorSpec, wide, (tf.int32, self.dtype, self.dtype)))
            return [tf.TensorSpec([None, t_len], tf.int32), order, number, free, so_far, number, number]

        def score_specs(t_len: int) -> list[Any]:
            rows = [tf.TensorSpec([None, t_len], dtype) for dtype in (tf.int32, tf.bool)]
            return [*rows, number, tf.TensorSpec([None], tf.string)]

        self.search, self.score = by_width(self.search, search_specs), by_width(self.score, score_specs)

    def predict(self, tokens: tf.Tensor, known: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Log-probabilities of the tokens at unknown positions.

        Args:
            tokens: int32 [R, T], T static; ids at unknown positions have no effect.
            known: bool [R, T].
            targets: int32 [R, P], P static: unknown positions to predict; -1: unused.

        Returns:
            Log-probabilities [R, P, V], each given only the known tokens; undefined where a target is unused.
        """
        return tf.cast(self.model.log_prob(self._query(tokens, known, targets)), self.dtype)

    def score_rows(self, tokens: tf.Tensor, known: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """The log-probability [R] of one token of each row given the known ones; target: int32 [R], its position."""
        hidden = self._query(tokens, known, target[:, None])
        own = tf.gather(tokens, target[:, None], batch_dims=1)
        return -tf.cast(self.model.nll(hidden, own)[:, 0], self.dtype)

    def _query(self, tokens: tf.Tensor, known: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        # An unknown token is hidden from every query and from every other token's content stream. So its id has no
        # effect.
        return self.model(tokens, text=Text(visible=known[:, None]), targets=targets, rows="query")[1]

    def fill(self, ids: tf.Tensor, order: tf.Tensor, beam_size: tf.Tensor, free: tf.Tensor) -> Filled:
        """Looks for the most likely fillings by beam search.

        Args:
            ids: int32 [B, T], T static; ANY, GLUED or SPACED where a token is missing, PADDING where there is none.
            order: string scalar, one of ORDERS, or the numbers of the missing tokens, counted from 0, in the order in
                which they are predicted, separated by commas: "2,0,1".
            beam_size: int32 scalar, W: hypotheses that are kept at a time; 1 is greedy.
            free: bool scalar, whether any token may fill any blank. If not, only tokens in `allowed` may. Probabilities
                are not renormalised, so those of all fillings add up to less than 1.

        Raises:
            tf.errors.InvalidArgumentError: a text without missing tokens; W below 1; an invalid order.
        """
        return self.search(ids, order, beam_size, free, self.start(ids, beam_size), 0, tf.int32.max)[0]

    def start(self, ids: tf.Tensor, beam_size: tf.Tensor) -> Search:
        """The Search of `beam_size` hypotheses that has taken no step."""
        with tf.control_dependencies([tf.debugging.assert_positive(beam_size, "beam_size must be at least 1")]):
            tokens = _in_beam(tf.maximum(ids, -1), beam_size)
        first = tf.where(tf.range(beam_size) == 0, tf.zeros([], self.dtype), -np.inf)
        total = tf.ensure_shape(tf.broadcast_to(first, [tf.shape(ids)[0], beam_size]), [None, None])
        return Search(tokens, tf.zeros_like(tokens, self.dtype), total)

    def search(
        self,
        ids: tf.Tensor,
        order: tf.Tensor,
        beam_size: tf.Tensor,
        free: tf.Tensor,
        so_far: Search,
        begin: tf.Tensor,
        end: tf.Tensor,
    ) -> tuple[Filled, Search]:
        """Takes the steps from `begin` to before `end`, int32 scalars; the others as for `fill`.

        `so_far` is the Search after `begin` steps. Tokens of the result are -1 where they are not filled yet.
        """
        missing = (ids < 0) & (ids != PADDING)
        count = tf.reduce_sum(tf.cast(missing, tf.int32), axis=1)
        with tf.control_dependencies([tf.debugging.assert_positive(count, "a text has no blank")]):
            places = _first_places(missing, tf.reduce_max(count))
        batch_size, t_len = tf.shape(ids)[0], ids.shape[1]
        vocab_size = self.model.config.vocab_size
        width = tf.minimum(beam_size, vocab_size)
        wide_ids, wide_places = _in_beam(ids, beam_size), _in_beam(places, beam_size)
        no_choice = tf.where(tf.range(vocab_size) == 0, tf.zeros([], self.dtype), -np.inf)
        until = tf.minimum(end, tf.shape(places)[1])

        def steps(ordered: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
            """The Search's tensors, for these places [B, n] in order; None: "confident"."""
            wide_order = None if ordered is None else _in_beam(ordered, beam_size)

            def step(i: tf.Tensor, tokens: tf.Tensor, log_probs: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, ...]:
                place = None if wide_order is None else wide_order[..., i]
                place, log_prob = self._next(tokens, wide_ids, wide_places, place, free)
                log_prob = tf.where(place[..., None] >= 0, log_prob, no_choice)
                best, token = tf.math.top_k(log_prob, width)
                sums = tf.reshape(total[..., None] + best, [batch_size, -1])
                total, chosen = tf.math.top_k(sums, beam_size)
                parent = chosen // width
                tokens, log_probs, place = (
                    tf.gather(state, parent, batch_dims=1) for state in (tokens, log_probs, place)
                )
                token, best = (
                    tf.gather(tf.reshape(values, [batch_size, -1]), chosen, batch_dims=1) for values in (token, best)
                )
                here = tf.range(t_len) == place[..., None]
                return (
                    i + 1,
                    tf.where(here, token[..., None], tokens),
                    tf.where(here, best[..., None], log_probs),
                    total,
                )

            return tf.while_loop(lambda i, *_: i < until, step, (tf.convert_to_tensor(begin), *so_far))[1:]

        confident = tf.equal(order, "confident")
        search = Search(*tf.cond(confident, lambda: steps(None), lambda: steps(_in_order(places, count, order))))
        spots, there = _in_beam(tf.maximum(places, 0), beam_size), (places >= 0)[:, None]
        tokens = tf.where(there, tf.gather(search.tokens, spots, batch_dims=2), -1)
        log_probs = tf.where(there, tf.gather(search.log_probs, spots, batch_dims=2), 0)
        return Filled(places, tokens, log_probs, search.total), search

    def _next(
        self, tokens: tf.Tensor, ids: tf.Tensor, places: tf.Tensor, place: tf.Tensor | None, free: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The position [B, W] of each hypothesis' next token, -1 if none is left; and log-probabilities [B, W, V].

        The position is `place`, if that is given, or else the one of `places` whose token is the surest.
        """
        known, tokens, shape = tokens >= 0, tf.maximum(tokens, 0), tf.shape(tokens)[:2]
        t_len, vocab_size = tokens.shape[2], self.model.config.vocab_size

        def predicted(targets: tf.Tensor, count: int) -> tf.Tensor:
            log_probs = self.predict(
                tf.reshape(tokens, [-1, t_len]), tf.reshape(known, [-1, t_len]), tf.reshape(targets, [-1, count])
            )
            log_probs = tf.reshape(log_probs, [shape[0], shape[1], count, vocab_size])
            like = tf.gather(ids, tf.maximum(targets, 0), batch_dims=2)
            allowed = tf.gather(self.allowed, tf.clip_by_value(-1 - like, 0, 2)) | free
            return tf.where(allowed, log_probs, -np.inf)

        if place is not None:
            return place, predicted(place[..., None], 1)[:, :, 0]

        def best_of(at: tf.Tensor, place: tf.Tensor, surest: tf.Tensor, log_prob: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Reads a fixed number of positions at a time, because shapes must be static."""
            targets = places[..., at : at + _AT_ONCE]
            fill = _AT_ONCE - tf.shape(targets)[2]
            targets = tf.pad(targets, [[0, 0], [0, 0], [0, fill]], constant_values=-1)
            unknown = (targets >= 0) & ~tf.gather(known, tf.maximum(targets, 0), batch_dims=2)
            targets = tf.where(unknown, targets, -1)
            found = predicted(targets, _AT_ONCE)
            sure = tf.where(unknown, tf.reduce_max(found, axis=-1), -np.inf)
            # If no token is allowed at a position, all its log-probabilities are minus infinity. It must still win
            # over having no position.
            sure = tf.where(unknown, tf.maximum(sure, self.dtype.min), sure)
            choice = tf.argmax(sure, axis=-1, output_type=tf.int32)
            top, new_place, new = (tf.gather(values, choice, batch_dims=2) for values in (sure, targets, found))
            better = top > surest
            return (
                at + _AT_ONCE,
                tf.where(better, new_place, place),
                tf.where(better, top, surest),
                tf.where(better[..., None], new, log_prob),
            )

        start = (
            tf.constant(0),
            tf.fill(shape, -1),
            tf.fill(shape, tf.constant(-np.inf, self.dtype)),
            tf.zeros(tf.concat([shape, [vocab_size]], 0), self.dtype),
        )
        _, place, _, log_prob = tf.while_loop(lambda at, *_: at < tf.shape(places)[2], best_of, start)
        return place, log_prob

    def score(
        self,
        ids: tf.Tensor,
        scored: tf.Tensor,
        at_once: tf.Tensor | int = SCORED_ROWS,
        order: tf.Tensor | Sequence[str] = ("",),
    ) -> tf.Tensor:
        """Pseudo-log-likelihoods (Salazar et al. 2020): each token's log-probability given all the others.

        Args:
            ids: int32 [B, T], T static; PADDING where there is no token.
            scored: bool [B, T], which tokens to score; padding is never scored.
            at_once: tokens that are computed at once, each with a forward pass.
            order: strings [B], or [1] for all: with "left_to_right" or "right_to_left" each scored token is given only
                those of them before it in this order, as when `fill` predicts them; with "", all.

        Returns:
            [B, T], in nats; 0 where nothing is scored.
        """
        real, tokens, t_len = ids >= 0, tf.maximum(ids, 0), ids.shape[1]
        places = tf.where(real & scored)
        count = tf.shape(places)[0]
        chunks = -(-count // at_once)
        rows = tf.cast(tf.pad(places, [[0, chunks * at_once - count], [0, 0]]), tf.int32)
        order = tf.broadcast_to(order, tf.shape(ids)[:1])
        alone, forward = tf.equal(order, ""), tf.equal(order, ORDERS[0])

        def chunk(i: tf.Tensor, scores: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            text, place = tf.unstack(rows[i * at_once : (i + 1) * at_once], axis=1)
            at, here = tf.range(t_len), place[:, None]
            ahead, single = (tf.gather(which, text)[:, None] for which in (forward, alone))
            later = tf.where(ahead, at >= here, at <= here) & tf.gather(scored, text)
            missing = tf.where(single, at == here, later)
            others = tf.gather(real, text) & ~missing
            return i + 1, scores.write(i, self.score_rows(tf.gather(tokens, text), others, place))

        scores = tf.TensorArray(self.dtype, chunks, element_shape=[None])
        scores = tf.while_loop(lambda i, _: i < chunks, chunk, (tf.constant(0), scores))[1].concat()
        return tf.scatter_nd(places, scores[:count], tf.shape(ids, out_type=tf.int64))


_AT_ONCE = 8


def by_width(function: Callable[..., Any], specs: Callable[[int], list[Any]], jit_compile: bool | None = None) -> Any:
    """The function, traced once for each T of its first argument [B, T], by specs(T): for any texts and settings."""

    @functools.cache
    def traced(t_len: int) -> Any:
        return tf.function(function, input_signature=specs(t_len), jit_compile=jit_compile, autograph=False)

    return lambda ids, *others, **named: traced(ids.shape[1])(ids, *others, **named)


def _in_beam(row: tf.Tensor, beam_size: tf.Tensor) -> tf.Tensor:
    """[B, ..] -> [B, W, ..], the same for every hypothesis."""
    wide = tf.repeat(row[:, None], beam_size, axis=1)
    return tf.ensure_shape(wide, [None, None, *row.shape[1:]])


def _first_places(chosen: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The positions where bool [B, T] is true, ascending: int32 [B, count], filled up with -1."""
    t_len = chosen.shape[1]
    places = tf.sort(tf.where(chosen, tf.range(t_len), t_len), axis=1)[:, :count]
    return tf.where(places < t_len, places, -1)


def _in_order(places: tf.Tensor, count: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Positions [B, n] in the order in which they are predicted; -1 stays at the end."""
    n = tf.shape(places)[1]

    def listed() -> tf.Tensor:
        readable = tf.strings.regex_full_match(order, r"\d{1,4}(,\d{1,4})*")
        numbers = tf.strings.to_number(tf.strings.split(tf.where(readable, order, "-1"), ","), tf.int32)
        wrong = "order must be left_to_right, right_to_left, confident, or the number of every blank, from 0 on, once"
        whole = tf.equal(tf.size(numbers), n) & tf.reduce_all(tf.equal(count, n))
        whole = tf.cond(whole, lambda: tf.reduce_all(tf.sort(numbers) == tf.range(n)), lambda: False)
        with tf.control_dependencies([tf.debugging.assert_equal(whole, True, wrong)]):
            return tf.broadcast_to(tf.identity(numbers), tf.shape(places))

    def backward() -> tf.Tensor:
        from_end = count[:, None] - 1 - tf.range(n)
        return tf.where(from_end >= 0, from_end, tf.range(n))

    numbers = tf.case(
        [
            (tf.equal(order, "left_to_right"), lambda: tf.broadcast_to(tf.range(n), tf.shape(places))),
            (tf.equal(order, "right_to_left"), backward),
        ],
        default=listed,
    )
    return tf.gather(places, tf.ensure_shape(numbers, [None, None]), batch_dims=1)

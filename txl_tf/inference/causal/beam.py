"""Beam search: looks for the most likely continuations and keeps the W best hypotheses at each step.

Shapes: B texts, W hypotheses of each, P the longest prompt, V vocabulary, E end tokens.
"""

from __future__ import annotations

import typing
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.devices.distribute import has_xla
from txl_tf.errors import InputError
from txl_tf.inference.generation.generator import CHUNK, Generator, PromptLayout
from txl_tf.models.transformer_xl.cached import Cache
from txl_tf.progress import Progress


class Beams(typing.NamedTuple):
    """The state of a search: its unfinished and finished hypotheses.

    cache: the Cache of B W lanes.
    last: int32 [B, W], the last chosen tokens, which the model has not read yet.
    scores: float32 [B, W], log-probabilities of the generated tokens; -inf where there is no such hypothesis yet.
    lengths: int32 [B, W], number of generated tokens. An end token is counted; nothing is generated after it.
    ended: bool [B, W], whether the last generated token is an end token.
    """

    cache: Cache
    last: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor
    ended: tf.Tensor


class BeamSearch(tf.Module):
    """Searches with a Generator's weights; W is `size`, and InputError if that is below 1.

    Hypotheses are compared by log-probability / ((5 + length) / 6)^length_penalty (Wu et al. 2016, arXiv 1609.08144,
    equation 14); finished and unfinished hypotheses are compared with each other. When hypotheses change their order,
    a step copies their caches, which are W times as large as the cache of one text.
    """

    def __init__(self, generator: Generator, size: int, jit_compile: bool = True):
        super().__init__(name="beam_search")
        if size < 1:
            raise InputError(f"beam_size={size} must be at least 1")
        self.generator = generator
        self.size = size
        ids, rows, count = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None], []))
        chosen = tf.TensorSpec([None, None, size], tf.int32)
        self.decode = tf.function(self.decode, jit_compile=jit_compile and has_xla(), autograph=False)
        self._begin = tf.function(self._begin, input_signature=[ids, rows, count], autograph=False)
        self._trace_back = tf.function(_trace_back, input_signature=[chosen, chosen], autograph=False)

    def search(
        self,
        prompts: tf.Tensor,
        lengths: tf.Tensor,
        max_tokens: int,
        ends: tf.Tensor,
        length_penalty: float,
        progress: Progress | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Continues prompts of any lengths. The other prompts of the batch do not change a prompt's result.

        Args:
            prompts, lengths: as for `Generator.generate`.
            max_tokens: tokens to generate for each prompt.
            ends: int32 [E], tokens that end a hypothesis; E can be 0.
            length_penalty: 0: none. It has an effect only if hypotheses end.
            progress: called after every CHUNK steps with (steps done, all steps).

        Returns:
            tokens int32 [B, W, max_tokens], the best hypothesis first, -1 for an end token and after it;
            scores float32 [B, W], log-probabilities in nats, including those of end tokens.
        """
        layout, beams = self._begin(tf.constant(prompts, tf.int32), tf.constant(lengths, tf.int32), max_tokens)
        first, steps = layout.first, int(layout.steps)
        at = tf.range(layout.given.shape[1])
        makes = (at >= first[:, None]) & (at < first[:, None] + max_tokens)
        ends, length_penalty = tf.constant(ends, tf.int32), tf.constant(length_penalty, tf.float32)
        chosen = []
        for begin in range(0, steps, CHUNK):
            here, n = slice(begin, begin + CHUNK), min(CHUNK, steps - begin)
            *found, beams = self.decode(
                beams, layout.given[:, here], makes[:, here], tf.constant(n), ends, length_penalty
            )
            chosen.append([part.numpy() for part in found])  # waits for the device
            if progress:
                progress(begin + n, steps)
        made = self._trace_back(*(np.concatenate(parts) for parts in zip(*chosen, strict=True)))
        made = tf.gather(tf.transpose(made, [1, 2, 0]), first[:, None] + tf.range(max_tokens), axis=2, batch_dims=1)
        within = tf.range(max_tokens) < (beams.lengths - tf.cast(beams.ended, tf.int32))[..., None]
        return tf.where(within, made, -1), beams.scores

    def decode(
        self, beams: Beams, given: tf.Tensor, makes: tf.Tensor, n: tf.Tensor, ends: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Beams]:
        """Takes n steps, at most CHUNK: each reads a token in every lane and chooses the W best hypotheses.

        Args:
            given: int32 [B, CHUNK], the token to read at each step, or -1 for each hypothesis' last chosen token.
            makes: bool [B, CHUNK], whether a step's chosen tokens are used; if not, the hypotheses stay the same.
            n: int32 scalar.
            ends, length_penalty: as for `search`.

        Returns:
            int32 [CHUNK, B, W], the tokens chosen at each step; int32 [CHUNK, B, W], the index of the hypothesis
            that each of them continues; the new Beams.
        """
        kernels = self.generator.decoder.kernels()
        batch_size = tf.shape(given)[0]
        stay = tf.broadcast_to(tf.range(self.size), [batch_size, self.size])

        def body(i: tf.Tensor, beams: Beams, tokens: tf.Tensor, parents: tf.Tensor) -> tuple[Any, ...]:
            read = tf.where(given[:, i, None] >= 0, given[:, i, None], beams.last)
            hidden, cache = self.generator.decoder(tf.reshape(read, [-1, 1]), beams.cache, kernels)
            log_prob = tf.cast(self.generator.model.log_prob(hidden[:, 0]), tf.float32)
            log_prob = tf.reshape(log_prob, [batch_size, self.size, self.generator.model.config.vocab_size])
            parent, *best = (
                tf.where(makes[:, i, None], new, old)
                for new, old in zip(self._best(beams, log_prob, ends, length_penalty), (stay, *beams[1:]), strict=True)
            )
            chosen, now = Beams(self._move(cache, parent), *best), (tf.range(CHUNK) == i)[:, None, None]
            return i + 1, chosen, tf.where(now, chosen.last, tokens), tf.where(now, parent, parents)

        nothing = tf.tile(stay[None], [CHUNK, 1, 1])
        state = tf.while_loop(lambda i, *_: i < n, body, (0, beams, nothing, nothing))
        return state[2], state[3], state[1]

    def _begin(self, prompts: tf.Tensor, lengths: tf.Tensor, max_tokens: tf.Tensor) -> tuple[PromptLayout, Beams]:
        """The PromptLayout of prompts, and the Beams after its whole segments; the W lanes of a text are equal."""
        layout = self.generator.lay_out(prompts, lengths, max_tokens)
        nothing = self.generator.begin(tf.shape(layout.own)[0])
        cache = self.generator.read_on(nothing, layout.segments, layout.own).cache
        keys, values = tf.nest.map_structure(
            lambda ring: tf.repeat(ring, self.size, axis=0), (cache.keys, cache.values)
        )
        shape = [tf.shape(layout.own)[0], self.size]
        # Each text starts with one hypothesis. The first step adds the others.
        scores = tf.where(tf.range(self.size) == 0, 0.0, -float("inf"))
        return layout, Beams(
            Cache(keys, values, cache.start, tf.repeat(cache.length, self.size)),
            last=tf.zeros(shape, tf.int32),
            scores=tf.broadcast_to(scores, shape),
            lengths=tf.zeros(shape, tf.int32),
            ended=tf.zeros(shape, tf.bool),
        )

    def _best(
        self, beams: Beams, log_prob: tf.Tensor, ends: tf.Tensor, length_penalty: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """The W best of all continuations, given log-probabilities [B, W, V] of the next token.

        The hypotheses that they continue, [B, W], and their tensors of `Beams` from `last` on.
        """
        vocab_size = log_prob.shape[-1]
        # A finished hypothesis has one continuation, itself, at token 0.
        itself = tf.where(tf.range(vocab_size) == 0, 0.0, -float("inf"))
        totals = beams.scores[..., None] + tf.where(beams.ended[..., None], itself, log_prob)
        lengths = beams.lengths + tf.cast(~beams.ended, tf.int32)
        penalty = ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** length_penalty
        flat = [-1, self.size * vocab_size]
        _, chosen = tf.math.top_k(tf.reshape(totals / penalty[..., None], flat), self.size)
        parent, token = chosen // vocab_size, chosen % vocab_size
        ended = tf.gather(beams.ended, parent, batch_dims=1)
        return (
            parent,
            token,
            tf.gather(tf.reshape(totals, flat), chosen, batch_dims=1),
            tf.gather(lengths, parent, batch_dims=1),
            ended | tf.reduce_any(token[..., None] == ends, axis=-1),
        )

    def _move(self, cache: Cache, parent: tf.Tensor) -> Cache:
        """The Cache whose lanes are those of `parent` [B, W]."""
        texts = tf.shape(parent)[0]
        lanes = tf.reshape(parent + self.size * tf.range(texts)[:, None], [-1])
        keys, values, length = tf.nest.map_structure(
            lambda part: tf.gather(part, lanes), (cache.keys, cache.values, cache.length)
        )
        return Cache(keys, values, cache.start, length)


def _trace_back(tokens: tf.Tensor, parents: tf.Tensor) -> tf.Tensor:
    """The tokens of the hypotheses that remain at the end of the search, int32 [S, B, W], from those of all S steps."""
    size = parents.shape[2]
    last = tf.broadcast_to(tf.range(size), tf.shape(parents)[1:])

    def step(place: tuple[tf.Tensor, tf.Tensor], chosen: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        token, parent = chosen
        return tf.gather(parent, place[0], batch_dims=1), tf.gather(token, place[0], batch_dims=1)

    return tf.scan(step, (tokens, parents), initializer=(last, last), reverse=True)[1]

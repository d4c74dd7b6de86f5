"""Reads a prepared corpus as XLNet's segments: tokens to be remembered, followed by a pair of texts.

A split is cut into contiguous stretches, one for each lane. With bi_data two lanes share a stretch: a lane of the first
half of the batch reads it forward, and a lane of the second half reads it backward. A step advances R tokens. Its
segment is these R tokens, text A, which follows them, SEP, text B, SEP and CLS. In half of the segments B follows A; in
the others B is from elsewhere in the stretch. All random choices follow from (seed, step, lane).

A lane's segments are made in blocks of steps. A block reads the stretch twice: at the lane's position, and at a random
position, for the texts B that do not follow A. So the position of any step is computed directly, and a block costs two
seeks.

Shapes: B global batch, T = tgt_len, R = reuse_len, W = T - R - 3 tokens of A and B, G steps of a block.
"""

from __future__ import annotations

import dataclasses
import string
import typing

import numpy as np
import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data.lanes import Shards, by_replica, host_lanes
from txl_tf.data.manifest import Corpus
from txl_tf.data.vocabularies import SubwordVocabulary, Vocabulary
from txl_tf.data.vocabularies.sentence_pieces import SPACE
from txl_tf.data.xlnet.spans import permutation_ranks, sample_spans
from txl_tf.errors import InputError
from txl_tf.hashing import numbered_seeds, random_bits, random_integers, split_seed
from txl_tf.settings.pretraining import CONTEXT, FUNCTIONAL, TARGET, PairsConfig, PermutationLMConfig
from txl_tf.settings.run import Config

_BLOCK_TOKENS = 1 << 13  # tokens that a lane advances in a block; other texts B come from a stretch of this length
_READERS = 16  # blocks that are read in parallel
_PUNCTUATION = set(string.punctuation) - {"'"}
_FULL_STOPS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")


class PermutationBatch(typing.NamedTuple):
    """Segments of b lanes, T tokens each, in the order in which their text runs."""

    tokens: tf.Tensor  # int32 [b, T], ids
    segments: tf.Tensor  # int32 [b, T], ids
    rank: tf.Tensor  # int32 [b, T], each token's place in the order of its part: see `permutation_visible`
    kind: tf.Tensor  # int32 [b, T] of CONTEXT, FUNCTIONAL, TARGET
    backward: tf.Tensor  # bool [b], whether a lane's text runs backward

    @classmethod
    def spec(cls, lanes: int, t_len: int) -> PermutationBatch:
        """The TensorSpecs of a batch."""
        integers = tf.TensorSpec([lanes, t_len], tf.int32)
        return cls(integers, integers, integers, integers, tf.TensorSpec([lanes], tf.bool))


class Pairs(typing.NamedTuple):
    """The places of the two texts of n segments. A begins at the start of its window, B at `second` in its window."""

    first_len: tf.Tensor  # int32 [n], length of A
    second_len: tf.Tensor  # int32 [n], length of B; the sum of both is W
    second: tf.Tensor  # int32 [n], where B begins: in A's window if it follows A, else in the window from elsewhere
    follows: tf.Tensor  # bool [n], whether B follows A


def draw_pairs(starts: tf.Tensor, elsewhere: tf.Tensor, core: int, total: int, seeds: tf.Tensor) -> Pairs:
    """Draws A and B by the published rule.

    The text is read up to the first sentence that begins W tokens away or later. A ends before one of the sentences
    that begin in between, all equally likely. With probability 1/2 B is the rest. Otherwise, or if no sentence begins
    in between, B begins at a random token elsewhere. Its length is W minus that of A, at least 1, and it is extended to
    whole sentences. Then the longer of A and B (B, if they are equally long) loses one token at its end until W tokens
    are left.

    The extension moves the start of B by at most W tokens.

    Args:
        starts: bool [n, 2 W], which tokens after the remembered ones begin a sentence, or lie after the text's end.
        elsewhere: bool [W + core + W], the same for the window from elsewhere.
        core: number of tokens of that window at which B may be drawn, at least W.
        total: W.
        seeds: int32 [n, 2].
    """
    place = tf.range(2 * total)
    bits = random_bits([tf.shape(seeds)[0], 3], seeds)
    cuts = starts & (place > 0) & (place < total)
    end = _first(starts & (place >= total))
    count = tf.cumsum(tf.cast(cuts, tf.int64), axis=1)
    has_cut = count[:, -1] > 0
    chosen = random_integers(bits[:, 0], tf.maximum(count[:, -1], 1))
    first_len = tf.where(has_cut, _first(cuts & (count == chosen[:, None] + 1)), end)
    follows = has_cut & (bits[:, 1] >= 1 << 31)

    least = tf.maximum(total - first_len, 1)
    drawn = total + tf.cast(random_integers(bits[:, 2], core - least + 1), tf.int32)
    # The k-th start is the first position at which the count of starts reaches k. B goes from the last start at or
    # before `drawn` to the first start after its drawn tokens.
    number = tf.cumsum(tf.cast(elsewhere, tf.int32))
    own = tf.gather(number, drawn)
    second = tf.where(own > 0, tf.maximum(tf.searchsorted(number, own), drawn - total), drawn - total)
    second_len = tf.searchsorted(number, tf.gather(number, drawn + least - 1) + 1) - second

    second, second_len = tf.where(follows, first_len, second), tf.where(follows, end - first_len, second_len)
    first_len = tf.maximum(tf.minimum(first_len, total - total // 2), total - second_len)
    return Pairs(first_len, total - first_len, second, follows)


def _first(found: tf.Tensor) -> tf.Tensor:
    """The index of each row's first true element, int32 [n]; the row's length if there is none."""
    length = found.shape[1]
    return tf.reduce_min(tf.where(found, tf.range(length), length), axis=1)


def word_starts(vocabulary: Vocabulary) -> np.ndarray:
    """Which tokens a predicted span may begin with: bool [V].

    For subword pieces the published rule applies: pieces that begin with a space or "<", and punctuation marks except
    the apostrophe. In other vocabularies all tokens may begin a span.
    """
    if not isinstance(vocabulary, SubwordVocabulary):
        return np.ones(vocabulary.vocab_size, bool)
    return np.array([name[:1] in (SPACE, "<") or name in _PUNCTUATION for name in vocabulary.pieces])


def sentence_ends(vocabulary: Vocabulary) -> np.ndarray:
    """Which tokens end a sentence: bool [V].

    These are tokens that end a line, because XLNet's text files have one sentence per line, and tokens that end a
    document or a paragraph. If no token stands for the end of a line, as in XLNet's own vocabulary, full stops,
    question marks and exclamation marks end sentences.
    """
    tokens = range(vocabulary.vocab_size)
    texts = [vocabulary.decode_bytes([token]) for token in tokens]
    ends = np.array([text.endswith(b"\n") for text in texts])
    if not ends.any():
        ends = np.array([text.decode("utf-8", "replace").endswith(_FULL_STOPS) for text in texts])
    if vocabulary.special.end_of_document is not None:
        ends[vocabulary.special.end_of_document] = True
    if isinstance(vocabulary, SubwordVocabulary):
        ends |= vocabulary.pieces == "<eop>"
    return ends


class SplitPairs:
    """The segments of all lanes of a split, epoch after epoch; attributes as for TrainingData.

    Epoch e of a corpus with several passes reads pass e mod passes. `unused` includes the last W tokens of each
    stretch. `reads` counts a token as one to remember and in A or B, in each direction. `seed` gives all random
    choices. InputError if there is no SEP or CLS, or there are too few tokens for a step.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: str,
        data: PairsConfig,
        reuse_len: int,
        rule: PermutationLMConfig,
        seed: tuple[int, int],
    ):
        self._data, self._rule, self._seed = data, rule, seed
        vocabulary = corpus.vocabulary
        self._sep, self._cls = vocabulary.special_token("sep"), vocabulary.special_token("cls")
        self._word_starts, self._sentence_ends = word_starts(vocabulary), sentence_ends(vocabulary)
        self._shards = Shards(corpus, split)
        self._reuse_len, self._total = reuse_len, data.tgt_len - reuse_len - 3
        self._stretches = data.batch_size // 2 if data.bi_data else data.batch_size
        self.reads = round(data.batch_size * data.tgt_len / (self._stretches * reuse_len))
        self._stretch = self._shards.tokens // self._stretches
        self.epoch_steps = (self._stretch - self._total) // reuse_len
        if self.epoch_steps < 1:
            raise InputError(
                f"{corpus.data_dir}: {counted(self._stretches, 'stretch', 'stretches')} of at least "
                f"{reuse_len + self._total} tokens {'needs' if self._stretches == 1 else 'need'} "
                f"{self._stretches * (reuse_len + self._total):,}, but {split} has {self._shards.tokens:,}: "
                f"{'lower batch_size or tgt_len' if self._stretches > 1 else 'give a longer text'}"
            )
        self.step_tokens = data.batch_size * data.tgt_len
        self.unused = self._shards.tokens - self._stretches * self.epoch_steps * reuse_len
        self._block = min(max(_BLOCK_TOKENS // reuse_len, 1), self.epoch_steps)
        self._blocks = -(-self.epoch_steps // self._block)
        # The tokens from which a block draws the texts B that do not follow A, and those of its two windows.
        self._core = min(max(self._block * reuse_len, self._total), self._stretch)
        self._here, self._there = self._block * reuse_len + 2 * self._total, self._core + 2 * self._total

    def batches(self, step: int, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """Batches [b, T] without end from a step on; arguments and errors as for `lanes.TrainingLanes`."""
        lanes = host_lanes(self._data.batch_size, host, num_hosts, replicas_per_host)
        replicas, rows = replicas_per_host, len(lanes) // replicas_per_host
        epoch, place = divmod(step, self.epoch_steps)
        first = epoch * self._blocks + place // self._block

        def side_by_side(block: tf.Tensor, backward: tf.Tensor, *parts: tf.Tensor) -> PermutationBatch:
            count = tf.minimum(self.epoch_steps - block[0] % self._blocks * self._block, self._block)
            backward = tf.tile(tf.reshape(backward, [replicas, rows]), [count, 1])
            fields = (by_replica(part[:, :count], replicas, rows, self._data.tgt_len) for part in parts)
            tokens, segments, rank, kind = fields
            return PermutationBatch(tokens, segments, rank, kind, backward)

        # Block after block, and lane after lane within a block; _READERS of them are read in parallel.
        return (
            tf.data.Dataset.range(first * len(lanes), np.iinfo(np.int64).max)
            .interleave(
                lambda number: self._windows(number // len(lanes), tf.gather(lanes, number % len(lanes))),
                cycle_length=_READERS,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .map(self._segments, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .batch(len(lanes), drop_remainder=True)
            .map(side_by_side, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .unbatch()
            .skip(place % self._block * replicas)
            .prefetch(tf.data.AUTOTUNE)
        )

    def _windows(self, block: tf.Tensor, lane: tf.Tensor) -> tf.data.Dataset:
        """The tokens for a block of a lane: a dataset of one element, the arguments of `_segments`.

        Blocks are counted over all epochs, and lanes in the global batch; both are int64 scalars.
        """
        epoch = block // self._blocks
        step = block % self._blocks * self._block
        seeds = numbered_seeds(numbered_seeds(tf.constant([self._seed[0], ~self._seed[1]]), block), lane)
        elsewhere = random_integers(random_bits([1], seeds)[0], self._stretch - self._core + 1)
        # Each window begins one token early, because that token decides whether the next one begins a sentence.
        here = self._window(epoch, lane, step * self._reuse_len - 1, 1 + self._here)
        there = self._window(epoch, lane, elsewhere - self._total - 1, 1 + self._there)
        return tf.data.Dataset.zip((tf.data.Dataset.from_tensors((block, lane)), here, there)).map(
            lambda about, here, there: (*about, *here, *there)
        )

    def _window(self, epoch: tf.Tensor, lane: tf.Tensor, start: tf.Tensor, length: int) -> tf.data.Dataset:
        """A lane's tokens from position start + 1 on, int32 [length - 1]; and which of them begin a sentence."""
        backward = lane >= self._stretches
        stretch = lane % self._stretches * self._stretch
        first = tf.where(backward, self._stretch - start - length, start)

        def marked(tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            ends = tf.gather(tf.constant(self._sentence_ends), tokens)
            begins = ends[:-1] & ~ends[1:]
            tokens, begins = tf.cond(
                backward,
                lambda: (tf.reverse(tokens, [0])[1:], tf.reverse(begins, [0])),
                lambda: (tokens[1:], begins),
            )
            place = start + 1 + tf.range(length - 1, dtype=tf.int64)
            return tokens, (begins & (place > 0) | (place == 0) | (place >= self._stretch)) & (place >= 0)

        return self._shards.window(epoch, stretch + first, length).map(marked)

    def _segments(
        self,
        block: tf.Tensor,
        lane: tf.Tensor,
        tokens: tf.Tensor,
        starts: tf.Tensor,
        other_tokens: tf.Tensor,
        other_starts: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """The G segments of a block of a lane: (block [], bool [], whether backward, and the other fields [G, T])."""
        reuse_len, total, t_len, rule = self._reuse_len, self._total, self._data.tgt_len, self._rule
        steps = block // self._blocks * self.epoch_steps + block % self._blocks * self._block
        steps += tf.range(self._block, dtype=tf.int64)
        seeds = numbered_seeds(numbered_seeds(tf.constant(self._seed), steps), lane)
        pair_seeds, *part_seeds = split_seed(seeds, 5)

        frames = tf.range(self._block)[:, None] * reuse_len + tf.range(reuse_len + 2 * total)
        rows = tf.gather(tokens, frames)
        texts = rows[:, reuse_len:]
        pairs = draw_pairs(tf.gather(starts, frames[:, reuse_len:]), other_starts, self._core, total, pair_seeds)
        place, first_len = tf.range(total + 3), pairs.first_len[:, None]
        second = pairs.second[:, None] + place - first_len - 1
        following = tf.gather(texts, tf.clip_by_value(second, 0, 2 * total - 1), batch_dims=1)
        foreign = tf.gather(other_tokens, tf.clip_by_value(second, 0, self._there - 1))
        pair = tf.where(pairs.follows[:, None], following, foreign)
        pair = tf.where(place < first_len, texts[:, : total + 3], pair)
        is_sep = (place == first_len) | (place == total + 1)
        is_cls = tf.broadcast_to(place == total + 2, tf.shape(pair))
        pair = tf.where(is_sep, self._sep, tf.where(is_cls, self._cls, pair))
        tokens = tf.concat([rows[:, :reuse_len], pair], axis=1)
        segments = tf.cast(place > first_len, tf.int32) + tf.cast(is_cls, tf.int32)
        segments = tf.pad(segments, [[0, 0], [reuse_len, 0]])

        backward = lane >= self._stretches  # always false without bi_data
        words = tf.gather(tf.constant(self._word_starts), tokens)
        ranks, targets = [], []
        parts = (words[:, :reuse_len], words[:, reuse_len:])
        goals = (rule.num_predict - rule.num_predict // 2, rule.num_predict // 2)
        for part, goal, rank_seeds, span_seeds in zip(parts, goals, part_seeds[:2], part_seeds[2:], strict=True):
            ranks.append(permutation_ranks(part.shape[1], rule.perm_size, rank_seeds))
            # Spans are drawn in the text's forward direction.
            drawn = sample_spans(_turned(part, backward), goal, rule, span_seeds)
            targets.append(_turned(drawn, backward))
        functional = tf.pad(is_sep | is_cls, [[0, 0], [reuse_len, 0]])
        kind = tf.where(functional, FUNCTIONAL, tf.where(tf.concat(targets, axis=1), TARGET, CONTEXT))
        fields = (tokens, segments, tf.concat(ranks, axis=1), kind)
        shaped = [tf.ensure_shape(field, [self._block, t_len]) for field in fields]
        return (block, backward, *shaped)


def _turned(row: tf.Tensor, backward: tf.Tensor) -> tf.Tensor:
    """[n, L], reversed along L if `backward`, a bool scalar, is true."""
    return tf.cond(backward, lambda: tf.reverse(row, [1]), lambda: row)


class TrainingPairs(SplitPairs):
    """The segments of a training run; `config` is of a family that reads pairs."""

    def __init__(self, corpus: Corpus, config: Config):
        seed = (config.train.seed, 1)  # 1: not the random numbers of dropout
        super().__init__(corpus, "train", config.data, config.model.reuse_len, config.objective, seed)


class EvaluationPairs:
    """One pass over the lanes of a split; its pairs, spans and orders follow from (seed, step, lane).

    Attributes as for EvaluationData; `targets` is None, because their number is known only after they are drawn.
    """

    def __init__(self, corpus: Corpus, split: str, config: Config):
        data, seed = dataclasses.replace(config.data, batch_size=config.eval.batch_size), (config.eval.seed, 2)
        self._pairs = SplitPairs(corpus, split, data, config.model.reuse_len, config.objective, seed)
        self.lanes, self.steps, self.targets = data.batch_size, self._pairs.epoch_steps, None

    def batches(self, *, replicas_per_host: int = 1, **hosts: int) -> tf.data.Dataset:
        """See `SplitPairs`."""
        batches = self._pairs.batches(0, replicas_per_host=replicas_per_host, **hosts)
        return batches.take(self.steps * replicas_per_host)

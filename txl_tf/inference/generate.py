"""Generation of token ids: prompts read in segments, then token by token.

Every query sees the same window, its M memory slots and itself (or the M newest keys, by `same_length_window`),
however the text was cut into calls: a text continued from its cache is the text made in one go.
Shapes: B texts, P the longest prompt, S tokens in a segment, M memory slots, V vocabulary.
"""

import dataclasses
import functools
import typing

import tensorflow as tf

from txl_tf.distribute import has_xla
from txl_tf.inference.sampling import Choice, penalise, sample, uniform
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder

CHUNK = 64
"""Tokens that one compiled call can make; the cache is copied once per call, not per token."""


class Draft(typing.NamedTuple):
    """Texts in the making.

    cache: the Cache of what was read.
    last: int32 [B], the tokens chosen last, not yet read.
    seen: bool [B, V], the tokens that each text has.
    """

    cache: Cache
    last: tf.Tensor
    seen: tf.Tensor


class Generator(tf.Module):
    """Reads and writes token ids with a model's weights.

    Args:
        model: a TransformerXL. After its weights change call `decoder.refresh`.
        reach: a Reach.
        segment: S, tokens of a prompt that are read at once.
        jit_compile: whether the inner steps are compiled by XLA.
    """

    def __init__(self, model, reach, segment=64, jit_compile=True):
        super().__init__(name="generator")
        if not reach.same_length:
            reach = dataclasses.replace(reach, same_length=True, same_length_window="tf")
        self.model = model
        self.segment = segment
        self.decoder = CachedDecoder(model, reach, segment)
        # One trace for any batch size; XLA then compiles once for each.
        cache, draft = self.decoder.cache_spec(), self._draft_spec()
        ids, rows, count = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None], []))
        chunk = tf.TensorSpec([None, CHUNK], tf.int32)
        compiled = functools.partial(tf.function, jit_compile=jit_compile and has_xla(), autograph=False)
        plain = functools.partial(tf.function, autograph=False)
        self.read_segment = compiled(self.decoder)
        self.decode = compiled(self.decode, input_signature=[draft, chunk, count, Choice.spec()])
        self.read_segments = plain(self.read_segments, input_signature=[ids, cache])
        self.read = plain(self.read, input_signature=[ids, cache])
        self.begin = plain(self.begin, input_signature=[ids])
        self.generate = plain(self.generate, input_signature=[ids, rows, count, Choice.spec()])

    def initial_cache(self, batch_size):
        """The Cache before any text."""
        return self.decoder.initial_cache(batch_size)

    def read_segments(self, tokens, cache):
        """Reads whole segments.

        Args:
            tokens: int32 [B, n S].
            cache: the Cache of what was before.

        Returns:
            the Cache after them.
        """
        segments = tf.shape(tokens)[1] // self.segment

        def body(i, cache):
            _, cache = self.read_segment(self.cut(tokens, i), cache)
            return i + 1, cache

        return tf.while_loop(lambda i, _: i < segments, body, (0, cache))[1]

    def read(self, tokens, cache):
        """Reads any number of tokens: whole segments first, then one by one.

        Args:
            tokens: int32 [B, T].
            cache: the Cache of what was before.

        Returns:
            log-probabilities [B, T, V] of the token after each, and the Cache after them.
        """
        t_len = tf.shape(tokens)[1]
        segments = t_len // self.segment
        pieces = tf.TensorArray(tf.float32, segments + t_len % self.segment, infer_shape=False)

        def read(piece, i, cache, pieces):
            hidden, cache = self.read_segment(piece, cache)
            log_prob = tf.cast(self.model.log_prob(hidden), tf.float32)
            return i + 1, cache, pieces.write(i, tf.transpose(log_prob, [1, 0, 2]))

        def segment(i, *state):
            return read(self.cut(tokens, i), i, *state)

        def single(i, *state):
            at = i + segments * (self.segment - 1)
            return read(tf.reshape(tokens[:, at], [-1, 1]), i, *state)

        state = tf.while_loop(lambda i, *_: i < segments, segment, (0, cache, pieces))
        _, cache, pieces = tf.while_loop(lambda i, *_: i < pieces.size(), single, state)
        log_prob_TxBxV = tf.ensure_shape(pieces.concat(), [None, None, self.model.config.vocab_size])
        return tf.transpose(log_prob_TxBxV, [1, 0, 2]), cache

    def begin(self, tokens):
        """Reads the beginning of texts, whole segments: int32 [B, n S], n >= 0 -> a Draft."""
        batch_size = tf.shape(tokens)[0]
        unseen = tf.zeros([batch_size, self.model.config.vocab_size], tf.bool)
        return self._read_on(Draft(self.initial_cache(batch_size), tf.zeros([batch_size], tf.int32), unseen), tokens)

    def _read_on(self, draft, tokens):
        """The Draft after whole segments, int32 [B, n S]."""
        return draft._replace(cache=self.read_segments(tokens, draft.cache), seen=mark(draft.seen, tokens))

    def generate(self, prompts, lengths, max_tokens, choice):
        """Continues prompts of any lengths, each as if it were alone.

        Args:
            prompts: int32 [B, P], padded with anything.
            lengths: int32 [B], tokens of each prompt, at least 1.
            max_tokens: int32 scalar.
            choice: a Choice. A row's tokens depend on its seed, prompt and the settings alone.

        Returns:
            int32 [B, max_tokens].
        """
        return self.write(self.begin(prompts[:, :0]), prompts, lengths, max_tokens, choice)[0]

    def write(self, draft, tokens, lengths, max_tokens, choice):
        """Reads on in texts and continues them.

        What all have in common, the shortest one's length, is read in segments; then every row reads its own next
        token while it has one, else the token that was just chosen for it.

        Args:
            draft: a Draft; its `last` does not count.
            tokens: int32 [B, P], padded with anything.
            lengths, max_tokens, choice: as for `generate`.

        Returns:
            int32 [B, max_tokens], and the Draft after the last but one of them where all lengths are equal; otherwise
            the Drafts of shorter rows are further on.
        """
        given, common, steps = self.lay_out(tokens, lengths, max_tokens)
        chunks = tf.shape(given)[1] // CHUNK

        def body(i, draft, made):
            piece = tf.reshape(given[:, i * CHUNK : (i + 1) * CHUNK], [-1, CHUNK])
            chosen, draft = self.decode(draft, piece, tf.minimum(CHUNK, steps - i * CHUNK), choice)
            return i + 1, draft, made.write(i, tf.transpose(chosen))

        made = tf.TensorArray(tf.int32, chunks, element_shape=[CHUNK, None])
        state = (0, self._read_on(draft, tokens[:, :common]), made)
        _, draft, made = tf.while_loop(lambda i, *_: i < chunks, body, state)
        first = lengths - 1 - common  # the step that reads a prompt's last token makes the first new one
        chosen = tf.gather(tf.transpose(made.concat()), first[:, None] + tf.range(max_tokens), batch_dims=1)
        return chosen, draft

    def lay_out(self, prompts, lengths, max_tokens):
        """How texts of any lengths are read side by side; arguments as for `generate`.

        Returns:
            given: int32 [B, n CHUNK], the prompts' tokens from `common` on, -1 behind them.
            common: int32 scalar, how many tokens of every prompt are read before, in segments.
            steps: int32 scalar, single tokens to read until every text has its max_tokens.
        """
        common = (tf.reduce_min(lengths) - 1) // self.segment * self.segment
        steps = tf.reduce_max(lengths) - 1 - common + max_tokens
        width = -(-steps // CHUNK) * CHUNK
        given = tf.where(tf.range(tf.shape(prompts)[1]) < lengths[:, None], prompts, -1)[:, common : common + width]
        missing = width - tf.shape(given)[1]
        return tf.pad(given, [[0, 0], [0, missing]], constant_values=-1), common, steps

    def decode(self, draft, given, n, choice):
        """Takes n steps, at most CHUNK: each reads a token and chooses the next.

        Args:
            draft: a Draft.
            given: int32 [B, CHUNK], the token to read at each step, or -1 for the one chosen last.
            n: int32 scalar.
            choice: a Choice.

        Returns:
            int32 [B, CHUNK], the token chosen at each step, and the new Draft.
        """
        kernels = self.decoder.kernels()

        def body(i, draft, made):
            token = tf.where(given[:, i] >= 0, given[:, i], draft.last)
            seen = mark(draft.seen, token[:, None])
            hidden, cache = self.decoder(token[:, None], draft.cache, kernels)
            log_prob = tf.cast(self.model.log_prob(hidden[:, 0]), tf.float32)
            log_prob = penalise(log_prob, seen, choice.repetition_penalty)
            # cache.length is the place of the token to come in the row's own text.
            random = uniform(choice.seeds, cache.length)
            last = sample(log_prob, random, choice.temperature, choice.top_k, choice.top_p)
            return i + 1, Draft(cache, last, seen), tf.where(tf.range(CHUNK) == i, last[:, None], made)

        _, draft, made = tf.while_loop(lambda i, *_: i < n, body, (0, draft, tf.zeros_like(given)))
        return made, draft

    def cut(self, tokens, i):
        """Segment i of int32 [B, n S]: [B, S]."""
        return tf.reshape(tokens[:, i * self.segment : (i + 1) * self.segment], [-1, self.segment])

    def _draft_spec(self):
        seen = tf.TensorSpec([None, self.model.config.vocab_size], tf.bool)
        return Draft(self.decoder.cache_spec(), tf.TensorSpec([None], tf.int32), seen)


def mark(seen, tokens):
    """`seen` [B, V], true also for tokens [B, n]."""
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(tokens))
    places = tf.stack([rows, tokens], axis=-1)
    return tf.tensor_scatter_nd_update(seen, places, tf.ones_like(tokens, tf.bool))

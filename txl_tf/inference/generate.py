"""Generation of token ids: prompts read in segments, then token by token.

Every query sees the same window, its M memory slots and itself (or the M newest keys, by `same_length_window`),
however the text was cut into calls: a text continued from its cache is the text made in one go.
Shapes: B texts, P the longest prompt, S tokens in a segment, M memory slots, V vocabulary.
"""

import dataclasses

import tensorflow as tf

from txl_tf.inference.cache import CachedDecoder
from txl_tf.inference.sampling import sample, uniform

CHUNK = 64
"""Tokens that one compiled call can make; the cache is copied once per call, not per token."""


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
        cache, ids, rows = (
            self.decoder.cache_spec(),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32),
        )
        count, number = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
        choice = [rows, number, count, number]
        chunk = tf.TensorSpec([None, CHUNK], tf.int32)
        self.read_segment = tf.function(self.decoder, jit_compile=jit_compile, autograph=False)
        self.decode = tf.function(
            self.decode, [cache, rows, chunk, count, *choice], jit_compile=jit_compile, autograph=False
        )
        self.read_segments = tf.function(self.read_segments, [ids, cache], autograph=False)
        self.read = tf.function(self.read, [ids, cache], autograph=False)
        self.generate = tf.function(self.generate, [ids, rows, count, *choice], autograph=False)

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

    def generate(self, prompts, lengths, max_tokens, seeds, temperature, top_k, top_p):
        """Continues prompts of any lengths, each as if it were alone.

        What all prompts have in common, the shortest one's length, is read in segments; then every row reads its own
        prompt token while it has one, else the token that was just chosen for it.

        Args:
            prompts: int32 [B, P], padded with anything.
            lengths: int32 [B], tokens of each prompt, at least 1.
            max_tokens: int32 scalar.
            seeds: int32 [B]: a row's tokens depend on its seed, prompt and the settings alone.
            temperature, top_k, top_p: scalars; see `sampling.Sampling`.

        Returns:
            int32 [B, max_tokens].
        """
        batch_size = tf.shape(prompts)[0]
        common = (tf.reduce_min(lengths) - 1) // self.segment * self.segment
        cache = self.read_segments(prompts[:, :common], self.initial_cache(batch_size))
        steps = tf.reduce_max(lengths) - 1 - common + max_tokens
        given = pad_prompts(prompts, lengths)[:, common:]
        chunks = -(-steps // CHUNK)
        given = tf.pad(given, [[0, 0], [0, tf.maximum(chunks * CHUNK - tf.shape(given)[1], 0)]], constant_values=-1)
        made = tf.TensorArray(tf.int32, chunks, element_shape=[CHUNK, None])

        def body(i, last, cache, made):
            piece = tf.reshape(given[:, i * CHUNK : (i + 1) * CHUNK], [-1, CHUNK])
            n = tf.minimum(CHUNK, steps - i * CHUNK)
            tokens, last, cache = self.decode(cache, last, piece, n, seeds, temperature, top_k, top_p)
            return i + 1, last, cache, made.write(i, tf.transpose(tokens))

        state = (0, tf.zeros([batch_size], tf.int32), cache, made)
        made = tf.while_loop(lambda i, *_: i < chunks, body, state)[-1]
        first = lengths - 1 - common  # the step that reads a prompt's last token makes the first new one
        return tf.gather(tf.transpose(made.concat()), first[:, None] + tf.range(max_tokens), batch_dims=1)

    def decode(self, cache, last, given, n, seeds, temperature, top_k, top_p):
        """Takes n steps, at most CHUNK: each reads a token and chooses the next.

        Args:
            cache: the Cache of what was read.
            last: int32 [B], the tokens to read where none is given: those chosen last.
            given: int32 [B, CHUNK], the token to read at each step, or -1.
            n: int32 scalar.
            seeds, temperature, top_k, top_p: as for `generate`.

        Returns:
            int32 [B, CHUNK] the token chosen at each step, int32 [B] the last, and the new Cache.
        """

        kernels = self.decoder.kernels()

        def body(i, last, cache, made):
            token = tf.where(given[:, i] >= 0, given[:, i], last)
            hidden, cache = self.decoder(token[:, None], cache, kernels)
            log_prob = tf.cast(self.model.log_prob(hidden[:, 0]), tf.float32)
            # cache.length is the place of the token to come in the row's own text.
            last = sample(log_prob, uniform(seeds, cache.length), temperature, top_k, top_p)
            return i + 1, last, cache, tf.where(tf.range(CHUNK) == i, last[:, None], made)

        state = (0, last, cache, tf.zeros_like(given))
        _, last, cache, made = tf.while_loop(lambda i, *_: i < n, body, state)
        return made, last, cache

    def cut(self, tokens, i):
        """Segment i of int32 [B, n S]: [B, S]."""
        return tf.reshape(tokens[:, i * self.segment : (i + 1) * self.segment], [-1, self.segment])


def pad_prompts(prompts, lengths):
    """Prompts [B, P] with -1 after each one's end."""
    return tf.where(tf.range(tf.shape(prompts)[1]) < lengths[:, None], prompts, -1)

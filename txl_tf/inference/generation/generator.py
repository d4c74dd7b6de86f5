"""Generation and scores of token ids. Prompts are read in segments, then token by token.

With `same_length` every query sees a window of the same size: its M memory slots and itself (or, by
`same_length_window`, the M newest keys). So the division of the text into calls does not change the result: continuing
a text from its cache gives the same text as one call.

Without `same_length` the results are those of the model with mems on the same segments. In a segment of T tokens a
query sees the M slots before the segment, and the segment up to itself. So the division into segments changes the
result. It does not depend on the other texts of the batch: the first (n - 1) // S * S of n prompt tokens are read in
segments of S. The other prompt tokens and all generated tokens are read one by one, and each of them sees M + 1 keys.

Shapes: B texts, P the longest prompt, S tokens in a segment, M memory slots, V vocabulary.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from txl_tf.devices.distribute import has_xla
from txl_tf.inference.causal.draw_token import Choice, Processor, processed, sample, uniform
from txl_tf.inference.generation import few_rows
from txl_tf.inference.generation.readers import FEW, FewTexts, ManyTexts, Reader
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops.plain import accurate_dtype

CHUNK = 64
"""Tokens that one compiled call can generate; the cache is copied once per call, not once per token."""

PROCESSORS = 8
"""How many processors' compiled steps are kept."""


class Draft(typing.NamedTuple):
    """The state of texts that are being generated.

    cache: the Cache after the tokens read so far; after `decode` in the form of a reader, which only `decode` reads.
    last: int32 [B], the last chosen tokens, which the model has not read yet.
    seen: bool [B, V], the tokens that occur in each text.
    texts: for a Processor, int32 [B, L], the texts that it is given.
    """

    cache: Cache
    last: tf.Tensor
    seen: tf.Tensor
    texts: Any = ()


class PromptLayout(typing.NamedTuple):
    """How prompts of different lengths are read in one batch. Their segments end at the same step. Then each prompt
    continues token by token.

    segments: int32 [B, n S], whole segments of each prompt, right-aligned; the rest repeats the prompt's first token.
    own: int32 [B], how many of the n segments belong to the prompt.
    given: int32 [B, m CHUNK], the prompt's tokens after its segments; -1 after the prompt's end.
    first: int32 [B], the step that reads the prompt's last token and chooses its first new token.
    steps: int32 scalar, tokens to read one by one until every text has max_tokens new tokens.
    """

    segments: tf.Tensor
    own: tf.Tensor
    given: tf.Tensor
    first: tf.Tensor
    steps: tf.Tensor


class Generator(tf.Module):
    """Reads and writes token ids with a model's weights. After these change, call `refresh`.

    Args:
        reach: a Reach. Without same_length, `segment` changes the results: see above.
        segment: S, tokens of a prompt that are read at once.
        jit_compile: whether the inner steps are compiled.
        int8: whether a few texts are generated with the weights of layers and softmax in int8.
            `model.round_to_int8` makes all other results agree with that.
        decoder: the kind of decoder that reads tokens.
    """

    def __init__(
        self,
        model: TransformerXL,
        reach: Reach,
        segment: int = 64,
        jit_compile: bool = True,
        int8: bool = False,
        decoder: type[CachedDecoder] = CachedDecoder,
    ):
        super().__init__(name="generator")
        self.model = model
        self.segment = segment
        reads_few_rows = decoder.reads_few_rows and model.compute_dtype != "float16"  # rows are never in float16
        rows = jit_compile and has_xla() and reads_few_rows and few_rows.available()
        self.decoder = decoder(model, reach, segment, multiple=few_rows.RUNS if rows else None)
        self.many, self.few = ManyTexts(self.decoder, rows), FewTexts(self.decoder, int8) if rows else None
        self._packed = self.few.parts() if self.few is not None else []
        # One trace for any batch size, which is then compiled once for each.
        cache, seen = self.decoder.cache_spec(), tf.TensorSpec([None, model.config.vocab_size], tf.bool)
        draft = Draft(cache, tf.TensorSpec([None], tf.int32), seen)
        ids, numbers, count = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None], []))
        compiled = functools.partial(tf.function, jit_compile=jit_compile and has_xla(), autograph=False)
        plain = functools.partial(tf.function, autograph=False)
        self.read_segment = compiled(self.decoder)
        looped = draft._replace(cache=self.many.spec())
        signature = [(), looped, tf.TensorSpec([None, CHUNK], tf.int32), count, Choice.spec()]
        self.many_steps = compiled(functools.partial(self._steps, self.many, None), input_signature=signature)
        self.few_steps = compiled(functools.partial(self._steps, typing.cast(Reader, self.few), None))
        self._steps_with = functools.lru_cache(PROCESSORS)(
            lambda few, processor: compiled(
                functools.partial(self._steps, typing.cast(Reader, self.few if few else self.many), processor)
            )
        )
        self.read = plain(self.read, input_signature=[ids, cache])
        self.read_on = plain(self.read_on, input_signature=[draft, ids, numbers])
        self.score = plain(self.score, input_signature=[ids, numbers, count])

    def refresh(self) -> None:
        """Takes over new values of the model's weights."""
        self.decoder.positions.refresh()
        for part in self._packed:
            part.refresh()

    def free(self) -> None:
        """Frees the memory of packed weights until their next use."""
        for part in self._packed:
            part.free()

    def kept(self) -> list[Any]:
        """The generator's own variables and packed weights, which a SavedModel must track."""
        return [*self.variables, *(resource for part in self._packed for resource in part.resources())]

    def begin(self, batch_size: int | tf.Tensor) -> Draft:
        """The Draft of texts before their first token."""
        unseen = tf.zeros([batch_size, self.model.config.vocab_size], tf.bool)
        return Draft(self.decoder.initial_cache(batch_size), tf.zeros([batch_size], tf.int32), unseen)

    def read_on(self, draft: Draft, tokens: tf.Tensor, own: tf.Tensor) -> Draft:
        """Reads whole segments, int32 [B, n S]; the Draft after them.

        `own`, int32 [B], is how many of the segments each text reads: its last ones. Its other segments are ignored;
        see `PromptLayout`.
        """
        segments = tf.shape(tokens)[1] // self.segment

        def body(i: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
            _, new = self.read_segment(self.cut(tokens, i), cache)
            reads = i >= segments - own
            return i + 1, tf.cond(tf.reduce_all(reads), lambda: new, lambda: self._where(reads, new, cache))

        cache = tf.while_loop(lambda i, _: i < segments, body, (0, draft.cache))[1]
        return draft._replace(cache=cache, seen=mark(draft.seen, tokens))

    def _where(self, reads: tf.Tensor, new: Cache, old: Cache) -> Cache:
        """The new Cache; rows where `reads` [B] is false keep the contents of the old one, moved to the new start."""

        def choose(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
            return tf.where(reads[:, None, None, None], new, tf.roll(old, self.segment, axis=2))

        keys, values = tf.nest.map_structure(choose, (new.keys, new.values), (old.keys, old.values))
        return Cache(keys, values, new.start, tf.where(reads, new.length, old.length))

    def read(self, tokens: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """Reads any number of tokens, int32 [B, T]: whole segments first, then one by one.

        Returns:
            log-probabilities [B, T, V] of the token after each, and the Cache after them.
        """
        t_len = tf.shape(tokens)[1]
        segments = t_len // self.segment
        pieces = tf.TensorArray(tf.float32, segments + t_len % self.segment, infer_shape=False)

        def read(piece: tf.Tensor, i: tf.Tensor, cache: Cache, pieces: tf.TensorArray) -> tuple[Any, ...]:
            hidden, cache = self.read_segment(piece, cache)
            log_prob = tf.cast(self.model.log_prob(hidden), tf.float32)
            return i + 1, cache, pieces.write(i, tf.transpose(log_prob, [1, 0, 2]))

        def segment(i: tf.Tensor, *state: Any) -> tuple[Any, ...]:
            return read(self.cut(tokens, i), i, *state)

        def single(i: tf.Tensor, *state: Any) -> tuple[Any, ...]:
            at = i + segments * (self.segment - 1)
            return read(tf.reshape(tokens[:, at], [-1, 1]), i, *state)

        state = tf.while_loop(lambda i, *_: i < segments, segment, (0, cache, pieces))
        _, cache, pieces = tf.while_loop(lambda i, *_: i < pieces.size(), single, state)
        log_prob_TxBxV = tf.ensure_shape(pieces.concat(), [None, None, self.model.config.vocab_size])
        return tf.transpose(log_prob_TxBxV, [1, 0, 2]), cache

    def score(self, tokens: tf.Tensor, lengths: tf.Tensor, start_token: tf.Tensor) -> tf.Tensor:
        """The log-probability of every token of each text, the first one's given `start_token`.

        The texts, with `start_token` before them, are read in whole segments. Without same_length the results are
        those of the model with mems on segments of that length.

        Args:
            tokens: int32 [B, P], padded with any ids.
            lengths: int32 [B], tokens of each text; 0 is allowed.
            start_token: int32 scalar, the id before the first token.

        Returns:
            float32 (float64 if that is the compute dtype) [B, P], natural logarithms; 0 past a text's end.
        """
        batch_size, longest = tf.shape(tokens)[0], tf.shape(tokens)[1]
        segments = tf.maximum(1, -(-longest // self.segment))
        real = tf.range(longest) < lengths[:, None]
        padding = [[0, 0], [0, segments * self.segment - longest]]
        targets = tf.pad(tf.where(real, tokens, -1), padding, constant_values=-1)
        inputs = tf.concat([tf.fill([batch_size, 1], start_token), tf.maximum(targets, 0)], axis=1)
        dtype = accurate_dtype(self.model.compute_dtype)

        def body(i: tf.Tensor, cache: Cache, scores: tf.TensorArray) -> tuple[Any, ...]:
            hidden, cache = self.read_segment(self.cut(inputs, i), cache)
            nll = self.model.nll(hidden, self.cut(targets, i))
            return i + 1, cache, scores.write(i, -tf.transpose(nll))

        scores = tf.TensorArray(dtype, segments, element_shape=[self.segment, None])
        state = (0, self.decoder.initial_cache(batch_size), scores)
        scores = tf.while_loop(lambda i, *_: i < segments, body, state)[-1]
        return tf.transpose(scores.concat())[:, :longest]

    def for_processor(self, draft: Draft, tokens: tf.Tensor, lengths: tf.Tensor, max_tokens: tf.Tensor) -> Draft:
        """The Draft with room for whole texts, which begin with these tokens; arguments as for `generate`."""
        known = tf.where(tf.range(tf.shape(tokens)[1]) < lengths[:, None], tokens, -1)
        return draft._replace(texts=tf.pad(known, [[0, 0], [0, max_tokens]], constant_values=-1))

    def generate(
        self,
        prompts: tf.Tensor,
        lengths: tf.Tensor,
        max_tokens: tf.Tensor,
        choice: Choice,
        processor: Processor | None = None,
    ) -> tf.Tensor:
        """Continues prompts of any lengths. The other prompts of the batch do not change a prompt's result.

        Called eagerly, it traces only what these prompts need. A row's tokens, int32 [B, max_tokens], depend only on
        its seed, its prompt and the settings of the Choice.

        Args:
            prompts: int32 [B, P], padded with any ids.
            lengths: int32 [B], tokens of each prompt, at least 1.
            max_tokens: int32 scalar.
            processor: a Processor; the steps are compiled for each.
        """
        prompts, lengths, max_tokens = (tf.convert_to_tensor(x, tf.int32) for x in (prompts, lengths, max_tokens))
        return self.write(self.begin(tf.shape(prompts)[0]), prompts, lengths, max_tokens, choice, processor)[0]

    def write(
        self,
        draft: Draft,
        tokens: tf.Tensor,
        lengths: tf.Tensor,
        max_tokens: tf.Tensor,
        choice: Choice,
        processor: Processor | None = None,
    ) -> tuple[tf.Tensor, Draft]:
        """Reads further tokens of texts, int32 [B, P], padded with any ids, and continues the texts.

        Whole segments are read first. Then each row reads its own next token as long as there is one, and after that
        the last token chosen for it. The Draft's `last` is ignored; with a processor it has read nothing yet. Other
        arguments as for `generate`.

        Returns:
            int32 [B, max_tokens], and the Draft. If all lengths are equal, the Draft has read all of these tokens but
            the last. Otherwise shorter rows have read further tokens, too.
        """
        layout = self.lay_out(tokens, lengths, max_tokens)
        chunks = tf.shape(layout.given)[1] // CHUNK
        if layout.segments.shape[1] != 0:  # else an eager call would trace the reader of segments for nothing
            draft = self.read_on(draft, layout.segments, layout.own)
        if processor:
            draft = self.for_processor(draft, tokens, lengths, max_tokens)

        def written(reader: Reader) -> tuple[tf.Tensor, Draft]:
            def body(i: tf.Tensor, draft: Draft, made: tf.TensorArray) -> tuple[Any, ...]:
                piece = tf.reshape(layout.given[:, i * CHUNK : (i + 1) * CHUNK], [-1, CHUNK])
                n = tf.minimum(CHUNK, layout.steps - i * CHUNK)
                chosen, draft = self.decode(draft, piece, n, choice, reader, processor)
                return i + 1, draft, made.write(i, tf.transpose(chosen))

            begun = draft._replace(cache=reader.begin(draft.cache))
            made = tf.TensorArray(tf.int32, chunks, element_shape=[CHUNK, None])
            _, end, made = tf.while_loop(lambda i, *_: i < chunks, body, (0, begun, made))
            return tf.transpose(made.concat()), end._replace(cache=reader.end(end.cache))

        made, draft = self._with_reader(layout.given, written)
        places = layout.first[:, None] + tf.range(max_tokens)
        return tf.gather(made, places, batch_dims=1), draft

    def _with_reader(self, tokens: tf.Tensor, use: Callable[[Reader], Any]) -> Any:
        """use(reader) with the reader for B texts, whose tokens are [B, ..]; if B is not static, `few` is for one."""
        batch = tokens.shape[0]
        if self.few is None or (batch or 0) > FEW:
            return use(self.many)
        if batch is None:
            return tf.cond(tf.equal(tf.shape(tokens)[0], 1), lambda: use(self.few), lambda: use(self.many))
        return use(self.few)

    def lay_out(self, prompts: tf.Tensor, lengths: tf.Tensor, max_tokens: tf.Tensor) -> PromptLayout:
        """The PromptLayout of prompts; arguments as for `generate`."""
        own = (lengths - 1) // self.segment
        read = own * self.segment
        longest = tf.reduce_max(read)
        first = lengths - 1 - read
        steps = tf.reduce_max(first) + max_tokens
        ahead, behind = tf.range(longest) - (longest - read)[:, None], tf.range(-(-steps // CHUNK) * CHUNK)
        places = tf.minimum(read[:, None] + behind, tf.shape(prompts)[1] - 1)
        given = tf.where(behind <= first[:, None], tf.gather(prompts, places, batch_dims=1), -1)
        return PromptLayout(tf.gather(prompts, tf.maximum(ahead, 0), batch_dims=1), own, given, first, steps)

    def decode(
        self,
        draft: Draft,
        given: tf.Tensor,
        n: tf.Tensor,
        choice: Choice,
        reader: Reader | None = None,
        processor: Processor | None = None,
    ) -> tuple[tf.Tensor, Draft]:
        """Takes n steps, at most CHUNK: each reads a token and chooses the next.

        Args:
            draft: the Draft before; its Cache may have the form of the reader's loop.
            given: int32 [B, CHUNK]: the token to read at each step, or -1 for the last chosen one.
            n: int32 scalar.
            choice: a Choice.
            reader: `many` or `few`; None: the one for this many texts, if B is static.
            processor: a Processor; the Draft is then one `for_processor`.

        Returns:
            int32 [B, CHUNK], the token chosen at each step, and the new Draft. Its Cache has the form of the reader's
            loop, so that the next call need not convert it.
        """
        given, n = tf.convert_to_tensor(given, tf.int32), tf.convert_to_tensor(n, tf.int32)
        reader = reader or self._with_reader(given, lambda reader: reader)
        steps = self.few_steps if reader is self.few else self.many_steps
        if processor:
            steps = self._steps_with(reader is self.few, processor)
        return steps(reader.packed(), draft._replace(cache=reader.begin(draft.cache)), given, n, choice)

    def _steps(
        self,
        reader: Reader,
        processor: Processor | None,
        packed: Any,
        draft: Draft,
        given: tf.Tensor,
        n: tf.Tensor,
        choice: Choice,
    ) -> tuple[tf.Tensor, Draft]:
        """`decode` by a reader, compiled. The Draft's Cache has the form of its loop."""
        weights = reader.weights(packed)

        def body(i: tf.Tensor, draft: Draft, made: tf.Tensor) -> tuple[Any, ...]:
            token = tf.where(given[:, i] >= 0, given[:, i], draft.last)[:, None]
            seen = mark(draft.seen, token)
            hidden, cache = reader.read(weights, i, token, draft.cache)
            log_prob = tf.cast(reader.log_prob(weights, i, hidden[:, 0]), tf.float32)
            if processor:
                log_prob = processed(processor, log_prob, draft.texts)
            # cache.length is the position of the next token in the row's own text.
            last = sample(log_prob, seen, uniform(choice.seeds, cache.length), choice.values)
            texts = note(draft.texts, cache.length, last) if processor else ()
            return i + 1, Draft(cache, last, seen, texts), tf.where(tf.range(CHUNK) == i, last[:, None], made)

        _, draft, made = tf.while_loop(lambda i, *_: i < n, body, (0, draft, tf.zeros_like(given)))
        return made, draft

    def cut(self, tokens: tf.Tensor, i: int | tf.Tensor) -> tf.Tensor:
        """Segment i of int32 [B, n S]: [B, S]."""
        return tf.reshape(tokens[:, i * self.segment : (i + 1) * self.segment], [-1, self.segment])


def mark(seen: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """`seen` [B, V], set to true for tokens [B, n], too."""
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(tokens))
    places = tf.stack([rows, tokens], axis=-1)
    return tf.tensor_scatter_nd_update(seen, places, tf.ones_like(tokens, tf.bool))


def note(texts: tf.Tensor, places: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """`texts` [B, L] with tokens [B] at places [B], where no token is yet."""
    here = (tf.range(tf.shape(texts)[1]) == places[:, None]) & (texts < 0)
    return tf.where(here, tokens[:, None], texts)

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
from txl_tf.inference.causal.draw_token import Choice, sample, uniform
from txl_tf.models.transformer_xl.cached import Cache, CachedDecoder
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.models.transformer_xl.token_readers import (
    FEW,
    FewTextsReader,
    FewTextsState,
    Rows,
    RowWeights,
    TextsReader,
    TokenReader,
)
from txl_tf.ops import few_rows

CHUNK = 64
"""Tokens that one compiled call can generate; the cache is copied once per call, not once per token."""


class Draft(typing.NamedTuple):
    """The state of texts that are being generated.

    cache: the Cache after the tokens read so far; after `decode_few` a FewTextsState, which only `decode` reads.
    last: int32 [B], the last chosen tokens, which the model has not read yet.
    seen: bool [B, V], the tokens that occur in each text.
    """

    cache: Any
    last: tf.Tensor
    seen: tf.Tensor


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
        int8: whether a few texts, read by `decode_few`, are generated with the weights of layers and softmax in int8.
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
        single_rows = jit_compile and has_xla() and reads_few_rows and few_rows.available()
        self.decoder = decoder(model, reach, segment, single_rows=single_rows)
        self.rows = RowWeights(self.decoder, int8) if single_rows else None
        # One trace for any batch size, which is then compiled once for each.
        cache, seen = self.decoder.cache_spec(), tf.TensorSpec([None, model.config.vocab_size], tf.bool)
        draft = Draft(cache, tf.TensorSpec([None], tf.int32), seen)
        ids, rows, count = (tf.TensorSpec(shape, tf.int32) for shape in ([None, None], [None], []))
        chunk = tf.TensorSpec([None, CHUNK], tf.int32)
        compiled = functools.partial(tf.function, jit_compile=jit_compile and has_xla(), autograph=False)
        plain = functools.partial(tf.function, autograph=False)
        self.read_segment = compiled(self.decoder)
        signature = [draft, chunk, count, Choice.spec()]
        self.decode_texts = compiled(self.decode_texts, input_signature=signature)
        self.decode_rows = compiled(self.decode_rows)
        self.read = plain(self.read, input_signature=[ids, cache])
        self.read_on = plain(self.read_on, input_signature=[draft, ids, rows])
        self.score = plain(self.score, input_signature=[ids, rows, count])

    def refresh(self) -> None:
        """Takes over new values of the model's weights."""
        self.decoder.positions.refresh()
        if self.rows is not None:
            self.rows.refresh()

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
        dtype = tf.float64 if self.model.compute_dtype == "float64" else tf.float32

        def body(i: tf.Tensor, cache: Cache, scores: tf.TensorArray) -> tuple[Any, ...]:
            hidden, cache = self.read_segment(self.cut(inputs, i), cache)
            nll = self.model.nll(hidden, self.cut(targets, i))
            return i + 1, cache, scores.write(i, -tf.transpose(nll))

        scores = tf.TensorArray(dtype, segments, element_shape=[self.segment, None])
        state = (0, self.decoder.initial_cache(batch_size), scores)
        scores = tf.while_loop(lambda i, *_: i < segments, body, state)[-1]
        return tf.transpose(scores.concat())[:, :longest]

    def generate(self, prompts: tf.Tensor, lengths: tf.Tensor, max_tokens: tf.Tensor, choice: Choice) -> tf.Tensor:
        """Continues prompts of any lengths. The other prompts of the batch do not change a prompt's result.

        Called eagerly, it traces only what these prompts need. A row's tokens, int32 [B, max_tokens], depend only on
        its seed, its prompt and the settings of the Choice.

        Args:
            prompts: int32 [B, P], padded with any ids.
            lengths: int32 [B], tokens of each prompt, at least 1.
            max_tokens: int32 scalar.
        """
        prompts, lengths, max_tokens = (tf.convert_to_tensor(x, tf.int32) for x in (prompts, lengths, max_tokens))
        return self.write(self.begin(tf.shape(prompts)[0]), prompts, lengths, max_tokens, choice)[0]

    def write(
        self, draft: Draft, tokens: tf.Tensor, lengths: tf.Tensor, max_tokens: tf.Tensor, choice: Choice
    ) -> tuple[tf.Tensor, Draft]:
        """Reads further tokens of texts, int32 [B, P], padded with any ids, and continues the texts.

        Whole segments are read first. Then each row reads its own next token as long as there is one, and after that
        the last token chosen for it. The Draft's `last` is ignored; other arguments as for `generate`.

        Returns:
            int32 [B, max_tokens], and the Draft. If all lengths are equal, the Draft has read all of these tokens but
            the last. Otherwise shorter rows have read further tokens, too.
        """
        layout = self.lay_out(tokens, lengths, max_tokens)
        chunks = tf.shape(layout.given)[1] // CHUNK
        if layout.segments.shape[1] != 0:  # else an eager call would trace the reader of segments for nothing
            draft = self.read_on(draft, layout.segments, layout.own)

        def decoded(decode: Callable, draft: Draft) -> tuple[tf.Tensor, Draft]:
            def body(i: tf.Tensor, draft: Draft, made: tf.TensorArray) -> tuple[Any, ...]:
                piece = tf.reshape(layout.given[:, i * CHUNK : (i + 1) * CHUNK], [-1, CHUNK])
                chosen, draft = decode(draft, piece, tf.minimum(CHUNK, layout.steps - i * CHUNK), choice)
                return i + 1, draft, made.write(i, tf.transpose(chosen))

            made = tf.TensorArray(tf.int32, chunks, element_shape=[CHUNK, None])
            _, draft, made = tf.while_loop(lambda i, *_: i < chunks, body, (0, draft, made))
            return tf.transpose(made.concat()), draft

        def few_texts() -> tuple[tf.Tensor, Draft]:
            made, new = decoded(self.decode_few, draft._replace(cache=FewTextsState.of(draft.cache)))
            return made, new._replace(cache=new.cache.cache(self.model.compute_dtype))

        made, draft = self._by_number(layout.given, few_texts, lambda: decoded(self.decode_texts, draft))
        places = layout.first[:, None] + tf.range(max_tokens)
        return tf.gather(made, places, batch_dims=1), draft

    def _by_number(self, tokens: tf.Tensor, few_texts: Callable[[], Any], texts: Callable[[], Any]) -> Any:
        """few_texts() if the tokens [B, ..] are of a few texts and there are weights for single rows, else texts().

        If B is not known before the program runs, few_texts() is for one text.
        """
        if self.rows is None:
            return texts()
        batch = tokens.shape[0]
        if batch is None:
            return tf.cond(tf.equal(tf.shape(tokens)[0], 1), few_texts, texts)
        return few_texts() if batch <= FEW else texts()

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

    def decode(self, draft: Draft, given: tf.Tensor, n: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, Draft]:
        """Takes n steps, at most CHUNK: each reads a token and chooses the next.

        `given` are int32 [B, CHUNK], B static: the token to read at each step, or -1 for the last chosen one.

        Returns:
            int32 [B, CHUNK], the token chosen at each step, and the new Draft. After `decode_few` the Draft has
            a FewTextsState, so that the next call need not convert it.
        """
        decode = self._by_number(given, lambda: self.decode_few, lambda: self.decode_texts)
        return decode(draft, given, n, choice)

    def decode_texts(self, draft: Draft, given: tf.Tensor, n: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, Draft]:
        """`decode` for any number of texts."""
        return self._decode(draft, given, n, choice, TextsReader(self.decoder, self.rows))

    def decode_few(self, draft: Draft, given: tf.Tensor, n: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, Draft]:
        """`decode` for a few texts, with weights for single rows."""
        given, n = tf.convert_to_tensor(given, tf.int32), tf.convert_to_tensor(n, tf.int32)
        rows = typing.cast(RowWeights, self.rows).value()  # outside of the compiled program: it is slow to compile
        return self.decode_rows(draft._replace(cache=FewTextsState.of(draft.cache)), given, n, choice, rows)

    def decode_rows(
        self, draft: Draft, given: tf.Tensor, n: tf.Tensor, choice: Choice, rows: Rows
    ) -> tuple[tf.Tensor, Draft]:
        """`decode_few` of a Draft with a FewTextsState, and with the Rows."""
        return self._decode(draft, given, n, choice, FewTextsReader(self.decoder, rows))

    def _decode(
        self, draft: Draft, given: tf.Tensor, n: tf.Tensor, choice: Choice, reader: TokenReader
    ) -> tuple[tf.Tensor, Draft]:
        """`decode` with this reader of tokens."""

        def body(i: tf.Tensor, state: Any, last: tf.Tensor, seen: tf.Tensor, made: tf.Tensor) -> tuple[Any, ...]:
            token = tf.where(given[:, i] >= 0, given[:, i], last)
            seen = mark(seen, token[:, None])
            hidden, state = reader.read(i, token[:, None], state)
            log_prob = tf.cast(reader.log_prob(i, hidden[:, 0]), tf.float32)
            # state.length is the position of the next token in the row's own text.
            last = sample(log_prob, seen, uniform(choice.seeds, state.length), choice.values)
            return i + 1, state, last, seen, tf.where(tf.range(CHUNK) == i, last[:, None], made)

        first = (0, reader.begin(draft.cache), draft.last, draft.seen, tf.zeros_like(given))
        _, state, last, seen, made = tf.while_loop(lambda i, *_: i < n, body, first)
        return made, Draft(reader.end(state), last, seen)

    def cut(self, tokens: tf.Tensor, i: int | tf.Tensor) -> tf.Tensor:
        """Segment i of int32 [B, n S]: [B, S]."""
        return tf.reshape(tokens[:, i * self.segment : (i + 1) * self.segment], [-1, self.segment])


def mark(seen: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """`seen` [B, V], set to true for tokens [B, n], too."""
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(tokens))
    places = tf.stack([rows, tokens], axis=-1)
    return tf.tensor_scatter_nd_update(seen, places, tf.ones_like(tokens, tf.bool))

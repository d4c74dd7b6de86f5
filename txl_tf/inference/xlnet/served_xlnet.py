"""An XLNet as a SavedModel that plain TensorFlow loads and serves, without this package; the vocabulary is inside.

Signatures (`saved_model_cli show --all --dir=..` lists them with their shapes):

encode           texts, or pairs of them -> a vector for every token, and one for each text
fill             texts with blanks -> the most likely fillings, with exact log-probabilities
score            texts -> the log-probability of each token given all the others
score_candidates texts with a blank, and a candidate for each -> its log-probability
tokenize, decode texts -> tokens, and back

The model is traced for a few lengths. A batch uses the smallest one that its longest text fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.examples.layout import lay_out
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.inference.saved_model import Served, by_length, require_tokens, signatures_of, with_lengths, with_total
from txl_tf.inference.xlnet.blanks import PADDING, encode_candidates, encode_parts, split_at_blanks
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.inference.xlnet.missing_tokens import ORDERS, Filled, Search
from txl_tf.models.xlnet.model import XLNet

LENGTHS = (64, 128, 256, 512)
"""The row lengths, in tokens, for which the model is traced."""


class ServedXLNet(Served):
    """The graph functions that are exported; without <sep> and <cls> in the vocabulary there is no `encode`.

    With `jit_compile` the model is compiled where it runs. `lengths` are row lengths in tokens, ascending.
    """

    readme = "xlnet"

    def __init__(
        self,
        model: XLNet,
        vocabulary: Vocabulary,
        jit_compile: bool = True,
        lengths: Sequence[int] = LENGTHS,
    ):
        self.model, self.vocabulary = model, vocabulary
        self.lengths = tuple(lengths)
        self.fill_in = FillIn(model, vocabulary, jit_compile=jit_compile)
        known = vocabulary.special.sep is not None and vocabulary.special.cls is not None
        self.encoder = Encoder(model, vocabulary, jit_compile) if known else None

    def facts(self) -> dict[str, Any]:
        """See `Served`."""
        return {"sizes": self.sizes(), "longest": self.lengths[-1], "marker": self.fill_in.marker}

    def description(self, name: str) -> str:
        """See `Served`; without the lines about `encode` if there is none."""
        lines = super().description(name).splitlines(keepends=True)
        about = ("| encode |", '    model["encode"]')
        return "".join(line for line in lines if self.encoder is not None or not line.startswith(about))

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """See `Served`."""
        return signatures_of(self.inputs())

    def inputs(self) -> dict[Callable[..., Any], dict[str, tf.TensorSpec]]:
        """The functions that become signatures, with the specs of their arguments."""
        texts, tokens = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        text, number, flag = (tf.TensorSpec([], dtype) for dtype in (tf.string, tf.int32, tf.bool))
        settings = {"context": text, "order": text, "beam_size": number, "top": number, "free": flag}
        wide, dtype = [None, None, None], self.fill_in.filler.dtype
        kept = {
            "kept_tokens": tf.TensorSpec(wide, tf.int32),
            "kept_log_probs": tf.TensorSpec(wide, dtype),
            "kept_total": tf.TensorSpec(wide[1:], dtype),
        }
        inputs: dict[Callable[..., Any], dict[str, tf.TensorSpec]] = {
            self.fill: {"texts": texts, **settings},
            self.fill_part: {"texts": texts, **settings, "begin": number, "end": number, **kept},
            self.score: {"texts": texts},
            self.score_candidates: dict.fromkeys(("texts", "candidates", "context", "order"), texts),
            self.score_part: {"texts": texts, "begin": number, "end": number, "at_once": number},
            self.tokenize: {"texts": texts},
            self.decode: {"tokens": tokens},
        }
        if self.encoder is not None:
            inputs[self.encode] = {"texts": texts, "second": texts}
        return inputs

    def encode(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `encode`; see README."""
        assert self.encoder is not None
        same = tf.debugging.assert_equal(tf.size(texts), tf.size(second), 'give a second text, or "", for each text')
        with tf.control_dependencies([same]):
            ids, segments = lay_out(self.vocabulary, tf.identity(texts), second)
        hidden, pooled = self._by_length(self.encoder.encode, ids, segments)
        rows = with_lengths(ids)
        real = tf.cast(rows["tokens"] >= 0, hidden.dtype)[..., None]
        vectors = {"pooled": pooled["last"], "first": pooled["first"], "mean": pooled["mean"]}
        return rows | vectors | {"hidden": hidden[:, : tf.shape(real)[1]] * real}

    def fill(self, texts: tf.Tensor, context: tf.Tensor, top: tf.Tensor, **how: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `fill`; see README. how: order, beam_size and free."""
        rows, skip = self._with_blanks(texts, context, how["beam_size"], top)
        found = self._by_length(lambda ids: self.fill_in.filler.fill(ids, **how), rows)
        return self._fillings(rows, skip, found, top)

    def fill_part(
        self, texts: tf.Tensor, context: tf.Tensor, top: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, **how: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `fill_part`; see README. how: order, beam_size, free, and the kept tensors of a Search."""
        kept = Search(*(how.pop(f"kept_{name}") for name in Search._fields))
        rows, skip = self._with_blanks(texts, context, how["beam_size"], top)
        filler = self.fill_in.filler

        def go_on(ids: tf.Tensor) -> tuple[Filled, Search]:
            def goes_on() -> Search:
                shape = [None, None, ids.shape[1]]
                return Search(tf.ensure_shape(kept.tokens, shape), tf.ensure_shape(kept.log_probs, shape), kept.total)

            so_far = Search(*tf.cond(begin > 0, goes_on, lambda: filler.start(ids, how["beam_size"])))
            return filler.search(ids, so_far=so_far, begin=begin, end=end, **how)

        found, search = self._by_length(go_on, rows, at_least=tf.shape(kept.tokens, tf.int64)[2])
        return (
            self._fillings(rows, skip, found, top)
            | {"steps": tf.reduce_sum(tf.cast(found.places >= 0, tf.int32), axis=1)}
            | {f"kept_{name}": tensor for name, tensor in search._asdict().items()}
        )

    def score(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `score`; see README."""
        return self._scores(texts, lambda rows: self.fill_in.filler.score(rows, rows >= 0))

    def score_part(
        self, texts: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, at_once: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `score_part`; see README."""

        def score(rows: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(tf.cast(rows >= 0, tf.int32), [-1])
            number = tf.reshape(tf.cumsum(flat, exclusive=True), tf.shape(rows))
            return self.fill_in.filler.score(rows, (number >= begin) & (number < end), at_once)

        return self._scores(texts, score)

    def score_candidates(
        self, texts: tf.Tensor, candidates: tf.Tensor, context: tf.Tensor, order: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `score_candidates`; see README."""
        sizes = [tf.size(given) for given in (texts, candidates, context, order)]
        same = tf.debugging.assert_equal(
            tf.stack(sizes), sizes[0], "give a candidate, a context and an order for each text"
        )
        known = tf.equal(order, ORDERS[0]) | tf.equal(order, ORDERS[1])
        ordered = tf.debugging.assert_equal(known, True, f"order must be {ORDERS[0]} or {ORDERS[1]} for candidates")
        with tf.control_dependencies([same, ordered]):
            parts, counts = split_at_blanks(tf.identity(texts), self.fill_in.marker)
        single = tf.reduce_all(parts.row_lengths() == 2) & tf.reduce_all(counts < 2)
        single &= tf.equal(tf.reduce_sum(counts), sizes[0])
        one = tf.debugging.assert_equal(single, True, "candidates are for a text with one blank, of one token")
        with tf.control_dependencies([one]):
            halves = tf.reshape(parts.flat_values, [-1, 2])
        before, ids, after, _ = encode_candidates(self.vocabulary, halves, candidates)
        unknown = self.vocabulary.special.unknown
        bad = tf.equal(ids.row_lengths(), 0)
        if unknown is not None:
            bad |= tf.reduce_any(ids == unknown, axis=1)
        fit = tf.debugging.assert_equal(bad, False, "a candidate is empty, or has tokens that the model does not know")
        front = tf.concat([self._encode_contexts(context), before], axis=1)
        with tf.control_dependencies([fit]):
            begin = tf.cast(front.row_lengths(), tf.int32)[:, None]
        end, rows = begin + tf.cast(ids.row_lengths(), tf.int32)[:, None], tf.concat([front, ids, after], axis=1)

        def score(rows: tf.Tensor) -> tf.Tensor:
            place = tf.range(rows.shape[1])
            return self.fill_in.filler.score(rows, (place >= begin) & (place < end), order=order)

        log_probs, tokens = self._by_length(score, rows), ids.to_tensor(-1)
        spots = tf.minimum(begin + tf.range(tf.shape(tokens)[1]), tf.shape(log_probs)[1] - 1)
        log_probs = tf.where(tokens >= 0, tf.gather(log_probs, spots, batch_dims=1), 0)
        texts = self.vocabulary.decode_tensor(tf.concat([before, ids, after], axis=1))
        return {"texts": texts, "tokens": tokens} | with_total(log_probs)

    def tokenize(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `tokenize`; see README."""
        return self.tokenized(texts)

    def decode(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `decode`; see README."""
        with tf.control_dependencies([require_tokens(tokens, self.vocabulary.vocab_size)]):
            return {"texts": self.vocabulary.decode_tensor(tf.identity(tokens))}

    def _with_blanks(
        self, texts: tf.Tensor, context: tf.Tensor, beam_size: tf.Tensor, top: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The rows of texts with blanks, each after the context, as `Filler` takes them; and the context's length."""
        with tf.control_dependencies(
            [tf.debugging.assert_equal((top >= 1) & (top <= beam_size), True, "top must be from 1 to beam_size")]
        ):
            parts, counts = split_at_blanks(tf.identity(texts), self.fill_in.marker)
        first = tf.equal(tf.ragged.range(parts.row_lengths()).flat_values, 0)
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(parts.row_lengths() > 1, True, "a text has no blank"),
                tf.debugging.assert_equal(first | (counts > 0), True, "a blank cannot have 0 tokens"),
            ]
        ):
            ids, _ = encode_parts(self.vocabulary, parts, tf.identity(counts))
        front = self._encode_contexts(context[None]).flat_values
        rows = tf.concat([tf.RaggedTensor.from_tensor(tf.repeat(front[None], ids.nrows(), axis=0)), ids], axis=1)
        return rows, tf.size(front)

    def _fillings(self, rows: tf.RaggedTensor, skip: tf.Tensor, found: Filled, top: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of `fill`."""
        tokens, log_probs, total = (values[:, :top] for values in (found.tokens, found.log_probs, found.total))
        return {
            "texts": self._written(rows, found.places, tf.maximum(tokens, 0), skip),
            "tokens": tokens,
            "log_probs": tf.cast(log_probs, tf.float32),
            "total": tf.cast(total, tf.float32),
        }

    def _scores(self, texts: tf.Tensor, score: Callable[[tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """The outputs of `score`; score: rows [B, T] -> [B, T]."""
        ids = self.vocabulary.encode_tensor(texts)
        rows = with_lengths(ids)
        return rows | with_total(self._by_length(score, ids)[:, : tf.shape(rows["tokens"])[1]])

    def _by_length(self, function: Callable[..., Any], *rows: tf.RaggedTensor, at_least: tf.Tensor | int = 0) -> Any:
        """Calls function(rows padded to one of `lengths` that is at least at_least, int64)."""

        def padded(t_len: int) -> Any:
            return function(*(tf.cast(r.to_tensor(PADDING, shape=[None, t_len]), tf.int32) for r in rows))

        longest = tf.maximum(tf.reduce_max(rows[0].row_lengths()), tf.cast(at_least, tf.int64))
        return by_length(longest, self.lengths, padded)

    def _encode_contexts(self, contexts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of contexts [B], each with the end of its document; none for an empty one."""
        there = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(contexts != "")], self.fill_in.document_end),
            tf.cast(contexts != "", tf.int64),
        )
        ids = self.vocabulary.encode_tensor(contexts)
        return tf.concat([ids.with_flat_values(tf.cast(ids.flat_values, tf.int32)), there], axis=1)

    def _written(self, rows: tf.RaggedTensor, places: tf.Tensor, tokens: tf.Tensor, skip: tf.Tensor) -> tf.Tensor:
        """Strings [B, W] of the rows [B, None] after their first `skip` tokens, with tokens [B, W, n] filled in."""
        ids = tf.cast(rows.to_tensor(PADDING), tf.int32)
        wide = tf.repeat(ids[:, None], tf.shape(tokens)[1], axis=1)
        here = places[:, :, None] == tf.range(tf.shape(ids)[1])  # [B, n, T]
        found = tf.einsum("bwn,bnt->bwt", tokens, tf.cast(here, tokens.dtype))
        wide = tf.where(tf.reduce_any(here, axis=1)[:, None], found, wide)
        flat = tf.reshape(wide, [-1, tf.shape(ids)[1]])
        kept = (flat != PADDING) & (tf.range(tf.shape(ids)[1]) >= skip)
        texts = self.vocabulary.decode_tensor(tf.ragged.boolean_mask(flat, kept))
        return tf.reshape(texts, tf.shape(wide)[:2])

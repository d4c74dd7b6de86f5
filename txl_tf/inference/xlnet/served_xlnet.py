"""An XLNet as a SavedModel that plain TensorFlow loads and serves, without this package; the vocabulary is inside.

Signatures (`saved_model_cli show --all --dir=..` lists them with their shapes):

encode           texts, or pairs of them -> a vector for every token, and one for each text
fill             texts with blanks -> the most likely fillings, with exact log-probabilities
score            texts -> the log-probability of each token given all the others
tokenize, decode texts -> tokens, and back

The model is traced for a few lengths. A batch uses the smallest of them that is not below its longest text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.tasks.layout import lay_out
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.inference.saved_model import by_length, signatures_of, write_saved_model
from txl_tf.inference.xlnet.blanks import MARKER, PADDING, encode_parts, split_at_blanks
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.inference.xlnet.missing_tokens import SCORED_ROWS, Filled, Search
from txl_tf.models.xlnet.model import XLNet
from txl_tf.storage.files import require_new_directory

LENGTHS = (64, 128, 256, 512)
"""The row lengths, in tokens, for which the model is traced."""

README = """\
# An XLNet, exported by txl_tf

    import tensorflow as tf
    import tensorflow_text  # only if loading says that an op is missing: subword vocabularies need it

    model = tf.saved_model.load("{name}").signatures
    model["fill"](
        texts=tf.constant(["The capital of France is {marker} ."]), context=tf.constant(""),
        order=tf.constant("left_to_right"), beam_size=tf.constant(8), top=tf.constant(5), free=tf.constant(False))
    model["score"](texts=tf.constant(["Once upon a time"]))["total"]
    {encoding}

Sizes: {sizes}. A text has at most {longest} tokens, with context, <sep> and <cls>. In every output rows end \
with -1 where there is no token, and with 0 where there is no number.

| signature | in | out |
|---|---|---|
{rows}

A blank is written {marker} and stands for one token, {marker}*3 for three. A longer row of \
underscores is one blank, too. Order: left_to_right, right_to_left, \
confident (next the token that the model is surest of, for each filling), or the numbers of the missing tokens from 0 \
on with commas, "2,0,1". A token is predicted from the text and the tokens before it in the order; under that order \
`total` is exact. With free=False tokens fit the spaces around a blank, and stand for text.

A signature needs all its inputs: a SavedModel has no defaults.
"""

_ROWS = {
    "encode": '| encode | texts: strings [B]. second: strings [B], the second text of each pair, "" where there is '
    "none | tokens: int32 [B, n], A <sep> <cls> or A <sep> B <sep> <cls>. lengths: int32 [B]. hidden: float [B, n, D]. "
    "pooled: float [B, D], the state of <cls>. first, mean: float [B, D], the first token's state, and the mean of "
    "all. |",
    "fill": "| fill | texts: strings [B], each with a blank. context: string, a text to read in front of each, may be "
    '"". order: string. beam_size: int32, fillings that are followed at a time; 1 is greedy. top: int32, at most '
    "beam_size, how many to return. free: bool | texts: strings [B, top], filled, as `decode` writes them. tokens: "
    "int32 [B, top, n], what was missing. log_probs: float [B, top, n], in nats. total: float [B, top], their sums, "
    "falling; minus infinity where there are fewer fillings. |",
    "fill_part": "| fill_part | as for `fill`; begin: int32, end: int32, which of the missing tokens, in their order, "
    "this call fills, from 0 on. kept_tokens: int32 [B, beam_size, T], kept_log_probs: float [B, beam_size, T], "
    "kept_total: float [B, beam_size], from the call before; [B, 0, 0] and [B, 0] for the first | texts, tokens, "
    "log_probs and total as of `fill`, complete when end is steps. steps: int32 [B], how many tokens each text lacks. "
    "kept_tokens, kept_log_probs, kept_total, for the next call. |",
    "score": "| score | texts: strings [B] | tokens: int32 [B, n]. log_probs: float [B, n], of each given all the "
    "others, in nats. lengths: int32 [B]. total: float [B], sums: pseudo-log-likelihoods. |",
    "score_part": "| score_part | texts: strings [B]. begin: int32, end: int32, which of the tokens of all texts this "
    "call scores, from 0 on. at_once: int32, how many in one forward pass | tokens, lengths as of `score`. log_probs: "
    "float [B, n], 0 for the other tokens. total: float [B], sums. |",
    "tokenize": "| tokenize | texts: strings [B] | tokens: int32 [B, n]. lengths: int32 [B] |",
    "decode": "| decode | tokens: int32 [B, n] | texts: strings [B] |",
}


class ServedXLNet(tf.Module):
    """The graph functions that are exported.

    Args:
        model: an XLNet.
        vocabulary: its Vocabulary; without <sep> and <cls> there is no `encode`.
        marker: how a blank is written.
        jit_compile: whether the model is compiled by XLA where it runs.
        lengths: row lengths in tokens, ascending, such as LENGTHS.
    """

    def __init__(
        self,
        model: XLNet,
        vocabulary: Vocabulary,
        marker: str = MARKER,
        jit_compile: bool = True,
        lengths: Sequence[int] = LENGTHS,
    ):
        super().__init__(name="served_xlnet")
        self.vocabulary = vocabulary
        self.lengths = tuple(lengths)
        self.fill_in = FillIn(model, vocabulary, marker, jit_compile)
        known = vocabulary.special.sep is not None and vocabulary.special.cls is not None
        self.encoder = Encoder(model, vocabulary, jit_compile) if known else None
        self._searches, self._scorers = functools.cache(self._search_function), functools.cache(self._score_function)

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The functions by name, as `tf.saved_model.save` takes them."""
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
            self.score_part: {"texts": texts, "begin": number, "end": number, "at_once": number},
            self.tokenize: {"texts": texts},
            self.decode: {"tokens": tokens},
        }
        if self.encoder is not None:
            inputs[self.encode] = {"texts": texts, "second": texts}
        return signatures_of(inputs)

    def encode(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `encode`; see README."""
        assert self.encoder is not None
        same = tf.debugging.assert_equal(tf.size(texts), tf.size(second), 'give a second text, or "", for each text')
        with tf.control_dependencies([same]):
            ids, segments = lay_out(self.vocabulary, tf.identity(texts), second)
        hidden, pooled = self._by_length(self.encoder.encode, ids, segments)
        tokens = ids.to_tensor(-1)
        real = tf.cast(tokens >= 0, hidden.dtype)[..., None]
        vectors = {"pooled": pooled["last"], "first": pooled["first"], "mean": pooled["mean"]}
        return {
            "tokens": tokens,
            "lengths": tf.cast(ids.row_lengths(), tf.int32),
            "hidden": hidden[:, : tf.shape(tokens)[1]] * real,
        } | vectors

    def fill(
        self,
        texts: tf.Tensor,
        context: tf.Tensor,
        order: tf.Tensor,
        beam_size: tf.Tensor,
        top: tf.Tensor,
        free: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The signature `fill`; see README."""
        rows, skip = self._with_blanks(texts, context, beam_size, top)
        filler = self.fill_in.filler

        def search(ids: tf.Tensor) -> Filled:
            return self._searched(ids, order, beam_size, free, filler.start(ids, beam_size), 0, tf.int32.max)[0]

        return self._fillings(rows, skip, self._by_length(search, rows), top)

    def fill_part(
        self,
        texts: tf.Tensor,
        context: tf.Tensor,
        order: tf.Tensor,
        beam_size: tf.Tensor,
        top: tf.Tensor,
        free: tf.Tensor,
        begin: tf.Tensor,
        end: tf.Tensor,
        kept_tokens: tf.Tensor,
        kept_log_probs: tf.Tensor,
        kept_total: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The signature `fill_part`; see README."""
        rows, skip = self._with_blanks(texts, context, beam_size, top)
        filler = self.fill_in.filler
        kept = Search(kept_tokens, kept_log_probs, kept_total)

        def go_on(ids: tf.Tensor) -> tuple[Filled, Search]:
            def goes_on() -> Search:
                shape = [None, None, ids.shape[1]]
                return Search(tf.ensure_shape(kept.tokens, shape), tf.ensure_shape(kept.log_probs, shape), kept.total)

            so_far = Search(*tf.cond(begin > 0, goes_on, lambda: filler.start(ids, beam_size)))
            return self._searched(ids, order, beam_size, free, so_far, begin, end)

        found, search = self._by_length(go_on, rows, at_least=tf.shape(kept_tokens, tf.int64)[2])
        return self._fillings(rows, skip, found, top) | {
            "steps": tf.reduce_sum(tf.cast(found.places >= 0, tf.int32), axis=1),
            "kept_tokens": search.tokens,
            "kept_log_probs": search.log_probs,
            "kept_total": search.total,
        }

    def score(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `score`; see README."""
        return self._scores(texts, lambda rows: self._scorers(rows.shape[1])(rows, rows >= 0, SCORED_ROWS))

    def score_part(
        self, texts: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, at_once: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `score_part`; see README."""

        def score(rows: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(tf.cast(rows >= 0, tf.int32), [-1])
            number = tf.reshape(tf.cumsum(flat, exclusive=True), tf.shape(rows))
            return self._scorers(rows.shape[1])(rows, (rows >= 0) & (number >= begin) & (number < end), at_once)

        return self._scores(texts, score)

    def tokenize(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `tokenize`; see README."""
        ids = self.vocabulary.encode_tensor(texts)
        return {"tokens": ids.to_tensor(-1), "lengths": tf.cast(ids.row_lengths(), tf.int32)}

    def decode(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `decode`; see README."""
        size = self.vocabulary.vocab_size
        within = tf.debugging.assert_equal(
            (tokens >= 0) & (tokens < size), True, f"tokens must be from 0 to {size - 1}"
        )
        with tf.control_dependencies([within]):
            return {"texts": self.vocabulary.decode_tensor(tf.identity(tokens))}

    def _searched(self, ids: tf.Tensor, *given: Any) -> tuple[Filled, Search]:
        """`Filler.search` of ids and its other arguments, and what it has found."""
        search = self._searches(ids.shape[1])(ids, *given)
        return self.fill_in.filler.found(self.fill_in.filler.places(ids), search), search

    # A function for each length, which is traced and stored once for all signatures.

    def _search_function(self, t_len: int) -> Any:
        """`Filler.search` of rows of T tokens."""
        filler, number = self.fill_in.filler, tf.TensorSpec([], tf.int32)
        wide, dtype = [None, None, t_len], filler.dtype
        so_far = Search(tf.TensorSpec(wide, tf.int32), tf.TensorSpec(wide, dtype), tf.TensorSpec(wide[:2], dtype))
        settings = [tf.TensorSpec([], tf.string), number, tf.TensorSpec([], tf.bool)]
        signature = [tf.TensorSpec([None, t_len], tf.int32), *settings, so_far, number, number]
        return tf.function(filler.search, input_signature=signature, autograph=False)

    def _score_function(self, t_len: int) -> Any:
        """`Filler.score` of rows of T tokens."""
        rows = [tf.TensorSpec([None, t_len], dtype) for dtype in (tf.int32, tf.bool)]
        signature = [*rows, tf.TensorSpec([], tf.int32)]
        return tf.function(self.fill_in.filler.score, input_signature=signature, autograph=False)

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
                tf.debugging.assert_equal(first | (counts > 0), True, "a blank of 0 tokens is none"),
            ]
        ):
            ids, _ = encode_parts(self.vocabulary, parts, tf.identity(counts))
        front = self._encode_context(context)
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
        tokens = ids.to_tensor(-1)
        log_probs = self._by_length(score, ids)
        return {
            "tokens": tokens,
            "log_probs": tf.cast(log_probs[:, : tf.shape(tokens)[1]], tf.float32),
            "lengths": tf.cast(ids.row_lengths(), tf.int32),
            "total": tf.cast(tf.reduce_sum(tf.cast(log_probs, tf.float64), axis=1), tf.float32),
        }

    def _by_length(self, function: Callable[..., Any], *rows: tf.RaggedTensor, at_least: tf.Tensor | int = 0) -> Any:
        """Calls function(rows padded to one of `lengths`, which is not below at_least, int64)."""

        def padded(t_len: int) -> Any:
            return function(*(tf.cast(r.to_tensor(PADDING, shape=[None, t_len]), tf.int32) for r in rows))

        longest = tf.maximum(tf.reduce_max(rows[0].row_lengths()), tf.cast(at_least, tf.int64))
        return by_length(longest, self.lengths, padded)

    def _encode_context(self, context: tf.Tensor) -> tf.Tensor:
        end = self.fill_in.document_end
        ids = tf.cast(self.vocabulary.encode_tensor(context[None]).flat_values, tf.int32)
        ids = tf.concat([ids, [end]], axis=0)
        return ids[: tf.where(tf.equal(context, ""), 0, tf.size(ids))]

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


def export(
    model: XLNet,
    vocabulary: Vocabulary,
    export_dir: str,
    unit: str,
    *,
    jit_compile: bool = True,
    lengths: Sequence[int] = LENGTHS,
) -> None:
    """Writes the SavedModel, and a README.md that describes its signatures.

    Args:
        model: an XLNet.
        vocabulary: its Vocabulary.
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        unit: the unit of a token, such as "subword", for the README.
        jit_compile, lengths: as for ServedXLNet.

    Raises:
        InputError: export_dir is not empty.
    """
    require_new_directory(export_dir, "export_dir")
    served = ServedXLNet(model, vocabulary, jit_compile=jit_compile, lengths=lengths)
    signatures = served.signatures()
    config = model.config
    sizes = {"vocabulary": config.vocab_size, "unit": unit, "layers": config.n_layer, "width": config.d_model}
    readme = README.format(
        name="{name}",
        marker=served.fill_in.marker,
        sizes=json.dumps(sizes),
        longest=served.lengths[-1],
        rows="\n".join(row for name, row in _ROWS.items() if name in signatures),
        encoding='model["encode"](texts=tf.constant(["A text."]), second=tf.constant([""]))["pooled"]'
        if served.encoder is not None
        else "# There is no encode: the vocabulary has no <sep> and <cls>.",
    )
    write_saved_model(export_dir, signatures, model, vocabulary, readme)

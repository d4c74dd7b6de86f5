"""Subwords of a SentencePiece model, through tensorflow-text.

If a model has special pieces with XLNet's names (<cls>, <sep>, ..), the vocabulary has them as `special`. Models that
subword_training.py trains have all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import WHITESPACE, SpecialTokens, Vocabulary, stands_apart
from txl_tf.data.vocabularies.traced_text import PlacedTokens, TracedText, source_places, traced_lines
from txl_tf.errors import InputError
from txl_tf.quiet import quiet
from txl_tf.storage.files import read_bytes

SPACE = "\u2581"  # SentencePiece's sign for a space

# The pieces for the fields of SpecialTokens.
SPECIAL_PIECES = {
    "unknown": "<unk>",
    "cls": "<cls>",
    "sep": "<sep>",
    "pad": "<pad>",
    "mask": "<mask>",
    "end_of_document": "<eod>",
}
_ANCHOR = "<eop>"  # always a separate piece, at any position in a text
# Pieces that stand for no text. No text is encoded as one of them, even if it contains their names.
_CONTROL_PIECES = {"<s>", "</s>", *SPECIAL_PIECES.values()} - {"<unk>"}


class SubwordVocabulary(Vocabulary):
    """A serialised SentencePiece model, which decides how spaces, newlines and unknown characters are encoded.

    Control pieces such as <sep> stand for no text.

    Attributes:
        pieces: the pieces by id, as SentencePiece writes them: str [V].
    """

    kind = "sentencepiece"
    unit = "subword"
    FILE = "sentencepiece.model"

    def __init__(self, model: bytes):
        super().__init__(name="subword_vocabulary")
        self._model = model
        try:
            self._made_tokenizer = _tokenizer_of(model)
            self.vocab_size = int(self._tokenizer.vocab_size())
            names = self._tokenizer.id_to_string(tf.range(self.vocab_size)).numpy()
        except tf.errors.OpError as error:
            raise InputError("not a SentencePiece model: give one, such as spiece.model") from error
        # No list or dict may be an attribute: tf.Module would wrap and track every piece.
        self.pieces = np.array([name.decode() for name in names], dtype=object)
        self._texts = np.array([_text(piece) for piece in self.pieces], dtype=object)
        id_of = dict(zip(self.pieces, range(self.vocab_size), strict=True))
        self.special = SpecialTokens(**{field: id_of.get(piece) for field, piece in SPECIAL_PIECES.items()})
        self._anchor = id_of.get(_ANCHOR)
        newline, letter = (self._tokenizer.tokenize([text])[0].numpy() for text in ("\n", "a"))
        self._adds_space = len(letter) > 0 and self.pieces[letter[0]].startswith(SPACE)
        self.start_token = int(newline[-1]) if len(newline) else 0
        # The graph for places, for each tokenizer. As an attribute, a tf.function would be saved in a SavedModel.
        self._placing = functools.lru_cache(maxsize=1)(lambda tokenizer: self._trace_places())

    @property
    def _tokenizer(self) -> Any:
        """The tokenizer; made again if its resource is gone, since tf.random.set_seed destroys eager resources."""
        with tf.init_scope():
            try:
                self._made_tokenizer.vocab_size()
            except tf.errors.NotFoundError:
                self._made_tokenizer = _tokenizer_of(self._model)
        return self._made_tokenizer

    read = staticmethod(read_bytes)

    def save(self, directory: str) -> None:
        """Writes the model file, which SentencePiece's own tools can read."""
        with tf.io.gfile.GFile(tf.io.gfile.join(directory, self.FILE), "wb") as file:
            file.write(self._model)

    def encode(self, text: str | bytes) -> np.ndarray:
        """See Vocabulary. Encodes line by line, because SentencePiece takes more than linear time."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        lines = self._lines(data)
        return self._encode_lines(tf.constant(lines)).flat_values.numpy() if lines else np.zeros(0, np.int32)

    def encode_documents(self, parts: Sequence[bytes]) -> np.ndarray:
        """Parts of a text -> int32 ids [n], with an end-of-document token after each part but the last."""
        rows = [self._lines(part) or [b""] for part in parts]
        ids = self._encode_lines(tf.constant([line for row in rows for line in row]))
        ends = np.zeros(ids.nrows(), np.int64)
        ends[np.cumsum([len(row) for row in rows])[:-1] - 1] = 1
        tokens = (
            tf.fill([ends.sum()], self.special_token("end_of_document")) if len(parts) > 1 else tf.zeros([0], tf.int32)
        )
        return tf.concat([ids, tf.RaggedTensor.from_row_lengths(tokens, ends)], axis=1).flat_values.numpy()

    def _lines(self, text: bytes) -> list[bytes]:
        """The parts of a text that are encoded separately."""
        return text.splitlines(keepends=True)

    def _encode_lines(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Strings [n] -> ids [n, None]."""
        return self._tokenizer.tokenize(lines)

    def encode_with_places(self, texts: Sequence[str]) -> list[PlacedTokens]:
        """The tokens of texts, those of `encode`, with their places in the texts."""
        found = self._placing(self._tokenizer)(
            tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)
        )
        limits, parts = found[0].row_splits.numpy(), [part.flat_values.numpy() for part in found]
        return [PlacedTokens(*(part[first:last] for part in parts)) for first, last in itertools.pairwise(limits)]

    def encode_with_places_tensor(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `encode_with_places`, in TensorFlow ops: strings [n] -> ids, begin and end, int32 [n, None]."""
        traced, counts = self._traced_lines(texts)
        lines = traced.lines(tf.reduce_sum(counts))
        ids, begin, end = self._tokenizer.tokenize_with_offsets(lines)
        places = source_places(traced, lines, begin, end)
        per_text = tf.RaggedTensor.from_row_lengths(ids, counts).merge_dims(1, 2)
        return self._finished(per_text, *(per_text.with_flat_values(tf.cast(p, tf.int32)) for p in places))

    def _trace_places(self) -> tf.types.experimental.ConcreteFunction:
        signature = [tf.TensorSpec([None], tf.string)]
        return tf.function(self.encode_with_places_tensor, signature, autograph=False).get_concrete_function()

    def _traced_lines(self, texts: tf.Tensor) -> tuple[TracedText, tf.Tensor]:
        """The lines of texts as the tokenizer gets them, and how many lines each text has."""
        return traced_lines(texts, keep_ends=True)

    def _finished(
        self, ids: tf.RaggedTensor, begin: tf.RaggedTensor, end: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """The tokenizer's pieces of texts -> those of `encode`."""
        return ids, begin, end

    def encode_around(self, parts: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """See Vocabulary. A space before missing tokens belongs to the first of them, as in complete text.

        If there is nothing between two missing tokens, the second can be any token. If a model adds a space before
        every text (XLNet's does), white space of any kind counts as a space, and so does the beginning of a text. A
        part that follows missing tokens without a space is then encoded after <eop>, if the model has this piece, so
        that no space is added.
        """
        empty = tf.equal(parts, "")
        end = WHITESPACE if self._adds_space else " "
        spaced = tf.strings.regex_full_match(parts, f"(?s).*{end}")
        kinds = tf.where(spaced, 1, tf.where(empty & ~first, -1, 0))
        if not self._adds_space:
            parts = tf.where(last, parts, tf.strings.regex_replace(parts, " $", ""))
            return self.encode_tensor(parts), kinds
        kinds = tf.where(empty & first, 1, kinds)
        if self._anchor is None:
            return self.encode_tensor(parts), kinds
        glued = ~first & ~empty & ~tf.strings.regex_full_match(parts, f"(?s){WHITESPACE}.*")
        ids = self.encode_tensor(tf.where(glued, _ANCHOR + parts, parts))
        places = ids.with_flat_values(tf.ragged.range(ids.row_lengths()).flat_values)
        anchored = tf.gather(glued, ids.value_rowids()) & (ids.flat_values == self._anchor)
        begin = tf.reduce_min(ids.with_flat_values(tf.where(anchored, places.flat_values, ids.dtype.max)), axis=1)
        kept = places.flat_values > tf.gather(tf.where(glued, tf.cast(begin, tf.int64), -1), ids.value_rowids())
        return tf.ragged.boolean_mask(ids, ids.with_flat_values(kept)), kinds

    def decoder(self, after: str = "") -> Callable[[Iterable[int]], bytes]:
        """See Vocabulary. If the model adds a space before every text, that space is not part of the text."""
        drop = self._adds_space and (not after or after[-1].isspace())

        def decode(ids: Iterable[int]) -> bytes:
            nonlocal drop
            data = self.decode_bytes(ids)
            if drop and data:
                drop, data = False, data.removeprefix(b" ")
            return data

        return decode

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer.tokenize(strings)

    def decode_tensor(self, ids: tf.Tensor | tf.RaggedTensor, after: tf.Tensor | str = "") -> tf.Tensor:
        text = super().decode_tensor(ids)
        if not self._adds_space:
            return text
        return tf.where(stands_apart(after), tf.strings.regex_replace(text, "^ ", ""), text)

    def describe(self, token: int) -> str:
        """See Vocabulary; control pieces are shown by their names."""
        name = self.pieces[token]
        return name if name in _CONTROL_PIECES else super().describe(token)


def _tokenizer_of(model: bytes) -> Any:
    import tensorflow_text  # here, because it is slow to load and only these vocabularies need it

    with quiet():  # the operation's note about models without normalization
        return tensorflow_text.SentencepieceTokenizer(model)


def _text(piece: str) -> bytes:
    if piece in _CONTROL_PIECES:
        return b""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE, " ").encode()

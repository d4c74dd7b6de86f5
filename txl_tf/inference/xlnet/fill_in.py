"""An XLNet that fills blanks and scores texts, for use from Python.

Examples:
    >>> model = FillIn.load("runs/xlnet")
    >>> for filling in model.fill("The capital of France is ____ ."):
    ...     print(filling.total, filling.text)
    >>> model.score("The capital of France is Paris .").total
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.inference.one_or_all import one_or_all
from txl_tf.inference.xlnet.blanks import (
    MARKER,
    PADDING,
    allowed_tokens,
    encode_candidates,
    encode_parts,
    split_at_blanks,
)
from txl_tf.inference.xlnet.missing_tokens import ORDERS, Filled, Filler
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs.model_dir import TrainedModel, load_trained
from txl_tf.storage.surrogates import whole

ROUND = 64
"""Rows are padded to a multiple of this, so that few lengths are compiled."""


class Filling(typing.NamedTuple):
    """A text with its blanks filled.

    pieces: the parts of the text and the fillings of its blanks alternately; the first and last are parts.
    ids: int32 [n], the tokens that were missing, from left to right.
    log_probs: [n], the log-probability of each missing token at the time it was predicted, in nats.
    total: their sum, the log-probability of the filling under that order.
    """

    pieces: tuple[str, ...]
    ids: np.ndarray
    log_probs: np.ndarray
    total: float

    @property
    def text(self) -> str:
        """The filled text."""
        return "".join(self.pieces)

    def marked(self, before: str = "[", after: str = "]") -> str:
        """The filled text with marks around each filling."""
        return "".join(f"{before}{piece}{after}" if i % 2 else piece for i, piece in enumerate(self.pieces))


class PseudoScore(typing.NamedTuple):
    """A text's token ids [n], the log-probability [n] of each token given all the others, in nats, and their sum.

    The sum is not the log-probability of the text, but it ranks texts by quality (Salazar et al. 2020).
    """

    ids: np.ndarray
    log_probs: np.ndarray
    total: float


Tool = typing.TypeVar("Tool", bound="XLNetTool")


class XLNetTool:
    """The base class of tools that read texts with an XLNet.

    otherwise: ends the message about another model, after "which".
    """

    otherwise: str

    def __init__(self, model: XLNet, vocabulary: Vocabulary, **options: Any):
        self.model = model
        self.vocabulary = vocabulary

    @classmethod
    def load(cls: type[Tool], model_dir: str, checkpoint: str | None = None, **options: Any) -> Tool:
        """The model of a directory that training or an import wrote; `checkpoint` as for `load_trained`.

        Options are those of the class. InputError if there is no trained model, or it is not an XLNet.
        """
        trained = load_trained(model_dir, checkpoint=checkpoint)
        if not isinstance(trained.model, XLNet):
            raise InputError(f"{model_dir} holds {families.with_article(trained.config)}, which {cls.otherwise}")
        return cls(trained.model, trained.vocabulary, **options)

    @classmethod
    def of(cls: type[Tool], trained: TrainedModel, jit_compile: bool | None = None) -> Tool:
        """The XLNet of a TrainedModel; jit_compile None: not compiled."""
        return cls(trained.model, trained.vocabulary, jit_compile=bool(jit_compile))


class FillIn(XLNetTool):
    """Fills blanks in texts, and scores texts.

    Args:
        model: an XLNet.
        vocabulary: its Vocabulary.
        marker: how a blank is written. Each stands for one token; with *N after it, as in ____*3, it stands for N.
        jit_compile: whether the model is compiled, once for each batch size and length; lengths are rounded up
            to a multiple of ROUND tokens.

    Attributes:
        document_end: the token between a context and a text.
    """

    otherwise = "fills no blanks: use scripts/generate.py, which continues texts, and scripts/score.py"

    def __init__(self, model: XLNet, vocabulary: Vocabulary, marker: str = MARKER, jit_compile: bool = True):
        if not marker:
            raise InputError("the marker for a blank is empty: give one, such as ____")
        super().__init__(model, vocabulary)
        self.marker = marker
        end = vocabulary.special.end_of_document
        self.document_end = vocabulary.start_token if end is None else end
        self.filler = Filler(model, allowed_tokens(vocabulary), jit_compile)

    @one_or_all
    def fill(
        self,
        texts: list[str],
        *,
        order: str | Sequence[int] = ORDERS[0],
        beam_size: int = 8,
        top: int | None = None,
        context: str = "",
        free: bool = False,
        candidates: Sequence[str] = (),
    ) -> list[list[Filling]]:
        """Looks for the most likely fillings of the blanks of a text, or of each of several texts.

        Args:
            texts: str, or a list of them.
            order: the order in which missing tokens are predicted, each given the text and the tokens before it in this
                order. One of "left_to_right", "right_to_left", "confident" (the token with the highest probability
                comes next), or the numbers of the missing tokens, counted from 0.
            beam_size: hypotheses that are kept at a time; 1 always takes the most likely token.
            top: how many to return, at most beam_size; None: all.
            context: a text to read before each text, as a separate document.
            free: whether any token may fill a blank. If not, only tokens that stand for text may. In a vocabulary whose
                tokens contain spaces, such a token must begin with a space if, and only if, the blank has a space
                before it.
            candidates: words, or other texts, to score in a text's only blank, instead of searching. A candidate of n
                tokens is scored as a filling of ____*n: each token given the text and the candidate's tokens before it
                in the order. beam_size and free have no effect.

        Returns:
            list of Filling, the most likely first; or a list of such lists.

        Raises:
            InputError: a text without a blank, or settings out of range; candidates for a text with several blanks, in
                another order than left_to_right or right_to_left, or with unknown tokens.
        """
        if isinstance(candidates, str):
            raise InputError(f"candidates={candidates!r} must be a list of texts")
        order = order if isinstance(order, str) else ",".join(str(int(number)) for number in order)
        if beam_size < 1 or (top is not None and not 1 <= top <= beam_size):
            raise InputError(f"beam_size={beam_size} must be at least 1, and top={top} from 1 to beam_size")
        if not texts:
            return []
        for text in texts:
            if self.marker not in text:
                raise InputError(f"there is no blank in {_short(text)}: write {self.marker} where a token is missing")
        parts, counts = split_at_blanks(tf.constant(texts), self.marker)
        if np.any(np.delete(counts.numpy(), parts.row_starts().numpy()) < 1):
            raise InputError(f"a blank cannot have 0 tokens: write {self.marker}*2 for two tokens, and so on")
        written = [[part.decode("utf-8", "replace") for part in row] for row in parts.to_list()]
        if candidates:
            if max(map(len, written)) > 2 or np.any(counts.numpy() > 1):
                raise InputError(f"candidates are for a text with one blank, without a number after it: {self.marker}")
            return [self._ranked(row, candidates, order, context)[:top] for row in written]
        ids, kinds = encode_parts(self.vocabulary, parts, counts)
        rows = _padded([np.concatenate([self._encode_context(context), row]) for row in _rows(ids)])
        _check_order(order, [int(np.sum((row < 0) & (row != PADDING))) for row in rows])
        found = self.filler.fill(tf.constant(rows), tf.constant(order), tf.constant(beam_size), tf.constant(free))
        counts, kinds = (parts.with_flat_values(values).to_list() for values in (counts, kinds))
        return [
            self._fillings(*of_text, Filled(*(values[i].numpy() for values in found)), top)
            for i, of_text in enumerate(zip(written, counts, kinds, strict=True))
        ]

    @one_or_all
    def score(self, texts: list[str], context: str = "") -> list[PseudoScore]:
        """The pseudo-log-likelihood of a text, or of each of several texts. A text of n tokens takes n forward passes.

        Args:
            texts: str, or a list of them; blanks in them are read as ordinary text.
            context: a text to read before each text, as a separate document; its tokens are not scored.
        """
        front = self._encode_context(context)
        encoded = [np.asarray(self.vocabulary.encode(text), np.int32) for text in texts]
        return [PseudoScore(ids, *self._scored(front, [ids], front[:0], "")[0]) for ids in encoded]

    def _ranked(self, parts: list[str], candidates: Sequence[str], order: str, context: str) -> list[Filling]:
        """The candidates for a text's only blank, the most likely first; parts: before and after it."""
        if order not in ORDERS[:2]:
            raise InputError(f"order={order}: candidates are scored in the order {ORDERS[0]} or {ORDERS[1]}")
        stripped = [whole(candidate).strip() for candidate in candidates]
        *encoded, kinds = encode_candidates(
            self.vocabulary, tf.constant([parts] * len(stripped)), tf.constant(stripped)
        )
        before, fillings, after = map(_rows, encoded)
        for candidate, ids in zip(candidates, fillings, strict=True):
            if not len(ids) or self.vocabulary.special.unknown in ids:
                what = "has tokens that the model does not know" if len(ids) else "is empty"
                raise InputError(f"the candidate {candidate!r} {what}: give words of the model's vocabulary")
        front, kinds = np.concatenate([self._encode_context(context), before[0]]), kinds.numpy()[0].tolist()
        found = [
            Filling(self._pieces(parts, [0, len(ids)], kinds, ids), ids, *scores)
            for ids, scores in zip(fillings, self._scored(front, fillings, after[0], order), strict=True)
        ]
        return sorted(found, key=lambda filling: -filling.total)

    def _scored(
        self, front: np.ndarray, fillings: Sequence[np.ndarray], after: np.ndarray, order: str
    ) -> list[tuple[np.ndarray, float]]:
        """For each filling between `front` and `after` its tokens' log-probabilities in this order, and their sum."""
        rows = _padded([np.concatenate([front, ids, after]) for ids in fillings])
        place, ends = np.arange(rows.shape[1]), len(front) + np.array([[len(ids)] for ids in fillings])
        scored = (place >= len(front)) & (place < ends)
        log_probs = self.filler.score(tf.constant(rows), tf.constant(scored), order=[order]).numpy()
        found = [row[own] for row, own in zip(log_probs, scored, strict=True)]
        return [(row, float(np.sum(row, dtype=np.float64))) for row in found]

    def _encode_context(self, context: str) -> np.ndarray:
        if not context:
            return np.zeros(0, np.int32)
        return np.append(self.vocabulary.encode(whole(context)), self.document_end).astype(np.int32)

    def _fillings(
        self, parts: list[str], counts: list[int], kinds: list[int], found: Filled, top: int | None
    ) -> list[Filling]:
        there = found.places >= 0
        return [
            Filling(self._pieces(parts, counts, kinds, ids[there]), ids[there], log_probs[there], float(total))
            for ids, log_probs, total in list(zip(found.tokens, found.log_probs, found.total, strict=True))[:top]
            if np.isfinite(total)
        ]

    def _pieces(self, parts: list[str], counts: list[int], kinds: list[int], ids: np.ndarray) -> tuple[str, ...]:
        """The parts and the fillings alternately.

        If a blank has a space before it, a filling that begins with a space loses that space. If the filling does not
        begin with a space, the space before the blank is removed.
        """
        pieces, ends = [parts[0]], np.cumsum(counts)
        for i, part in enumerate(parts[1:], start=1):
            tokens = ids[ends[i - 1] : ends[i]]
            if kinds[i - 1] < 0:
                written = self.vocabulary.decode(tokens)
            else:
                written = self.vocabulary.decode_bytes(tokens).decode("utf-8", "replace")
            if kinds[i - 1] == 1 and written.startswith(" "):
                written = written[1:]
            elif kinds[i - 1] == 1:
                pieces[-1] = pieces[-1].removesuffix(" ")
            pieces += [written, part]
        return tuple(pieces)


def _check_order(order: str, counts: list[int]) -> None:
    """Raises InputError for an invalid order, by the same rules as the graph's check."""
    if order in ORDERS:
        return
    try:
        numbers = [int(number) for number in order.split(",")]
    except ValueError as error:
        raise InputError(f"order={order!r} must be {', '.join(ORDERS)}, or numbers with commas") from error
    for count in counts:
        if sorted(numbers) != list(range(count)):
            raise InputError(f"order={order} must have every number from 0 to {count - 1}, the text's blanks, once")


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    t_len = -(-max(1, *map(len, rows)) // ROUND) * ROUND
    return keras.utils.pad_sequences(rows, t_len, padding="post", value=PADDING)


def _rows(ids: tf.RaggedTensor) -> list[np.ndarray]:
    return [row.numpy() for row in ids]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")

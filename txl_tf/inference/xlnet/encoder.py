"""An XLNet as an encoder of texts, for use from Python.

Examples:
    >>> encoder = Encoder.load("runs/xlnet")
    >>> encoded = encoder(["A text.", ("A question?", "A passage.")])
    >>> encoded.hidden[1].shape, encoded.pooled.shape

A text becomes A <sep> <cls> and a pair A <sep> B <sep> <cls>, with segments 0 for A, 1 for B and 2 for <cls>, as in
the official code's fine-tuning.
Shapes: B texts, T tokens, D the model's width.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from txl_tf.data.examples.layout import lay_out
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.devices.distribute import has_xla
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.blanks import PADDING
from txl_tf.inference.xlnet.fill_in import ROUND, XLNetTool
from txl_tf.inference.xlnet.missing_tokens import by_width
from txl_tf.models.xlnet import model as xlnet
from txl_tf.models.xlnet.model import XLNet
from txl_tf.progress import Progress
from txl_tf.storage.surrogates import whole

POOLS = ("last", "first", "mean")
"""How a text becomes one vector: "last" is the hidden state of its last token, <cls>; "first" is that of its first
token; "mean" is the mean over all tokens, including <sep> and <cls>."""

PADDED = {"right": "post", "left": "pre"}
"""Keras' names of the sides on which shorter rows are padded."""

Text = str | tuple[str, str]


class Encoded(typing.NamedTuple):
    """Texts as vectors.

    ids: for each text its token ids [n], including <sep> and <cls>.
    pieces: the same tokens in readable form.
    hidden: for each text [n, D], one vector for each token.
    pooled: [B, D], one vector for each text.
    """

    ids: list[np.ndarray]
    pieces: list[list[str]]
    hidden: list[np.ndarray]
    pooled: np.ndarray


class Encoder(XLNetTool):
    """Encodes texts as vectors. All tokens of a text see each other, and there is no memory.

    The model is compiled once for each batch size and length; lengths are rounded up to a multiple of ROUND tokens.
    InputError if the vocabulary has no <sep> or <cls>.
    """

    otherwise = "is not an encoder: it sees only the text before a token"

    def __init__(self, model: XLNet, vocabulary: Vocabulary, jit_compile: bool = True):
        for name in ("sep", "cls"):
            vocabulary.special_token(name)
        super().__init__(model, vocabulary)
        compiled = jit_compile and has_xla()
        self._encode = by_width(self.encode, lambda t_len: [tf.TensorSpec([None, t_len], tf.int32)] * 2, compiled)

    def __call__(
        self,
        texts: Text | Sequence[Text],
        *,
        pool: str = "last",
        batch_size: int = 16,
        padding: str = "right",
        progress: Progress | None = None,
    ) -> Encoded:
        """Encodes texts. InputError for settings out of range.

        Args:
            texts: a str, a pair of them as a tuple, or a list of these. Texts are never truncated: the time grows with
                the square of the longest text's length.
            pool: one of POOLS.
            batch_size: texts at once; does not change the results.
            padding: "right" or "left", the side on which shorter rows are padded; does not change the results.
            progress: called before each batch with (texts done, all texts).
        """
        rows: list[Text] = [texts] if isinstance(texts, (str, tuple)) else list(texts)
        if pool not in POOLS or padding not in PADDED or batch_size < 1:
            raise InputError(
                f"pool={pool!r} must be one of {', '.join(POOLS)}, padding={padding!r} right or left, and "
                f"batch_size={batch_size} at least 1"
            )
        encoded = Encoded([], [], [], np.zeros([len(rows), self.model.config.d_model], np.float32))
        for start in range(0, len(rows), batch_size):
            if progress:
                progress(start, len(rows))
            batch = [row if isinstance(row, tuple) else (row, "") for row in rows[start : start + batch_size]]
            ids, segments = lay_out(
                self.vocabulary, *(tf.constant([whole(text) for text in side]) for side in zip(*batch, strict=True))
            )
            lengths = ids.row_lengths().numpy()
            t_len = -(-int(lengths.max()) // ROUND) * ROUND
            padded = [
                keras.utils.pad_sequences(values.to_list(), t_len, padding=PADDED[padding], value=PADDING)
                for values in (ids, segments)
            ]
            hidden, pooled = self._encode(*map(tf.constant, padded))
            encoded.pooled[start : start + batch_size] = pooled[pool].numpy()
            for row, states, tokens in zip(ids.to_list(), hidden.numpy(), padded[0], strict=True):
                encoded.ids.append(np.array(row, np.int32))
                encoded.pieces.append([self.vocabulary.describe(token) for token in row])
                encoded.hidden.append(states[tokens != PADDING])
        return encoded

    def encode(self, ids: tf.Tensor, segments: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Ids and segments, int32 [B, T], T static, both PADDING where there is no token: see `lay_out`.

        Returns:
            Hidden states [B, T, D]; and a dict from the names in POOLS to vectors [B, D], float32.
        """
        there = ids != PADDING
        hidden, _, _ = self.model(tf.maximum(ids, 0), text=xlnet.Text(tf.maximum(segments, 0), padding=~there))
        hidden = tf.cast(hidden, tf.float32)
        place = tf.range(ids.shape[1])
        last = tf.reduce_max(tf.where(there, place, 0), axis=1)
        first = tf.reduce_min(tf.where(there, place, ids.shape[1] - 1), axis=1)
        real = tf.cast(there, tf.float32)[..., None]
        return hidden, {
            "last": tf.gather(hidden, last, batch_dims=1),
            "first": tf.gather(hidden, first, batch_dims=1),
            "mean": tf.reduce_sum(hidden * real, axis=1) / tf.reduce_sum(real, axis=1),
        }

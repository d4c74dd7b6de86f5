"""The text of tokens: each as a piece of a text, and each alone."""

import codecs

import numpy as np
import tensorflow as tf

from serving import fields
from serving.errors import RequestError, older_export

MAX_TOP = 20
"""The most alternatives for a token, in one answer."""
ANCHOR = "a"
"""Text before a token, so that it is written as in the middle of a text, with a space before it if it has one."""


class Pieces:
    """Writes tokens with the vocabulary inside a model.

    Args:
        model: a Model whose signatures have `decode`.
    """

    def __init__(self, model):
        self._model = model
        self._has_after = "after" in model.signatures["decode"].structured_input_signature[1]
        self._names = {}

    def names(self, tokens):
        """The bytes of tokens, ints, each as it is written in the middle of a text; in the model's thread."""
        wanted = sorted({int(token) for token in tokens} - self._names.keys())
        if wanted:
            self._names |= dict(zip(wanted, self._decode(np.array(wanted, np.int32)), strict=True))
        return [self._names[int(token)] for token in tokens]

    def text(self, tokens):
        """The bytes of a text, int32 [n]; in the model's thread."""
        given = {"tokens": tf.constant(tokens[None])} | ({"after": tf.constant([""])} if self._has_after else {})
        return self._model("decode", **given)["texts"].numpy()[0]

    def _decode(self, tokens):
        rows = tokens[:, None]
        if self._has_after:
            return self._model("decode", tokens=tf.constant(rows), after=tf.fill([len(rows)], ANCHOR))["texts"].numpy()
        # Without `after`, as in an XLNet, the token comes after the tokens of such a text.
        before = self._model("tokenize", texts=tf.constant([ANCHOR]))["tokens"].numpy()
        after = len(self._model("decode", tokens=tf.constant(before))["texts"].numpy()[0])
        rows = np.concatenate([np.repeat(before, len(rows), axis=0), rows], axis=1)
        return [text[after:] for text in self._model("decode", tokens=tf.constant(rows))["texts"].numpy()]


class Writer:
    """Divides a growing text among its tokens.

    A token's piece is the readable text that it adds: the bytes of a character with several tokens come with the last
    token. All pieces together are the text.
    """

    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pieces(self, text, names, final):
        """The pieces of further tokens.

        Args:
            text: the bytes that the tokens add to the text.
            names: of these tokens.
            final: whether the text ends here.

        Returns:
            a list of str.
        """
        pieces = []
        for i, name in enumerate(names):
            last = i + 1 == len(names)
            # A word that begins a text or a line has no space before it; an end of line may be empty.
            given = (
                text if last else next((one for one in (name, name.removeprefix(b" ")) if text.startswith(one)), b"")
            )
            text = text[len(given) :]
            pieces.append(self._decoder.decode(given, final=final and last))
        return pieces


def label(name):
    """The bytes of a token as a text to show; bytes that are not a text by themselves as \\xe2."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return repr(name)[2:-1]


def check_top(request, model):
    """request["top"], how many of the likeliest tokens to return in the place of each token; 0 if it is missing."""
    top = fields.number(request, "top", int, 0)
    if not 0 <= top <= MAX_TOP:
        raise RequestError(400, f"top must be from 0 to {MAX_TOP}")
    if top and not model.rates:
        raise older_export("top")
    return min(top, model.vocab_size)


def rated(pieces, tokens, log_probs, best):
    """The tokens of a text with their log-probabilities, and the likeliest tokens in each place; in the model's thread.

    Args:
        pieces: a Pieces.
        tokens, log_probs: int and float [n], of a text.
        best: the likeliest tokens in their places and their log-probabilities, int and float [n, top].

    Returns:
        the names of the tokens, and for each a dict for the answer: token, log_prob, and top, a list of dicts.
    """
    ids, values = best
    names = iter(pieces.names(ids.ravel()))
    return pieces.names(tokens), [
        {
            "token": int(token),
            "log_prob": float(log_prob),
            "top": [
                {"token": int(other), "text": label(next(names)), "log_prob": float(value)}
                for other, value in zip(row_ids, row_values, strict=True)
            ],
        }
        for token, log_prob, row_ids, row_values in zip(tokens, log_probs, ids, values, strict=True)
    ]

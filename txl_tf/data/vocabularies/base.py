"""The interface of all vocabularies: text to token ids and back, outside the graph and inside it.

Every Vocabulary is a tf.Module. So everything it needs inside the graph (tables, their asset files) is saved in a
SavedModel together with the module that owns the vocabulary. On disk a vocabulary is a file and a `spec`, a small dict
that is stored in another JSON file; `load_vocabulary` loads a vocabulary from both.
"""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError, naming
from txl_tf.storage.files import write_atomically

# The white space at which str.split() splits, as a pattern for RE2, whose own class is only ASCII.
WHITESPACE = r"[\s\v\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The ids of tokens that do not stand for text; None: the vocabulary has no such token.

    Attributes:
        unknown: stands for text that the vocabulary cannot spell.
        cls: its hidden state represents a whole example.
        sep: ends each text of an example.
        pad: fills rows up to one length.
        mask: takes the place of a hidden token.
        end_of_document: follows the last token of a document.
    """

    unknown: int | None = None
    cls: int | None = None
    sep: int | None = None
    pad: int | None = None
    mask: int | None = None
    end_of_document: int | None = None


_NAMES = {"cls": "classification", "sep": "separator", "pad": "padding", "end_of_document": "end-of-document"}


class Vocabulary(tf.Module, abc.ABC):
    """The interface of all vocabularies.

    Attributes:
        unit: "byte", "char", "word" or "subword".
        vocab_size: V.
        start_token: the id to condition on if there is no prompt: the token that ends a line in this corpus.
        special: ids of the vocabulary's special tokens. Code that requires one calls `special_token`.
        FILE: the name of the file that it writes; some write none.
        kind: the class's name in `KINDS` and in `spec`.
        origin: the directory it was loaded from, for messages; None: it was not loaded from a directory.
        options: the class's arguments besides the content of its file, as values of JSON.
        ignores_space: whether line breaks, tabs and runs of spaces in the texts of a task are read as one space.
    """

    FILE: str
    unit: str
    vocab_size: int
    start_token: int
    special: SpecialTokens = SpecialTokens()
    kind: str
    origin: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    ignores_space: bool = True
    _texts: np.ndarray  # the bytes of each token, [V], where they do not depend on its neighbours

    @property
    def spec(self) -> dict[str, Any]:
        """What load_vocabulary needs besides the file: a dict that can be stored as JSON, and names the file."""
        return {"kind": self.kind, "file": self.FILE, **self.options}

    @classmethod
    def load(cls, directory: str, spec: dict[str, Any]) -> Vocabulary:
        """The vocabulary that `save` wrote into `directory`."""
        path = tf.io.gfile.join(directory, spec["file"])
        content = cls.read(path)
        with naming(path):
            return cls(content, **{name: value for name, value in spec.items() if name not in ("kind", "file")})

    @staticmethod
    def read(path: str) -> Any:
        """The content of a file that `save` wrote: the class's first argument."""
        raise NotImplementedError

    @abc.abstractmethod
    def save(self, directory: str) -> None:
        """Writes the vocabulary's files into an existing directory."""

    @abc.abstractmethod
    def encode(self, text: str | bytes) -> np.ndarray:
        """str or UTF-8 bytes -> int32 ids [n]."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Ids [n] -> the bytes of every token by itself: decode_bytes(a) + decode_bytes(b) == decode_bytes(a + b)."""
        return b"".join([self._texts[token] for token in ids])

    def decoder(self, after: str = "") -> Callable[[Iterable[int]], bytes]:
        """A function that decodes a text piece by piece: the ids of the next piece, [n], -> its bytes.

        `after` is the text before it, such as a prompt; pieces include the space between the two, if there must be one.
        """
        del after
        return self.decode_bytes

    def decode(self, ids: Iterable[int], after: str = "") -> str:
        """Ids [n] -> str, as the continuation of a text (see `decoder`); bytes that are not UTF-8 become U+FFFD."""
        return self.decoder(after)(ids).decode("utf-8", "replace")

    @abc.abstractmethod
    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings [B] -> int32 RaggedTensor [B, None], in TensorFlow ops."""

    def decode_tensor(self, ids: tf.Tensor | tf.RaggedTensor, after: tf.Tensor | str = "") -> tf.Tensor:
        """As `decode`, in TensorFlow ops: ids, RaggedTensor or Tensor [B, T], and strings [B] or [] -> strings [B]."""
        del after
        return tf.strings.reduce_join(tf.gather(tf.constant(self._texts.tolist()), ids), axis=-1)

    def encode_around(self, parts: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Encodes parts of texts with missing tokens between them, in TensorFlow ops.

        `parts` are strings [n]; `first` and `last`, bool [n], tell which are the first and the last of their text.
        Returns int32 RaggedTensor [n, None]; and int32 [n], the kind of the first missing token after each part: 1, it
        begins with a space, which is not in the part's ids; 0, it does not; -1, it can be any token.
        """
        del first, last
        return self.encode_tensor(parts), tf.fill(tf.shape(parts), -1)

    def describe(self, token: int) -> str:
        """A readable form of one id, for listings."""
        data = self.decode_bytes([token])
        try:
            return json.dumps(data.decode(), ensure_ascii=False)
        except UnicodeDecodeError:
            return repr(data)[1:]

    def special_token(self, name: str) -> int:
        """The id of a special token, a field of SpecialTokens, that the caller requires; or InputError."""
        token = getattr(self.special, name)
        if token is None:
            which = f"the vocabulary of {self.origin}" if self.origin else f"this vocabulary of {self.unit}s"
            raise InputError(
                f"{which} has no {_NAMES.get(name, name)} token: "
                "prepare the data with --vocab=sentencepiece and --vocab_size, which makes a vocabulary with it"
            )
        return token


def stands_apart(after: tf.Tensor | str) -> tf.Tensor:
    """Which texts need no space before the next word: bool, true if a text is empty or ends in white space."""
    return tf.strings.regex_full_match(after, f"(?s)(.*{WHITESPACE})?")


def write_lines(directory: str, name: str, lines: Iterable[str]) -> None:
    """Writes a text file, one item per line."""
    write_atomically(tf.io.gfile.join(directory, name), "".join(line + "\n" for line in lines))


SAID_FROM = 0.01
"""A smaller share of unknown tokens gets no message."""
_TOKENS = {"word": "words", "subword": "pieces"}


def unknown_note(unit: str, share: float, where: str) -> str:
    """A line about the share of unknown tokens, 0 to 1, in a text called `where`; "" for a small one."""
    if share <= SAID_FROM:
        return ""
    tokens = _TOKENS.get(unit, "tokens")
    return f"{100 * share:.1f} % of the {tokens} of {where} are unknown: the model reads them all alike"


def unknown_share(vocabulary: Vocabulary, texts: Iterable[np.ndarray]) -> float:
    """The share of unknown words or pieces among the tokens of texts, ids [n] each; 0 without tokens."""
    ids = np.concatenate([np.zeros(0, np.int32), *texts])
    unknown = vocabulary.special.unknown
    return 0.0 if unknown is None or not len(ids) else float(np.mean(ids == unknown))

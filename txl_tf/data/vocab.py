"""Vocabularies: text to token ids and back, outside the graph and inside it.

Every Vocabulary is a tf.Module, so whatever it needs inside the graph (tables, their asset files) travels in a
SavedModel with the module that owns it. On disk a vocabulary is a file a person can read plus a `spec`, a small dict
that goes into somebody's JSON; `load_vocabulary` puts the two together. SentencePiece
is in subwords.py.
"""

import abc
import json

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.files import read_lines, write_atomically

# What str.split() splits at, for RE2, which knows only ASCII by itself.
_WHITESPACE = r"[\s\v\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


class Vocabulary(tf.Module, abc.ABC):
    """What all vocabularies offer.

    Attributes:
        unit: "byte", "char", "word" or "subword".
        vocab_size: V.
        start_token: the id to condition on where there is no prompt: what ends a line in this corpus.
        spec: JSON-able; names the files in `save`'s directory.
    """

    unit: str
    vocab_size: int
    start_token: int

    @property
    @abc.abstractmethod
    def spec(self):
        """What load_vocabulary needs beside the files."""

    @abc.abstractmethod
    def save(self, directory):
        """Writes the vocabulary's files into an existing directory."""

    @abc.abstractmethod
    def encode(self, text):
        """str or UTF-8 bytes -> int32 ids [n]."""

    @abc.abstractmethod
    def decode_bytes(self, ids):
        """Ids [n] -> bytes. decode_bytes(a) + decode_bytes(b) == decode_bytes(a + b), for printing as text is made."""

    def decode(self, ids):
        """Ids [n] -> str; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    @abc.abstractmethod
    def encode_tensor(self, strings):
        """Strings [B] -> int32 RaggedTensor [B, None], in TensorFlow ops."""

    @abc.abstractmethod
    def decode_tensor(self, ids):
        """Ids, RaggedTensor or Tensor [B, T] -> strings [B], in TensorFlow ops."""

    def describe(self, token):
        """How one id reads in a listing."""
        data = self.decode_bytes([token])
        try:
            return json.dumps(data.decode(), ensure_ascii=False)
        except UnicodeDecodeError:
            return repr(data)[1:]


class ByteVocabulary(Vocabulary):
    """Bytes: all 256 as themselves, or a list of symbols (enwik8).

    With a list, bytes in `dropped` are left out of the text, as the corpus left them out, and any other byte that is
    not listed reads as "?" (or as the most frequent symbol where even that is not listed).

    Args:
        symbols: byte values by id; None: all 256, byte b having id b.
        dropped: byte values to leave out.
    """

    unit = "byte"
    FILE = "vocab.txt"

    def __init__(self, symbols=None, dropped=()):
        super().__init__(name="byte_vocabulary")
        self._identity = symbols is None
        self._symbols = np.arange(256, dtype=np.uint8) if symbols is None else np.array(symbols, np.uint8)
        self._dropped = tuple(int(value) for value in dropped)
        self.vocab_size = len(self._symbols)
        self._ids = np.full(256, -1, np.int32)
        self._ids[self._symbols] = np.arange(self.vocab_size)
        unknown = max(int(self._ids[ord("?")]), 0)
        self._ids[self._ids < 0] = unknown
        self._ids[list(self._dropped)] = -1
        newline = int(self._ids[ord("\n")]) if ord("\n") in self._symbols else -1
        self.start_token = newline if newline >= 0 else max(int(self._ids[ord(" ")]), 0)

    @property
    def spec(self):
        """See Vocabulary."""
        if self._identity:
            return {"kind": "bytes"}
        return {"kind": "bytes", "file": self.FILE, "dropped": list(self._dropped)}

    @classmethod
    def load(cls, directory, spec):
        """The vocabulary that `save` wrote."""
        if "file" not in spec:
            return cls()
        return cls([int(line) for line in read_lines(tf.io.gfile.join(directory, spec["file"]))], spec["dropped"])

    def save(self, directory):
        """One byte value a line, in decimal; nothing where all 256 stand for themselves."""
        if not self._identity:
            write_lines(directory, self.FILE, [str(value) for value in self._symbols])

    def encode(self, text):
        """See Vocabulary and the class."""
        data = text.encode() if isinstance(text, str) else text
        ids = self._ids[np.frombuffer(data, np.uint8)]
        return ids[ids >= 0] if self._dropped else ids

    def decode_bytes(self, ids):
        """See Vocabulary."""
        return self._symbols[np.asarray(ids, np.int64)].tobytes()

    def encode_tensor(self, strings):
        """See Vocabulary."""
        # One decode_raw over the joined strings: it wants strings of one length, and a batch has many.
        data = tf.io.decode_raw(tf.strings.reduce_join(strings), tf.uint8)
        ids = tf.gather(tf.constant(self._ids), tf.cast(data, tf.int32))
        ragged = tf.RaggedTensor.from_row_lengths(ids, tf.cast(tf.strings.length(strings), tf.int64))
        return tf.ragged.boolean_mask(ragged, ragged >= 0) if self._dropped else ragged

    def decode_tensor(self, ids):
        """See Vocabulary."""
        characters = tf.constant([bytes([value]) for value in self._symbols])
        return tf.strings.reduce_join(tf.gather(characters, ids), axis=-1)


class CharVocabulary(Vocabulary):
    """Unicode characters (text8). A character that is not listed reads as a space, or as id 0.

    Args:
        symbols: one character an id.
    """

    unit = "char"
    FILE = "vocab.txt"

    def __init__(self, symbols):
        super().__init__(name="char_vocabulary")
        self._symbols = np.array(list(symbols), dtype=object)
        self.vocab_size = len(self._symbols)
        codes = np.array([ord(symbol) for symbol in self._symbols], np.int32)
        # A sorted list to search: no table, hence nothing to initialise or to carry in a SavedModel.
        self._order = np.argsort(codes).astype(np.int32)
        self._codes = codes[self._order]
        ids = dict(zip(self._symbols, range(self.vocab_size), strict=True))
        self._unknown = ids.get(" ", 0)
        self.start_token = ids.get("\n", self._unknown)

    @property
    def spec(self):
        """See Vocabulary."""
        return {"kind": "chars", "file": self.FILE}

    @classmethod
    def load(cls, directory, spec):
        """The vocabulary that `save` wrote."""
        return cls([json.loads(line) for line in read_lines(tf.io.gfile.join(directory, spec["file"]))])

    def save(self, directory):
        """One character a line, as a JSON string."""
        write_lines(directory, self.FILE, [json.dumps(symbol, ensure_ascii=False) for symbol in self._symbols])

    def encode(self, text):
        """See Vocabulary."""
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.int32)
        return self._search(np, codes)

    def decode_bytes(self, ids):
        """See Vocabulary."""
        return "".join([self._symbols[token] for token in ids]).encode()

    def encode_tensor(self, strings):
        """See Vocabulary."""
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        return codes.with_flat_values(self._search(tf, codes.flat_values))

    def decode_tensor(self, ids):
        """See Vocabulary."""
        return tf.strings.reduce_join(tf.gather(tf.constant(self._symbols.tolist()), ids), axis=-1)

    def _search(self, xp, codes):
        """Code points [n] -> ids [n]; `xp` is numpy or TensorFlow."""
        place = xp.minimum(xp.searchsorted(self._codes, codes), self.vocab_size - 1)
        found = (xp.gather(self._codes, place) if xp is tf else self._codes[place]) == codes
        ids = xp.gather(self._order, place) if xp is tf else self._order[place]
        return xp.where(found, ids, np.int32(self._unknown))


class WordVocabulary(Vocabulary):
    """Words between white space; ends of lines are tokens; any other word is `unknown`.

    A newline in a text is an end of a line. `encode` adds none of its own, so that a prompt can stop mid-line.
    Round trip: decode(encode(text)) == text with single spaces and without unknown words; ids come back exactly.

    Args:
        words: by id. Must hold `unknown` and `line_end`.
        line_end: the token that ends a line, "<eos>".
        both_ends: lines also begin with it (lm1b), so that a newline between two lines is two tokens.
        unknown: the token for words that are not listed.
        lower_case: lower text first (ptb).
    """

    unit = "word"
    FILE = "vocab.txt"

    def __init__(self, words, line_end="<eos>", both_ends=False, unknown="<unk>", lower_case=False):
        super().__init__(name="word_vocabulary")
        # No list or dict may be an attribute: tf.Module would wrap and track every word.
        self._words = np.array(words, dtype=object)
        self._options = {
            "line_end": line_end,
            "both_ends": both_ends,
            "unknown": unknown,
            "lower_case": lower_case,
        }
        self.vocab_size = len(self._words)
        ids = dict(zip(self._words, range(self.vocab_size), strict=True))
        for token in (line_end, unknown):
            if token not in ids:
                raise InputError(f"the word list has no {token}: add it as a line of its own")
        if len(ids) != self.vocab_size:
            raise InputError("the word list has a word twice: every word has one line")
        self._id_of = ids.get
        self._unknown = ids[unknown]
        self.start_token = ids[line_end]
        self._tables = None
        self._newline = f" {line_end} {line_end} " if both_ends else f" {line_end} "

    @property
    def spec(self):
        """See Vocabulary."""
        return {"kind": "words", "file": self.FILE, **self._options}

    @classmethod
    def load(cls, directory, spec):
        """The vocabulary that `save` wrote."""
        options = {name: value for name, value in spec.items() if name not in ("kind", "file")}
        return cls(read_lines(tf.io.gfile.join(directory, spec["file"])), **options)

    def save(self, directory):
        """One word a line."""
        write_lines(directory, self.FILE, self._words)

    def encode(self, text):
        """See Vocabulary and the class."""
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        text = text.lower() if self._options["lower_case"] else text
        words = text.replace("\n", self._newline).split()
        return self.ids(words)

    def ids(self, words):
        """Ids [n] of words that are words already."""
        return np.fromiter((self._id_of(word, self._unknown) for word in words), np.int32, len(words))

    def decode_bytes(self, ids):
        """Words each followed by a space, ends of lines as newlines."""
        pieces = ["\n" if token == self.start_token else self._words[token] + " " for token in ids]
        return "".join(pieces).encode()

    def decode(self, ids):
        """See Vocabulary; without the spaces before newlines and at the end."""
        text = super().decode(ids).replace(" \n", "\n").removesuffix(" ")
        return text.replace("\n\n", "\n") if self._options["both_ends"] else text

    def encode_tensor(self, strings):
        """See Vocabulary."""
        if self._options["lower_case"]:
            strings = tf.strings.lower(strings, encoding="utf-8")
        strings = tf.strings.regex_replace(strings, "\n", self._newline)
        words = tf.strings.split(tf.strings.regex_replace(strings, _WHITESPACE, " "))
        return words.with_flat_values(self._look_up(0, words.flat_values))

    def decode_tensor(self, ids):
        """See Vocabulary."""
        ragged = ids if isinstance(ids, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(ids)
        flat = tf.cast(ragged.flat_values, tf.int32)
        words = tf.where(flat == self.start_token, "\n", self._look_up(1, flat) + " ")
        text = tf.strings.reduce_join(ragged.with_flat_values(words), axis=-1)
        text = tf.strings.regex_replace(tf.strings.regex_replace(text, " \n", "\n"), " $", "")
        return tf.strings.regex_replace(text, "\n\n", "\n") if self._options["both_ends"] else text

    def describe(self, token):
        """See Vocabulary."""
        return self._words[token]

    def _look_up(self, direction, keys):
        """Words to ids (direction 0) or ids to words (1), in tables that are made when first needed."""
        if self._tables is None:
            with tf.init_scope():  # outside of whatever function is being traced
                words, ids = tf.constant(self._words.tolist()), tf.range(self.vocab_size)
                self._tables = (
                    tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, ids), self._unknown),
                    tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(ids, words), ""),
                )
        return self._tables[direction].lookup(keys)


def load_vocabulary(directory, spec):
    """The vocabulary that `save` wrote into `directory`, from its `spec`.

    Raises:
        InputError: a file is missing or damaged, or the spec is of an unknown kind.
    """
    from txl_tf.data.subwords import SubwordVocabulary  # which builds on this module

    kinds = {
        "bytes": ByteVocabulary,
        "chars": CharVocabulary,
        "words": WordVocabulary,
        "sentencepiece": SubwordVocabulary,
    }
    if spec.get("kind") not in kinds:
        raise InputError(
            f"{directory} has a vocabulary of unknown kind {spec.get('kind')!r}: known are {', '.join(kinds)}"
        )
    try:
        return kinds[spec["kind"]].load(directory, spec)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{directory}: the vocabulary cannot be read: {error}") from error


def write_lines(directory, name, lines):
    """Writes a text file, one item a line."""
    write_atomically(tf.io.gfile.join(directory, name), "".join([line + "\n" for line in lines]))

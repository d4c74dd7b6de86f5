"""SentencePiece vocabularies: a byte-pair trainer that writes the standard model file, and tensorflow-text to use it.

Models trained here keep text as it is (no normalisation, no added spaces, bytes for characters they do not know), so
decode(encode(text)) == text for any valid UTF-8 without "\\u2581", SentencePiece's own sign for a space.
"""

import heapq
import itertools
import struct

import numpy as np
import tensorflow as tf

from txl_tf.data.vocab import Vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.files import read_bytes, write_atomically

_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6  # SentencePiece's types of pieces
_MAX_PIECE_CHARACTERS = 16
_MAX_TRAINING_WORDS = 300_000


class SubwordVocabulary(Vocabulary):
    """A SentencePiece model.

    Args:
        model: the serialised model, bytes.
    """

    unit = "subword"
    FILE = "sentencepiece.model"

    def __init__(self, model):
        super().__init__(name="subword_vocabulary")
        import tensorflow_text  # here, because it takes a while to load and only this vocabulary needs it

        self._model = model
        try:
            self._tokenizer = tensorflow_text.SentencepieceTokenizer(model)
            self.vocab_size = int(self._tokenizer.vocab_size())
            pieces = self._tokenizer.id_to_string(tf.range(self.vocab_size)).numpy()
        except tf.errors.OpError as error:
            raise InputError(f"not a SentencePiece model: {one_line(error)}") from error
        self._pieces = np.array([_piece_bytes(piece.decode()) for piece in pieces], dtype=object)
        newline = self.encode("\n")
        self.start_token = int(newline[-1]) if len(newline) else 0

    @property
    def spec(self):
        """See Vocabulary."""
        return {"kind": "sentencepiece", "file": self.FILE}

    @classmethod
    def load(cls, directory, spec):
        """The vocabulary that `save` wrote."""
        return cls(read_bytes(tf.io.gfile.join(directory, spec["file"])))

    def save(self, directory):
        """The model file, as SentencePiece's own tools read it."""
        write_atomically(tf.io.gfile.join(directory, self.FILE), self._model)

    def encode(self, text):
        """See Vocabulary; line by line, because SentencePiece takes more than linear time."""
        data = text.encode() if isinstance(text, str) else text
        lines = data.splitlines(keepends=True)
        return self._tokenizer.tokenize(lines).flat_values.numpy() if lines else np.zeros(0, np.int32)

    def decode_bytes(self, ids):
        """See Vocabulary."""
        return b"".join([self._pieces[token] for token in ids])

    def encode_tensor(self, strings):
        """See Vocabulary."""
        return self._tokenizer.tokenize(strings)

    def decode_tensor(self, ids):
        """See Vocabulary."""
        return tf.strings.reduce_join(tf.gather(tf.constant(self._pieces.tolist()), ids), axis=-1)


def _piece_bytes(piece):
    """What a piece stands for."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_SPACE, " ").encode()


def train(counts, vocab_size):
    """Trains a byte-pair model.

    Args:
        counts: {word: how often}; words have no white space, except that "\\n" may be one.
        vocab_size: of the model: <unk>, 256 bytes, the characters, and merges for the rest.

    Returns:
        The serialised model.

    Raises:
        InputError: `vocab_size` leaves no place for merges, or the text has too few pairs for it.
    """
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_TRAINING_WORDS]
    words = {(word if word == "\n" else _SPACE + word): count for word, count in words}
    characters = _frequent_characters(words)
    merges = vocab_size - 257 - len(characters)
    if merges < 1:
        raise InputError(
            f"--vocab_size={vocab_size} is too small: 257 bytes and {len(characters)} characters come first"
        )
    merged = _merge_pairs(words, set(characters), merges)
    if len(merged) < merges:
        raise InputError(
            f"--vocab_size={vocab_size} is too large for this text: {vocab_size - merges + len(merged)} is most"
        )
    return _model_file(characters, merged)


def _frequent_characters(words):
    """Characters that cover all but 1 in 10,000 of the text, the most frequent first; bytes stand for the others."""
    counts = {_SPACE: 1, "\n": 1, "\t": 1}
    for word, count in words.items():
        for character in word:
            counts[character] = counts.get(character, 0) + count
    order = sorted(counts, key=lambda character: (-counts[character], character))
    left, kept = sum(counts.values()) * 0.9999, []
    for character in order:
        if left <= 0 and character not in (_SPACE, "\n", "\t"):
            continue
        kept.append(character)
        left -= counts[character]
    return kept


def _merge_pairs(words, characters, number):
    """Byte-pair merges, the most frequent pair first; of equally frequent ones the first in the alphabet.

    Counts are kept for every pair and changed only where a merge happens; the heap may hold old counts, which are
    noticed when they come up.
    """
    symbols = [[c for c in word if c in characters] for word in words]
    weights = list(words.values())
    pairs, places = {}, {}
    for index, word in enumerate(symbols):
        for pair in itertools.pairwise(word):
            pairs[pair] = pairs.get(pair, 0) + weights[index]
            places.setdefault(pair, set()).add(index)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    merged, known = [], set(characters)
    while heap and len(merged) < number:
        count, pair = heapq.heappop(heap)
        if -count != pairs.get(pair, 0):
            continue
        piece = pair[0] + pair[1]
        if len(piece) > _MAX_PIECE_CHARACTERS:
            continue
        if piece not in known:
            known.add(piece)
            merged.append(piece)
        changed = set()
        for index in places.pop(pair):
            word, weight = symbols[index], weights[index]
            new = _merge(word, pair, piece)
            for old in itertools.pairwise(word):
                pairs[old] -= weight
                changed.add(old)
            for fresh in itertools.pairwise(new):
                pairs[fresh] = pairs.get(fresh, 0) + weight
                places.setdefault(fresh, set()).add(index)
                changed.add(fresh)
            symbols[index] = new
        for other in changed:
            if pairs[other] > 0:
                heapq.heappush(heap, (-pairs[other], other))
    return merged


def _merge(word, pair, piece):
    """The symbols of a word after `pair` became `piece`."""
    new, i = [], 0
    while i < len(word):
        if word[i] == pair[0] and i + 1 < len(word) and word[i + 1] == pair[1]:
            new.append(piece)
            i += 2
        else:
            new.append(word[i])
            i += 1
    return new


def _model_file(characters, merged):
    """A serialised sentencepiece.ModelProto: merges score by their order, the first highest."""
    pieces = [("<unk>", 0.0, _UNKNOWN)] + [(f"<0x{value:02X}>", 0.0, _BYTE) for value in range(256)]
    pieces += [(piece, -float(rank), _NORMAL) for rank, piece in enumerate([*merged, *characters])]
    file = b"".join([_message(1, _message(1, p.encode()) + _float(2, score) + _number(3, t)) for p, score, t in pieces])
    trainer = _number(3, 2) + _number(4, len(pieces)) + _number(35, 1)  # model_type BPE, vocab_size, byte_fallback
    trainer += _number(40, 0) + b"".join([_number(field, -1) for field in (41, 42, 43)])  # <unk>; no <s>, </s>, <pad>
    normalizer = _message(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    return file + _message(2, trainer) + _message(3, normalizer)


def _varint(value):
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _message(field, data):
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)

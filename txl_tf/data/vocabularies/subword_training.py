"""Training a SentencePiece model on the words of a corpus.

Models trained here do not change text (no normalisation, no added spaces, bytes for unknown characters), so
decode(encode(text)) == text for any valid UTF-8 without "\\u2581", SentencePiece's own sign for a space. They have
XLNet's special pieces with XLNet's ids, so that a corpus made with them can be used for both families of models.
"""

from __future__ import annotations

import collections
import io
import re
from collections.abc import Mapping
from typing import NamedTuple

from txl_tf.data.vocabularies.sentence_pieces import SPACE
from txl_tf.errors import InputError

# The trainer gives these the ids 0, 1 and 2, and the others the ids after them.
_FIRST = ["<unk>", "<s>", "</s>"]
_CONTROL = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]
_USER_DEFINED = ["<eop>"]
_MAX_PIECE_CHARACTERS = 16
_MAX_TRAINING_WORDS = 300_000
_LONGEST_TEXT = 200
"""Characters of a text for the trainer; it takes 4,192 bytes at most, and a character has up to 4."""
_PART = rf".{{0,{_LONGEST_TEXT - 1}}}[^\w\s]|.{{1,{_LONGEST_TEXT}}}"


class Trained(NamedTuple):
    """A serialised model, and the share of the text's characters that it was trained on, 0 to 1."""

    model: bytes
    share: float


def train(counts: Mapping[str, int], vocab_size: int) -> Trained:
    """Trains a byte-pair model. The same counts give the same model.

    Args:
        counts: {word: how often}; words have no white space, except that "\\n" may be a word. The trainer ignores it,
            because a byte stands for it. The most frequent words, or parts of long ones, are used.
        vocab_size: of the model: 9 special pieces, 256 bytes, the characters that cover all but 1 in 10,000 of the
            text, and merges for the rest.

    InputError if there are no words, or `vocab_size` is too small for the characters or too large for the pairs.
    """
    import sentencepiece  # here, because only training needs it

    # The trainer ignores words that are spelled like special pieces. Some corpora have many of one of them, "<unk>".
    spelled_alike = [f"{SPACE}{piece}" for piece in [*_FIRST, *_CONTROL] if piece in counts]
    texts: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        if word and word != "\n" and "\t" not in word:  # a line with a second tab is not a pair of a text and its count
            # The trainer drops lines of more than 4,192 bytes. Where words are not separated by spaces, as in Chinese
            # and Japanese, a paragraph is one "word". Long ones are cut after punctuation, or else anywhere.
            text = f" {word}"
            for part in [text] if len(text) <= _LONGEST_TEXT else re.findall(_PART, text, re.DOTALL):
                texts[part] += count
    wanted = sorted(texts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_TRAINING_WORDS]
    lines = [f"{text}\t{count}" for text, count in wanted]
    if not lines:
        raise InputError("there are no words to train a SentencePiece model on: give a text that is not empty")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=0.9999,
            byte_fallback=True,
            max_sentencepiece_length=_MAX_PIECE_CHARACTERS,
            control_symbols=_CONTROL,
            user_defined_symbols=[*_USER_DEFINED, *spelled_alike],
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            minloglevel=4,
        )
    except RuntimeError as error:
        raise InputError(_in_words(str(error), vocab_size)) from error
    used, whole = (sum(len(text) * count for text, count in part) for part in (wanted, texts.items()))
    return Trained(model.getvalue(), used / whole)


def _in_words(message: str, vocab_size: int) -> str:
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return f"--vocab_size={vocab_size} is too small: {least[1]} special pieces, bytes and characters come first"
    if most := re.search(r"Vocabulary size too high .* value <= (\d+)", message):
        return f"--vocab_size={vocab_size} is too large for this text: {most[1]} is the most"
    return f"no SentencePiece model can be trained on this text: {' '.join(message.split())}"

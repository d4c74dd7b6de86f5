"""Vocabularies: one module for each kind, which registers itself, and the registry, which loads all kinds."""

from txl_tf.data.vocabularies.base import SpecialTokens, Vocabulary
from txl_tf.data.vocabularies.byte_level import ByteVocabulary
from txl_tf.data.vocabularies.character_level import CharVocabulary
from txl_tf.data.vocabularies.registry import load_vocabulary, unit_of, vocabulary_files, vocabulary_kinds
from txl_tf.data.vocabularies.sentence_pieces import SubwordVocabulary
from txl_tf.data.vocabularies.word_level import WordVocabulary
from txl_tf.data.vocabularies.xlnet import XLNetVocabulary

__all__ = [
    "ByteVocabulary",
    "CharVocabulary",
    "SpecialTokens",
    "SubwordVocabulary",
    "Vocabulary",
    "WordVocabulary",
    "XLNetVocabulary",
    "load_vocabulary",
    "unit_of",
    "vocabulary_files",
    "vocabulary_kinds",
]

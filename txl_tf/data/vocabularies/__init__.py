"""Vocabularies: one module for each kind, and the registry, which loads all kinds."""

from txl_tf.data.vocabularies.base import SpecialTokens, Vocabulary
from txl_tf.data.vocabularies.byte_level import ByteVocabulary
from txl_tf.data.vocabularies.character_level import CharVocabulary
from txl_tf.data.vocabularies.registry import VOCABULARY_FILES, load_vocabulary, unit_of
from txl_tf.data.vocabularies.sentence_pieces import SubwordVocabulary
from txl_tf.data.vocabularies.word_level import WordVocabulary
from txl_tf.data.vocabularies.xlnet import XLNetVocabulary

__all__ = [
    "VOCABULARY_FILES",
    "ByteVocabulary",
    "CharVocabulary",
    "SpecialTokens",
    "SubwordVocabulary",
    "Vocabulary",
    "WordVocabulary",
    "XLNetVocabulary",
    "load_vocabulary",
    "unit_of",
]

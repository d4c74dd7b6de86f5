"""Vocabularies: of symbols, words, pieces. Code that reads a `spec` finds its kind here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from txl_tf.data.vocabularies.base import Vocabulary
from txl_tf.data.vocabularies.sentence_pieces import SubwordVocabulary
from txl_tf.data.vocabularies.symbols import ByteVocabulary, CharVocabulary
from txl_tf.data.vocabularies.word_level import WordVocabulary
from txl_tf.data.vocabularies.xlnet import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.storage.files import digest

_CLASSES = (ByteVocabulary, CharVocabulary, SubwordVocabulary, WordVocabulary, XLNetVocabulary)
KINDS: dict[str, type[Vocabulary]] = {cls.kind: cls for cls in _CLASSES}
"""The kinds that `load_vocabulary` knows."""
VOCABULARY_FILES = frozenset(cls.FILE for cls in _CLASSES)
"""The names of the files that vocabularies write."""


def kind_of(spec: dict[str, Any], where: str) -> type[Vocabulary]:
    """The kind of the vocabulary with this spec; InputError, which begins with `where`, if it is unknown."""
    kind = spec.get("kind")
    if kind not in KINDS:
        raise InputError(f"{where} has a vocabulary of unknown kind {kind!r}: known are {', '.join(KINDS)}")
    return KINDS[kind]


def load_vocabulary(
    directory: str, spec: dict[str, Any], sha256: Mapping[str, str] | None = None, remedy: str = ""
) -> Vocabulary:
    """The vocabulary that `save` wrote into `directory`, local or gs://, from its `spec`.

    `sha256` has the checksums of its files, by name. InputError, with `remedy` at its end, if a file is missing,
    damaged or wrong, or the spec is of an unknown kind.
    """
    for name in (*(sha256 or ()), spec.get("file", "")):
        if directory and (not isinstance(name, str) or os.path.basename(name) != name):
            raise InputError(f"{directory} names a vocabulary's file outside of it, {name!r}: {remedy}")
    for name, expected in (sha256 or {}).items():
        path = tf.io.gfile.join(directory, name)
        if not tf.io.gfile.exists(path):
            raise InputError(f"{path} is missing: {remedy}")
        if digest(path) != expected:
            raise InputError(f"{path} is not the vocabulary that belongs here (its sha256 differs): {remedy}")
    kind = kind_of(spec, directory)
    try:
        vocabulary = kind.load(directory, spec)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{directory}/{spec.get('file', '')}: the vocabulary cannot be read: {error}") from error
    vocabulary.origin = directory
    return vocabulary

"""The kinds of vocabularies by name. Each kind registers itself; code that reads a `spec` looks its kind up here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tensorflow as tf

from txl_tf.data.vocabularies.base import Vocabulary
from txl_tf.errors import InputError
from txl_tf.storage.files import digest

_Kind = TypeVar("_Kind", bound=type[Vocabulary])
_KINDS: dict[str, type[Vocabulary]] = {}


def register(kind: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: specs with this `kind`, which is new, are loaded by the class's `load(directory, spec)`."""

    def add(cls: _Kind) -> _Kind:
        if kind in _KINDS:
            raise ValueError(f"the kind {kind} is taken by {_KINDS[kind].__name__}")
        _KINDS[kind], cls.kind = cls, kind
        return cls

    return add


def vocabulary_kinds() -> tuple[str, ...]:
    """The names that `load_vocabulary` knows."""
    return tuple(_KINDS)


def vocabulary_files() -> frozenset[str]:
    """The names of the files that vocabularies write."""
    return frozenset(cls.FILE for cls in _KINDS.values() if hasattr(cls, "FILE"))


def unit_of(spec: dict[str, Any]) -> str:
    """The kind of token in the vocabulary with this spec; InputError if the vocabulary is of an unknown kind."""
    return _kind_of(spec, "the spec").unit


def load_vocabulary(
    directory: str, spec: dict[str, Any], sha256: Mapping[str, str] | None = None, remedy: str = ""
) -> Vocabulary:
    """The vocabulary that `save` wrote into `directory`, local or gs://, from its `spec`.

    Args:
        sha256: the checksums of its files, by name; None: not known.
        remedy: advice for a missing or wrong file; ends the message.

    Raises:
        InputError: a file is missing, damaged or wrong, or the spec is of an unknown kind.
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
    kind = _kind_of(spec, directory)
    try:
        vocabulary = kind.load(directory, spec)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{directory}/{spec.get('file', '')}: the vocabulary cannot be read: {error}") from error
    vocabulary.origin = directory
    return vocabulary


def _kind_of(spec: dict[str, Any], where: str) -> type[Vocabulary]:
    kind = spec.get("kind")
    if kind not in _KINDS:
        raise InputError(f"{where} has a vocabulary of unknown kind {kind!r}: known are {', '.join(_KINDS)}")
    return _KINDS[kind]

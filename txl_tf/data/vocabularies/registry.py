"""The kinds of vocabularies by name. Each kind registers itself; code that reads a `spec` looks its kind up here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from txl_tf.data.vocabularies.base import Vocabulary
from txl_tf.errors import InputError

_Kind = TypeVar("_Kind", bound=type[Vocabulary])
_KINDS: dict[str, type[Vocabulary]] = {}


def register(kind: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: specs with this `kind` are loaded by the class's `load(directory, spec)`.

    Raises:
        ValueError: another class is registered under this name.
    """

    def add(cls: _Kind) -> _Kind:
        if kind in _KINDS:
            raise ValueError(f"the kind {kind} is taken by {_KINDS[kind].__name__}")
        _KINDS[kind], cls.kind = cls, kind
        return cls

    return add


def vocabulary_kinds() -> tuple[str, ...]:
    """The names that `load_vocabulary` knows."""
    return tuple(_KINDS)


def load_vocabulary(directory: str, spec: dict[str, Any]) -> Vocabulary:
    """The vocabulary that `save` wrote into `directory`, from its `spec`.

    Raises:
        InputError: a file is missing or damaged, or the spec is of an unknown kind.
    """
    kind = spec.get("kind")
    if kind not in _KINDS:
        raise InputError(f"{directory} has a vocabulary of unknown kind {kind!r}: known are {', '.join(_KINDS)}")
    try:
        vocabulary = _KINDS[kind].load(directory, spec)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{directory}/{spec.get('file', '')}: the vocabulary cannot be read: {error}") from error
    vocabulary.origin = directory
    return vocabulary
